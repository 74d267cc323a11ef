// Package clusterview is what a cluster's objects say of cards and shares at one
// moment: nodes with what is taken of their cards, pods with where they lie, and why a
// pod waits. It is pure functions over objects that somebody else has read, and decides
// by the same internal/placement and internal/podshare as the scheduler. What pods use
// of their shares it cannot know: no object says so.
package clusterview

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/qgpu-project/qgpu/internal/inventory"
	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/podshare"
	"github.com/qgpu-project/qgpu/internal/share"
)

// Objects is what the API server has: all nodes, inventories and pods.
type Objects struct {
	Nodes       []corev1.Node
	Inventories []inventory.CardInventory
	Pods        []corev1.Pod
	// Handler is the runtime handler that a node must have, or empty where it is not
	// to be checked.
	Handler string
	Reader  podshare.Reader
}

// View is Objects put together, in the order of names.
type View struct {
	Nodes []Node // with cards, or labelled as such
	Pods  []Pod  // that ask for a share, or hold one
}

// Node is a node with its cards and what is taken of them.
type Node struct {
	placement.Node
	Object    *corev1.Node
	Inventory *inventory.CardInventory // nil: no agent has written one
	// Problems is why its cards serve nobody, or not as meant.
	Problems []string
	free     corev1.ResourceList // of everything else, by name
}

// Pod is a pod that has to do with shares.
type Pod struct {
	Object    *corev1.Pod
	Request   *placement.Request  // nil: it cannot be read
	Placement *podshare.Placement // nil: it has none that can be read
	Problem   string              // why one of them cannot be read
}

// holds reports whether p takes room on its node.
func (p *Pod) holds() bool {
	return p.Request != nil && p.Placement != nil && !podshare.Terminal(p.Object)
}

// Of puts objects together.
func Of(o Objects) *View {
	v := &View{}
	inventories := make(map[string]*inventory.CardInventory, len(o.Inventories))
	for i := range o.Inventories {
		inventories[o.Inventories[i].Name] = &o.Inventories[i]
	}
	for i := range o.Nodes {
		n := &o.Nodes[i]
		inv := inventories[n.Name]
		if inv != nil || n.Labels[podshare.EnableLabel] == enabled {
			v.Nodes = append(v.Nodes, node(n, inv, o.Handler))
		}
	}
	slices.SortFunc(v.Nodes, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	for i := range o.Pods {
		p := &o.Pods[i]
		v.take(p)
		if _, placed := p.Annotations[podshare.PlacementNote]; placed || o.Reader.Asks(p) {
			v.add(readPod(p, o.Reader))
		}
	}
	slices.SortFunc(v.Pods, func(a, b Pod) int {
		return cmp.Or(cmp.Compare(a.Object.Namespace, b.Object.Namespace), cmp.Compare(a.Object.Name, b.Object.Name))
	})
	return v
}

// Node is the node of that name, or nil.
func (v *View) Node(name string) *Node {
	i, found := slices.BinarySearchFunc(v.Nodes, name, func(n Node, name string) int { return cmp.Compare(n.Name, name) })
	if !found {
		return nil
	}
	return &v.Nodes[i]
}

// Pod is the pod of that name, or nil.
func (v *View) Pod(namespace, name string) *Pod {
	i := slices.IndexFunc(v.Pods, func(p Pod) bool { return p.Object.Namespace == namespace && p.Object.Name == name })
	if i < 0 {
		return nil
	}
	return &v.Pods[i]
}

// On lists the pods that hold room on a node.
func (v *View) On(node string) []*Pod {
	var on []*Pod
	for i := range v.Pods {
		if p := &v.Pods[i]; p.holds() && p.Placement.Node == node {
			on = append(on, p)
		}
	}
	return on
}

const enabled = "enable" // the value of podshare.EnableLabel

func node(object *corev1.Node, inv *inventory.CardInventory, handler string) Node {
	n := Node{Object: object, Inventory: inv, free: object.Status.Allocatable.DeepCopy()}
	n.Name = object.Name
	policy, err := share.ParsePolicy(cmp.Or(object.Labels[podshare.PolicyLabel], string(share.BestEffort)))
	if err != nil {
		policy = share.BestEffort
		n.Problems = append(n.Problems, fmt.Sprintf("label %s: %v", podshare.PolicyLabel, err))
	}
	n.Policy = policy
	n.CPU = object.Status.Allocatable.Cpu().MilliValue()
	n.FreeCPU = n.CPU
	n.Problems = append(n.Problems, problems(object, inv, handler)...)
	if inv == nil {
		return n
	}
	for _, c := range inv.Cards {
		n.Cards = append(n.Cards, placement.Card{
			Index: c.Index, UUID: c.UUID, Model: c.Model, Unhealthy: c.Unhealthy, Memory: share.Memory(c.MemoryMiB) * share.MiB,
		})
	}
	return n
}

func problems(object *corev1.Node, inv *inventory.CardInventory, handler string) []string {
	var list []string
	if object.Labels[podshare.EnableLabel] != enabled {
		list = append(list, fmt.Sprintf("label %s=%s is missing, so no agent looks after it", podshare.EnableLabel, enabled))
	} else if inv == nil {
		list = append(list, "its agent has not said which cards it has; see the agent's log")
	}
	if inv != nil && len(inv.Cards) == 0 {
		list = append(list, "it has no card")
	}
	for _, c := range object.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
			list = append(list, "it is not ready: "+c.Message)
		}
	}
	if object.Spec.Unschedulable {
		list = append(list, "it is cordoned")
	}
	handlers := object.Status.RuntimeHandlers
	if handler != "" && len(handlers) > 0 && !slices.ContainsFunc(handlers, func(h corev1.NodeRuntimeHandler) bool { return h.Name == handler }) {
		list = append(list, fmt.Sprintf("its container runtime has no handler %q; restart it so that it reads qGPU's drop-in", handler))
	}
	return list
}

func readPod(object *corev1.Pod, reader podshare.Reader) Pod {
	p := Pod{Object: object}
	var err error
	if p.Request, err = reader.Request(object); err != nil {
		p.Problem = err.Error()
		p.Request = nil
	}
	if _, placed := object.Annotations[podshare.PlacementNote]; !placed {
		return p
	}
	if p.Placement, err = podshare.Of(object); err == nil && p.Request != nil {
		err = p.Placement.Check(p.Request, object.Spec.NodeName)
	}
	if err != nil {
		p.Problem = err.Error()
		p.Placement = nil
	}
	return p
}

// add takes a pod into v, and what it holds off its node's cards.
func (v *View) add(p Pod) {
	v.Pods = append(v.Pods, p)
	if !p.holds() {
		return
	}
	if n := v.Node(p.Placement.Node); n != nil {
		n.Take(p.Request, p.Placement.Containers)
	}
}

// take takes what a pod requests of everything but cards off its node.
func (v *View) take(p *corev1.Pod) {
	n := v.Node(p.Spec.NodeName)
	if n == nil || podshare.Terminal(p) {
		return
	}
	requests := resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})
	n.FreeCPU -= requests.Cpu().MilliValue()
	for name, q := range requests {
		if free, ok := n.free[name]; ok {
			free.Sub(q)
			n.free[name] = free
		}
	}
	if pods, ok := n.free[corev1.ResourcePods]; ok {
		pods.Sub(one)
		n.free[corev1.ResourcePods] = pods
	}
}
