// Command qgpu-agent is a node's part of qGPU in Kubernetes.
package main

import (
	"os"

	"github.com/qgpu-project/qgpu/internal/cli"
	"github.com/qgpu-project/qgpu/internal/cli/agentcmd"
)

func main() { os.Exit(cli.Run(agentcmd.New())) }
