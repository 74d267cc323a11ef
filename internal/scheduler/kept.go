package scheduler

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/placement/frag"
	"github.com/qgpu-project/qgpu/internal/placement/strategy"
	"github.com/qgpu-project/qgpu/internal/share"
)

// kept says which room is kept for large pods from pod, whose containers are of class.
// Online pods need not wait for the sake of others, and what has priority might end
// others instead.
func (p *Plugin) kept(pod *corev1.Pod, class share.Class) frag.Kept {
	priority := pod.Spec.Priority != nil && *pod.Spec.Priority > 0
	if p.args.KeepRoom.Duration == 0 || p.args.NodePlacement != strategy.Frag || class == share.Online || priority {
		return frag.Kept{}
	}
	return p.book.Kept()
}

// keeps reports whether r is kept from the pod of c. What counts is how the node is, not
// how it would be without pods that another plugin tries to do without.
func (p *Plugin) keeps(c *cycle, r *record) bool {
	return r != nil && c.kept.Keeps(&r.Node, c.request) && c.began.Sub(r.freed) < p.args.KeepRoom.Duration
}

// keptStatus is why a node that is kept will not do. To end other pods would not help.
func keptStatus() *fwk.Status {
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "node(s) where cards were given back a short time ago and are kept for pods that need many")
}

// tenantsOf counts the tenants of all cards of n.
func tenantsOf(n *placement.Node) int {
	tenants := 0
	for i := range n.Cards {
		tenants += n.Cards[i].Tenants
	}
	return tenants
}

// now is the time, as the plugin's tests may set it.
func (v *view) now() time.Time {
	if v.clock != nil {
		return v.clock()
	}
	return time.Now()
}
