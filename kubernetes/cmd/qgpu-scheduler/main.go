// Command qgpu-scheduler is Kubernetes' scheduler with qGPU's plugin, for a profile of
// its own beside the cluster's default scheduler. It takes kube-scheduler's flags and
// configuration.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"

	"github.com/qgpu-project/qgpu/internal/scheduler"
)

func main() {
	os.Exit(cli.Run(app.NewSchedulerCommand(
		app.WithPlugin(scheduler.Name, scheduler.NewFactory()),
		app.WithPlugin(hostName, newHost),
	)))
}
