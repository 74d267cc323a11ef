package qgpucmd

import "github.com/spf13/cobra"

func (o *options) demoCommand() *cobra.Command {
	return &cobra.Command{Use: "demo", Short: "Show two programs sharing a card"}
}
