// Command qgpu-sim simulates NVIDIA cards for unmodified CUDA programs.
package main

import (
	"os"

	"github.com/qgpu-project/qgpu/internal/cli"
	"github.com/qgpu-project/qgpu/internal/cli/simcmd"
)

func main() { os.Exit(cli.Run(simcmd.New())) }
