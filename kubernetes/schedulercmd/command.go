// Package schedulercmd is the command qgpu-scheduler: Kubernetes' scheduler with qGPU's
// plugins beside its own. It knows which plugins there are; how a profile uses them is
// written in the chart.
package schedulercmd

import (
	"github.com/spf13/cobra"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"

	"github.com/qgpu-project/qgpu/internal/scheduler"
)

// New makes the command, which takes kube-scheduler's flags and configuration. A process
// may run it once.
func New() *cobra.Command {
	return app.NewSchedulerCommand(
		app.WithPlugin(scheduler.Name, scheduler.NewFactory()),
		app.WithPlugin(hostName, newHost),
	)
}
