// Command qgpu runs programs on shares of GPU cards and shows who has what. Called
// kubectl-qgpu, it is kubectl's plugin "kubectl qgpu".
package main

import (
	"os"
	"path/filepath"

	"github.com/qgpu-project/qgpu/internal/cli"
	"github.com/qgpu-project/qgpu/internal/cli/kubecmd"
	"github.com/qgpu-project/qgpu/internal/cli/qgpucmd"
)

func main() {
	command := qgpucmd.New()
	if filepath.Base(os.Args[0]) == kubecmd.Program {
		command = kubecmd.NewPlugin()
	}
	os.Exit(cli.Run(command))
}
