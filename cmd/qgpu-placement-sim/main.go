// Command qgpu-placement-sim compares placement policies on a trace.
package main

import (
	"os"

	"github.com/qgpu-project/qgpu/internal/cli"
	"github.com/qgpu-project/qgpu/internal/cli/placementcmd"
)

func main() { os.Exit(cli.Run(placementcmd.New())) }
