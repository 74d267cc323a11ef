// Command qgpu runs programs on shares of GPU cards and shows who has what.
package main

import (
	"os"

	"github.com/qgpu-project/qgpu/internal/cli"
	"github.com/qgpu-project/qgpu/internal/cli/qgpucmd"
)

func main() { os.Exit(cli.Run(qgpucmd.New())) }
