package scheduler

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/qgpu-project/qgpu/internal/inventory"
	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/placement/strategy"
	"github.com/qgpu-project/qgpu/internal/podshare"
	"github.com/qgpu-project/qgpu/internal/share"
)

// nodeState is a node's cards with what its pods have of them. It is a function of the
// scheduler's own record of the node (which pods are there), of the placements these
// pods carry or were just given, and of the inventory; nothing else is remembered.
type nodeState struct {
	placement.Node
	problem  string // why nothing can be placed here, however much is free; empty: nothing
	holdings map[types.UID]*holding
}

// observer makes nodeStates.
type observer struct {
	args   Args
	reader podshare.Reader
	ledger *ledger
	book   *strategy.Book
}

// observe makes into the state of the node that info tells of. It uses into's memory,
// and takes over what into knew of the same pods. settled says that info is the
// scheduler's latest word, so that what it shows need be kept nowhere else.
func (o *observer) observe(info fwk.NodeInfo, inv *inventory.CardInventory, into *nodeState, settled bool) {
	node := info.Node()
	before, cards := into.holdings, into.Cards[:0]
	*into = nodeState{Node: placement.Node{
		Name:    node.Name,
		CPU:     info.GetAllocatable().GetMilliCPU(),
		FreeCPU: info.GetAllocatable().GetMilliCPU() - info.GetRequested().GetMilliCPU(),
	}}
	into.Policy, into.problem = readNode(node, inv)
	if into.problem == "" && info.GetAllocatable().GetScalarResources()[podshare.Core] == 0 {
		into.problem = "qgpu-agent has not advertised the cards" // the kubelet would refuse the pod
	}
	if inv != nil {
		for _, c := range inv.Cards {
			cards = append(cards, placement.Card{
				Index: c.Index, UUID: c.UUID, Model: c.Model, Unhealthy: c.Unhealthy,
				Memory: share.Memory(c.MemoryMiB) * share.MiB,
			})
		}
	}
	into.Cards = cards
	var nominated []*corev1.Pod
	for _, info := range info.GetPods() {
		pod := info.GetPod()
		if pod.Spec.NodeName == "" {
			nominated = append(nominated, pod)
			continue
		}
		h := o.holding(pod, before[pod.UID], settled)
		if h == nil {
			continue
		}
		if into.holdings == nil {
			into.holdings = make(map[types.UID]*holding)
		}
		into.holdings[pod.UID] = h
		into.Take(h.request, h.placement.Containers)
	}
	into.closeForeign()
	for _, pod := range nominated {
		o.takeNominated(into, pod)
	}
}

// leaveCPU makes n not fail r for want of CPU: whether there is enough is for the
// scheduler itself to say.
func (n *nodeState) leaveCPU(r *placement.Request) {
	if r.CPU > n.FreeCPU {
		n.CPU, n.FreeCPU = 0, 0
	}
}

// readNode reads what a node's labels say, and why it has no cards for anyone.
func readNode(node *corev1.Node, inv *inventory.CardInventory) (policy share.Policy, problem string) {
	policy = share.BestEffort
	if label := node.Labels[podshare.PolicyLabel]; label != "" {
		var err error
		if policy, err = share.ParsePolicy(label); err != nil {
			return policy, fmt.Sprintf("label %s is wrong: %v", podshare.PolicyLabel, err)
		}
	}
	switch {
	case node.Labels[podshare.EnableLabel] != "enable":
		return policy, "label " + podshare.EnableLabel + "=enable is missing"
	case inv == nil:
		return policy, "qgpu-agent has not reported the cards"
	case len(inv.Cards) == 0:
		return policy, "there is no card"
	}
	return policy, ""
}

// holding is what pod, which has its node, has of the cards; nil: nothing. A pod whose
// placement is for another node, or cannot be read, has nothing: the node's agent
// refuses it. So has a pod that was put on the node without being placed.
func (o *observer) holding(pod *corev1.Pod, known *holding, settled bool) *holding {
	note, placed := pod.Annotations[podshare.PlacementNote]
	if !placed {
		return o.ledger.get(pod.UID)
	}
	if known != nil && known.note == note {
		return known
	}
	if settled {
		o.ledger.drop(pod.UID)
	}
	p, err := podshare.Decode(note)
	if err != nil || p.Node != pod.Spec.NodeName {
		return nil
	}
	return &holding{note: note, request: o.requestOf(pod, p), placement: p}
}

// requestOf is what a placed pod asked for: its containers' stages matter. Where pod and
// placement do not agree, all containers count as running at one time.
func (o *observer) requestOf(pod *corev1.Pod, p *podshare.Placement) *placement.Request {
	if r, err := o.reader.Request(pod); err == nil && p.Check(r, p.Node) == nil {
		return r
	}
	r := &placement.Request{}
	for _, name := range slices.Sorted(maps.Keys(p.Containers)) {
		r.Containers = append(r.Containers, placement.Container{Name: name})
	}
	return r
}

// closeForeign keeps new tenants off cards whose tenants live under another policy than
// the node's present one, until these have gone: a card is shared by one policy.
func (n *nodeState) closeForeign() {
	for _, h := range n.holdings {
		if h.placement.Policy == n.Policy {
			continue
		}
		for _, lies := range h.placement.Containers {
			for _, slice := range lies {
				for i := range n.Cards {
					if c := &n.Cards[i]; c.UUID == slice.UUID && c.Unhealthy == "" {
						c.Unhealthy = fmt.Sprintf("tenants live under policy %s", h.placement.Policy)
					}
				}
			}
		}
	}
}

// takeNominated takes room for a pod that is to come once others, which it preempts,
// have gone.
func (o *observer) takeNominated(n *nodeState, pod *corev1.Pod) {
	r, err := o.reader.Request(pod)
	if err != nil || r == nil {
		return
	}
	c, err := o.args.choose(o.book, pod, r.Containers[0].Share.Class)
	if err != nil {
		return
	}
	var p placement.Placer
	r.CPU = 0 // the scheduler counts it itself
	if p.Place(&n.Node, r, c.card.Card) {
		n.Take(r, p.Assignment())
	}
}
