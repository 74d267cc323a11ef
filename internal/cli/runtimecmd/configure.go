package runtimecmd

import "github.com/spf13/cobra"

func configureCommand() *cobra.Command { return &cobra.Command{Use: "configure"} }
