package scheduler

import (
	"cmp"
	"context"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	resourcehelper "k8s.io/component-helpers/resource"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

// enough is how many nodes the scheduler looks at for one pod. To ask all plugins about
// thousands, of which one can win, takes far longer than to rate them.
const enough = 32

// narrow is the best nodes for the pod of c, so far as the plugin can tell: the one that
// the scheduler would choose among all nodes is among them, unless other plugins refuse
// each. It is nil where all are to be looked at: where no node will do, so that each says
// why, where it takes other plugins to tell, and where the best were in vain before.
func (p *Plugin) narrow(ctx context.Context, pod *corev1.Pod, c *cycle, nodes []fwk.NodeInfo) *fwk.PreFilterResult {
	if p.wide.take(pod.UID) || c.nowhere || len(nodes) <= enough || dependsOnOthers(pod) {
		return nil
	}
	host, serving := newHostRequest(ctx, pod), p.view.serving(c.models)
	best := make([]candidate, 0, enough+1) // the best first
	keeping := c.kept.Any()
	for i, r := range p.view.present {
		e := &c.shape.byID[r.id]
		if !e.judged || e.status != nil || keeping && p.keeps(c, r) {
			continue
		}
		one := candidate{score: e.score, rank: r.rank, at: i}
		if len(best) == enough && compare(one, best[enough-1]) > 0 || serving != nil && !serving[r.kind] || !host.fits(nodes[i]) {
			continue
		}
		place, _ := slices.BinarySearchFunc(best, one, compare)
		best = slices.Insert(best, place, one)
		best = best[:min(len(best), enough)]
	}
	if len(best) == 0 {
		return nil
	}
	names := make(sets.Set[string], len(best))
	for _, one := range best {
		names.Insert(nodes[one.at].Node().Name)
	}
	c.narrowed = true
	return &fwk.PreFilterResult{NodeNames: names}
}

// PostFilter has the pod tried again at once, on all nodes, if it was tried on the best
// alone. It must come before any other, so that nothing is preempted in between.
func (p *Plugin) PostFilter(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, _ fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	if c := p.cycleOf(state); c == nil || !c.narrowed {
		return nil, fwk.NewStatus(fwk.Unschedulable)
	}
	p.wide.put(pod.UID)
	p.handle.Activate(klog.FromContext(ctx), map[string]*corev1.Pod{pod.Namespace + "/" + pod.Name: pod})
	return nil, fwk.NewStatus(fwk.Success, "the nodes with the best cards will not do; all are tried next")
}

// dependsOnOthers reports whether a node suits pod depends on more than the node's own
// resources, labels and taints.
func dependsOnOthers(pod *corev1.Pod) bool {
	if a := pod.Spec.Affinity; a != nil && (a.PodAffinity != nil || a.PodAntiAffinity != nil) {
		return true
	}
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim != nil || v.Ephemeral != nil {
			return true
		}
	}
	for _, c := range pod.Spec.Containers {
		for _, port := range c.Ports {
			if port.HostPort != 0 {
				return true
			}
		}
	}
	return len(pod.Spec.TopologySpreadConstraints)+len(pod.Spec.ResourceClaims) > 0 || pod.Status.NominatedNodeName != ""
}

// hostRequest is what a pod asks of a node but cards, as far as most pods go: what is not
// in here other plugins see.
type hostRequest struct {
	logger      klog.Logger
	cpu, memory int64 // in thousandths, in bytes
	affinity    nodeaffinity.RequiredNodeAffinity
	tolerations []corev1.Toleration
}

func newHostRequest(ctx context.Context, pod *corev1.Pod) hostRequest {
	amounts := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	return hostRequest{
		logger: klog.FromContext(ctx),
		cpu:    amounts.Cpu().MilliValue(), memory: amounts.Memory().Value(),
		affinity: nodeaffinity.GetRequiredNodeAffinity(pod), tolerations: pod.Spec.Tolerations,
	}
}

func (h *hostRequest) fits(info fwk.NodeInfo) bool {
	has, used, node := info.GetAllocatable(), info.GetRequested(), info.Node()
	if len(info.GetPods()) >= has.GetAllowedPodNumber() ||
		h.cpu > has.GetMilliCPU()-used.GetMilliCPU() || h.memory > has.GetMemory()-used.GetMemory() {
		return false
	}
	if _, refused := corev1helpers.FindMatchingUntoleratedTaint(h.logger, node.Spec.Taints, h.tolerations, schedules, true); refused {
		return false
	}
	match, err := h.affinity.Match(node)
	return err == nil && match
}

// schedules reports whether a taint keeps pods from being scheduled.
func schedules(t *corev1.Taint) bool { return t.Effect != corev1.TaintEffectPreferNoSchedule }

// candidate is a node that fits.
type candidate struct {
	score int64
	rank  uint64
	at    int // its place in view.present
}

// compare orders candidates as NormalizeScore would choose.
func compare(a, b candidate) int {
	return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.rank, b.rank))
}

// pods is a set of pods by UID, for several goroutines.
type pods struct {
	mu   sync.Mutex
	uids sets.Set[types.UID]
}

func (s *pods) put(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.uids == nil {
		s.uids = sets.New[types.UID]()
	}
	s.uids.Insert(uid)
}

// take removes uid and reports whether it was there.
func (s *pods) take(uid types.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.uids.Has(uid)
	s.uids.Delete(uid)
	return found
}
