package schedulercmd

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/noderesources"

	"github.com/qgpu-project/qgpu/internal/podshare"
)

// hostName is the plugin's name in scheduler configurations.
const hostName = "QGPUHost"

// host leaves shares of cards out of what NodeResourcesFit counts: QGPU counts them card
// by card, and the other would check their names by regular expressions for each pod and
// node, which takes a third of all the scheduler's time. It runs after NodeResourcesFit's
// PreFilter and replaces what that has noted for its Filter.
type host struct {
	fit    *noderesources.Fit
	shares []corev1.ResourceName
}

var _ fwk.PreFilterPlugin = (*host)(nil)

func newHost(ctx context.Context, _ runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
	plugin, err := plugins.NewInTreeRegistry()[names.NodeResourcesFit](ctx, &config.NodeResourcesFitArgs{
		ScoringStrategy: &config.ScoringStrategy{Type: config.LeastAllocated, Resources: []config.ResourceSpec{{Name: "cpu", Weight: 1}}},
	}, handle)
	if err != nil {
		return nil, fmt.Errorf("make %s: %w", names.NodeResourcesFit, err)
	}
	fit, ok := plugin.(*noderesources.Fit)
	if !ok {
		return nil, fmt.Errorf("%s is a %T", names.NodeResourcesFit, plugin)
	}
	return &host{fit: fit, shares: podshare.Reader{Nano: true}.Resources()}, nil
}

func (h *host) Name() string { return hostName }

// PreFilter notes what pod asks of the host.
func (h *host) PreFilter(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	if !(podshare.Reader{Nano: true}).Asks(pod) {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	return h.fit.PreFilter(ctx, state, h.withoutShares(pod), nodes)
}

func (h *host) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// withoutShares is pod as far as NodeResourcesFit looks at it.
func (h *host) withoutShares(pod *corev1.Pod) *corev1.Pod {
	out := *pod
	out.Spec.InitContainers = h.strip(pod.Spec.InitContainers)
	out.Spec.Containers = h.strip(pod.Spec.Containers)
	return &out
}

func (h *host) strip(containers []corev1.Container) []corev1.Container {
	out := make([]corev1.Container, len(containers))
	for i, c := range containers {
		requests := make(corev1.ResourceList, len(c.Resources.Requests))
		for name, amount := range c.Resources.Requests {
			requests[name] = amount
		}
		for _, name := range h.shares {
			delete(requests, name)
		}
		c.Resources.Requests = requests
		out[i] = c
	}
	return out
}
