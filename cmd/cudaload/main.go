// Command cudaload is a CUDA program for tests, demos and benchmarks.
package main

import (
	"os"

	"github.com/qgpu-project/qgpu/internal/cli"
	"github.com/qgpu-project/qgpu/internal/cli/loadcmd"
)

func main() { os.Exit(cli.Run(loadcmd.New())) }
