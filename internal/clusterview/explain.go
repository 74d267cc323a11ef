package clusterview

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/podshare"
	"github.com/qgpu-project/qgpu/internal/share"
)

// Explanation is why a pod waits, or where it lies.
type Explanation struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	Node      string    `json:"node,omitempty"` // empty: it waits
	Asks      []Ask     `json:"asks"`
	Says      []string  `json:"says,omitempty"` // what Kubernetes says of the pod
	Verdicts  []Verdict `json:"nodes,omitempty"`
	// Would is what would make it fit.
	Would []string `json:"would,omitempty"`
}

// Ask is what one container asks for, and where it lies.
type Ask struct {
	Container string            `json:"container"`
	Share     share.Share       `json:"share"`
	Slices    []placement.Slice `json:"slices,omitempty"`
}

// Verdict is what one node says to the pod.
type Verdict struct {
	Node string `json:"node"`
	// Fits: the node has room now. The scheduler takes it unless a plugin that this
	// program does not ask says no.
	Fits bool `json:"fits"`
	// Reasons concern the node as a whole.
	Reasons []string `json:"reasons,omitempty"`
	Cards   []Reason `json:"cards,omitempty"`
}

// Reason is what one card says.
type Reason struct {
	Card  int    `json:"card"`
	Says  string `json:"says"`
	Model string `json:"model"`
}

var one = resource.MustParse("1")

// Explain says why the pod waits, node by node and card by card, and what would make
// it fit.
func (v *View) Explain(p *Pod) *Explanation {
	e := &Explanation{Namespace: p.Object.Namespace, Name: p.Object.Name, Node: p.Object.Spec.NodeName, Says: says(p.Object)}
	if p.Problem != "" {
		e.Says = append(e.Says, p.Problem)
	}
	if p.Request == nil {
		return e
	}
	for _, c := range p.Request.Containers {
		ask := Ask{Container: c.Name, Share: c.Share}
		if p.Placement != nil {
			ask.Slices = p.Placement.Containers[c.Name]
		}
		e.Asks = append(e.Asks, ask)
	}
	if e.Node != "" {
		return e
	}
	var fits int
	for i := range v.Nodes {
		verdict := v.Nodes[i].verdict(p)
		if verdict.Fits {
			fits++
		}
		e.Verdicts = append(e.Verdicts, verdict)
	}
	switch {
	case len(v.Nodes) == 0:
		e.Would = []string{"no node is labelled qgpu-device-enable=enable; label those whose cards are to be shared"}
	case fits > 0:
		e.Would = []string{fmt.Sprintf("%d node(s) have room now: the pod is about to be placed, or something else holds it back, such as a scheduling gate, a volume, its affinity to other pods, or that the room is kept for larger pods for a while", fits)}
	default:
		e.Would = v.would(p)
	}
	return e
}

// says is what the pod's own status tells of why it does not run.
func says(pod *corev1.Pod) []string {
	var list []string
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status != corev1.ConditionTrue && c.Message != "" {
			list = append(list, c.Message)
		}
	}
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if w := c.State.Waiting; w != nil && w.Message != "" {
			list = append(list, fmt.Sprintf("container %q: %s", c.Name, w.Message))
		}
	}
	if len(pod.Spec.SchedulingGates) > 0 {
		list = append(list, fmt.Sprintf("scheduling gate %s is closed", pod.Spec.SchedulingGates[0].Name))
	}
	return list
}

func (n *Node) verdict(p *Pod) Verdict {
	verdict := Verdict{Node: n.Name, Reasons: slices.Concat(n.Problems, n.refusals(p.Object))}
	room := n.room(p.Request)
	verdict.Fits = room && len(verdict.Reasons) == 0
	if verdict.Fits {
		return verdict
	}
	if room {
		verdict.Reasons = append(verdict.Reasons, "its cards would have room")
		return verdict
	}
	verdict.Cards = n.cardReasons(p.Request)
	if len(n.Cards) > 0 && len(verdict.Cards) == 0 {
		verdict.Reasons = append(verdict.Reasons, n.together(p.Request))
	}
	return verdict
}

// room reports whether the node's cards can hold the request.
func (n *Node) room(r *placement.Request) bool {
	cards := n.Node
	cards.CPU = 0 // what lacks of the host is said with its resources
	return new(placement.Placer).Place(&cards, r, nil)
}

// refusals is why the node does not take the pod, whatever its cards have.
func (n *Node) refusals(pod *corev1.Pod) []string {
	var list []string
	if taint, found := corev1helpers.FindMatchingUntoleratedTaint(klog.Background(), n.Object.Spec.Taints, pod.Spec.Tolerations, func(t *corev1.Taint) bool {
		return t.Effect != corev1.TaintEffectPreferNoSchedule && t.Key != corev1.TaintNodeUnschedulable
	}, true); found {
		list = append(list, fmt.Sprintf("it has taint %s, which the pod does not tolerate", taint.ToString()))
	}
	if match, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(n.Object); err != nil || !match {
		list = append(list, "its labels are not those that the pod's nodeSelector or affinity wants")
	}
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	requests[corev1.ResourcePods] = one
	shares := podshare.Reader{Nano: true}.Resources()
	names := make([]string, 0, len(requests))
	for name := range requests {
		names = append(names, string(name))
	}
	slices.Sort(names)
	for _, name := range names {
		asked, free, word := requests[corev1.ResourceName(name)], n.free[corev1.ResourceName(name)], "free"
		if slices.Contains(shares, corev1.ResourceName(name)) {
			if n.Inventory == nil {
				continue
			}
			// Of what is free of these the cards tell more.
			free, word = n.Object.Status.Allocatable[corev1.ResourceName(name)], "in all"
		}
		if asked.Cmp(free) > 0 {
			list = append(list, fmt.Sprintf("it has %s of %s %s, and %s is asked for", free.String(), name, word, asked.String()))
		}
	}
	return list
}

// cardReasons is why no card of the node holds some container. It is empty where each
// container, alone, would find its cards.
func (n *Node) cardReasons(r *placement.Request) []Reason {
	for i := range r.Containers {
		k := &r.Containers[i]
		alone := placement.Request{Containers: []placement.Container{*k}, Models: r.Models}
		if n.room(&alone) {
			continue
		}
		var list []Reason
		for _, c := range n.Cards {
			says := "has room, and more cards are asked for"
			if err := c.Fit(part(c, k)); err != nil {
				says = err.Error()
			} else if len(r.Models) > 0 && !slices.Contains(r.Models, c.Model) {
				says = "is no " + strings.Join(r.Models, " or ")
			}
			if len(r.Containers) > 1 {
				says += fmt.Sprintf(" (container %q)", k.Name)
			}
			list = append(list, Reason{Card: c.Index, Says: says, Model: c.Model})
		}
		return list
	}
	return nil
}

// part is what k asks of card c.
func part(c placement.Card, k *placement.Container) share.Share {
	s := k.Share.PerCard()
	if k.Proportional && s.Core < share.Whole {
		s.Memory = c.Memory * share.Memory(s.Core) / share.Whole
	}
	return s
}

func (n *Node) together(r *placement.Request) string {
	switch r.Together {
	case placement.Same:
		return "no card holds all containers, and the pod wants them on the same"
	case placement.Different:
		return "there are not enough cards to give each container one of its own, as the pod wants"
	}
	return "each container alone would find its cards, but not all at one time"
}
