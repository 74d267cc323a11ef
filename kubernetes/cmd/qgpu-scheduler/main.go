// Command qgpu-scheduler is Kubernetes' scheduler with qGPU's plugins, for a profile of
// its own beside the cluster's default scheduler. It takes kube-scheduler's flags and
// configuration.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"

	"github.com/qgpu-project/qgpu/kubernetes/schedulercmd"
)

func main() { os.Exit(cli.Run(schedulercmd.New())) }
