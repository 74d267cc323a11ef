// Command qgpu-runtime runs containers with a share of a card, in runc's place, and
// mediates tenants' calls on NVIDIA device files.
package main

import (
	"os"

	"github.com/qgpu-project/qgpu/internal/cli"
	"github.com/qgpu-project/qgpu/internal/cli/runtimecmd"
)

func main() { os.Exit(cli.Run(runtimecmd.New(os.Args[1:]))) }
