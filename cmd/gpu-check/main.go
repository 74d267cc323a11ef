// Command gpu-check checks whether a machine's card is shared as it should be.
package main

import (
	"os"

	"github.com/qgpu-project/qgpu/internal/cli"
	"github.com/qgpu-project/qgpu/internal/cli/checkcmd"
)

func main() { os.Exit(cli.Run(checkcmd.New())) }
