package clusterview

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/qgpu-project/qgpu/internal/inventory"
	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/podshare"
	"github.com/qgpu-project/qgpu/internal/share"
)

// cluster builds objects for the tests.
type cluster struct{ Objects }

// node adds a node with cards of 15 GiB.
func (c *cluster) node(name string, cards int, changes ...func(*corev1.Node)) *cluster {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{podshare.EnableLabel: enabled}}}
	n.Status.Allocatable = corev1.ResourceList{
		"cpu": resource.MustParse("8"), "memory": resource.MustParse("32Gi"), "pods": resource.MustParse("110"),
		podshare.Core: *resource.NewQuantity(int64(100*cards), resource.DecimalSI), podshare.Memory: *resource.NewQuantity(int64(15*cards), resource.DecimalSI),
		podshare.CoreGreedy: *resource.NewQuantity(int64(1600*cards), resource.DecimalSI),
	}
	inv := inventory.CardInventory{ObjectMeta: metav1.ObjectMeta{Name: name}, Driver: "simulated", DriverVersion: "535.261.03"}
	for i := range cards {
		inv.Cards = append(inv.Cards, inventory.Card{Index: i, UUID: uuid(name, i), Model: "Tesla T4", MemoryMiB: 15 << 10})
	}
	for _, change := range changes {
		change(&n)
	}
	c.Nodes = append(c.Nodes, n)
	c.Inventories = append(c.Inventories, inv)
	return c
}

func uuid(node string, card int) string { return fmt.Sprintf("GPU-%s-%d", node, card) }

// pod adds a waiting pod of one container.
func (c *cluster) pod(name string, limits corev1.ResourceList, changes ...func(*corev1.Pod)) *cluster {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Annotations: map[string]string{}}}
	p.Spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Limits: limits, Requests: limits}}}
	p.Status.Phase = corev1.PodPending
	for _, change := range changes {
		change(&p)
	}
	c.Pods = append(c.Pods, p)
	return c
}

// placed adds a running pod on one card of a node.
func (c *cluster) placed(t *testing.T, name, node string, card, core, memory int) *cluster {
	t.Helper()
	placed := podshare.Placement{Node: node, Policy: share.BestEffort, Containers: placement.Assignment{
		"c": {{Index: card, UUID: uuid(node, card), Core: core, Memory: share.Memory(memory) * share.GiB}},
	}}
	note, err := placed.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return c.pod(name, of(core, memory), func(p *corev1.Pod) {
		p.Annotations[podshare.PlacementNote] = note
		p.Spec.NodeName = node
		p.Status.Phase = corev1.PodRunning
	})
}

func of(core, memory int) corev1.ResourceList {
	list := corev1.ResourceList{podshare.Core: *resource.NewQuantity(int64(core), resource.DecimalSI)}
	if memory > 0 {
		list[podshare.Memory] = *resource.NewQuantity(int64(memory), resource.DecimalSI)
	}
	return list
}

func TestOf(t *testing.T) {
	c := new(cluster).node("b", 1).node("a", 2, func(n *corev1.Node) { n.Labels[podshare.PolicyLabel] = "fs" })
	c.Nodes = append(c.Nodes, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "plain"}})
	c.placed(t, "p", "a", 1, 30, 5).placed(t, "done", "a", 1, 30, 5).pod("w", of(10, 1))
	c.Pods[1].Status.Phase = corev1.PodSucceeded
	v := Of(c.Objects)
	if len(v.Nodes) != 2 || v.Nodes[0].Name != "a" || v.Nodes[1].Name != "b" {
		t.Fatalf("nodes %v, want a and b", v.Nodes)
	}
	a := v.Node("a")
	if a.Policy != share.FixedShare || a.Cards[1].Core != 30 || a.Cards[1].Taken != 5*share.GiB || a.Cards[1].Tenants != 1 || a.Cards[0].Tenants != 0 {
		t.Errorf("node a: %+v, want the running pod on card 1 alone", a.Node)
	}
	if len(v.Pods) != 3 || v.Pod("default", "w") == nil || v.Pod("default", "x") != nil {
		t.Errorf("pods %v", v.Pods)
	}
	if on := v.On("a"); len(on) != 1 || on[0].Object.Name != "p" {
		t.Errorf("pods on a: %v, want p", on)
	}
}

// A placement that does not fit its pod takes nothing and is told.
func TestForgedPlacement(t *testing.T) {
	c := new(cluster).node("a", 1).placed(t, "p", "a", 0, 30, 5)
	c.Pods[0].Spec.Containers[0].Resources.Limits[podshare.Memory] = resource.MustParse("2")
	c.Pods[0].Spec.Containers[0].Resources.Requests = nil
	v := Of(c.Objects)
	if p := v.Pods[0]; p.Placement != nil || !strings.Contains(p.Problem, "memory 5Gi") {
		t.Errorf("placement %v, problem %q, want the difference", p.Placement, p.Problem)
	}
	if v.Nodes[0].Cards[0].Tenants != 0 {
		t.Error("the placement was counted")
	}
}

func TestProblems(t *testing.T) {
	tests := []struct {
		name   string
		change func(*corev1.Node, *inventory.CardInventory)
		want   string
	}{
		{"label", func(n *corev1.Node, _ *inventory.CardInventory) { n.Labels = nil }, "label qgpu-device-enable=enable is missing"},
		{"policy", func(n *corev1.Node, _ *inventory.CardInventory) { n.Labels[podshare.PolicyLabel] = "fair" }, `policy "fair" is unknown`},
		{"cordoned", func(n *corev1.Node, _ *inventory.CardInventory) { n.Spec.Unschedulable = true }, "cordoned"},
		{"no card", func(_ *corev1.Node, i *inventory.CardInventory) { i.Cards = nil }, "no card"},
		{"handler", func(n *corev1.Node, _ *inventory.CardInventory) {
			n.Status.RuntimeHandlers = []corev1.NodeRuntimeHandler{{Name: "runc"}}
		}, `has no handler "qgpu"`},
		{"not ready", func(n *corev1.Node, _ *inventory.CardInventory) {
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Message: "kubelet stopped"}}
		}, "not ready: kubelet stopped"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := new(cluster).node("a", 1)
			c.Handler = "qgpu"
			tt.change(&c.Nodes[0], &c.Inventories[0])
			if got := Of(c.Objects).Nodes[0].Problems; len(got) != 1 || !strings.Contains(got[0], tt.want) {
				t.Errorf("problems %q, want one with %q", got, tt.want)
			}
		})
	}
	c := new(cluster).node("a", 1)
	c.Inventories = nil
	if got := Of(c.Objects).Nodes[0].Problems; len(got) != 1 || !strings.Contains(got[0], "agent") {
		t.Errorf("without an inventory: %q", got)
	}
}

func TestExplain(t *testing.T) {
	full := func(c *cluster) *cluster {
		return c.placed(t, "p0", "a", 0, 60, 5).placed(t, "p1", "a", 1, 20, 10)
	}
	tests := []struct {
		name    string
		cluster *cluster
		limits  corev1.ResourceList
		change  func(*corev1.Pod)
		cards   []string // what node a's cards say
		reasons []string // what node a says
		would   []string
	}{
		{
			name: "memory and core", cluster: full(new(cluster).node("a", 2)), limits: of(50, 8),
			cards: []string{"has 40 % of core free, and 50 % is asked for", "has 5Gi of 15Gi free, and 8Gi is asked for"},
			would: []string{
				"5 GiB of memory instead of 8Gi would fit, on node a",
				"a core of 40 instead of 50 would fit, on node a",
				"the end of pod default/p0 would make room, on node a",
				"the end of pod default/p1 would make room, on node a",
			},
		},
		{
			name: "whole cards", cluster: full(new(cluster).node("a", 3)), limits: of(200, 0),
			cards: []string{"has 1 tenant(s), and a whole card is asked for", "has 1 tenant(s), and a whole card is asked for", "has room, and more cards are asked for"},
			would: []string{
				"a core of 100 instead of 200 would fit, on node a",
				"the end of pod default/p0 would make room, on node a",
				"the end of pod default/p1 would make room, on node a",
			},
		},
		{
			name: "never", cluster: new(cluster).node("a", 1), limits: of(50, 16),
			cards:   []string{"has 15Gi of 15Gi free, and 16Gi is asked for"},
			reasons: []string{"it has 15 of " + podshare.Memory + " in all, and 16 is asked for"},
		},
		{
			name: "taint", cluster: new(cluster).node("a", 1, func(n *corev1.Node) {
				n.Spec.Taints = []corev1.Taint{{Key: "team", Value: "x", Effect: corev1.TaintEffectNoSchedule}}
			}), limits: of(50, 5),
			reasons: []string{"it has taint team=x:NoSchedule, which the pod does not tolerate", "its cards would have room"},
			would:   []string{"node a has room on its cards, but it has taint team=x:NoSchedule, which the pod does not tolerate"},
		},
		{
			name: "selector", cluster: new(cluster).node("a", 1), limits: of(50, 5),
			change:  func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"zone": "1"} },
			reasons: []string{"its labels are not those that the pod's nodeSelector or affinity wants", "its cards would have room"},
			would:   []string{"node a has room on its cards, but its labels are not those that the pod's nodeSelector or affinity wants"},
		},
		{
			name: "cpu", cluster: new(cluster).node("a", 1), limits: of(50, 5),
			change: func(p *corev1.Pod) {
				p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("9"), podshare.Core: resource.MustParse("50"), podshare.Memory: resource.MustParse("5")}
			},
			reasons: []string{"it has 8 of cpu free, and 9 is asked for", "its cards would have room"},
			would:   []string{"node a has room on its cards, but it has 8 of cpu free, and 9 is asked for"},
		},
		{
			name: "containers apart", cluster: new(cluster).node("a", 1), limits: of(50, 5),
			change: func(p *corev1.Pod) {
				p.Annotations[podshare.ContainerCardsNote] = "different"
				second := *p.Spec.Containers[0].DeepCopy()
				second.Name = "d"
				p.Spec.Containers = append(p.Spec.Containers, second)
			},
			reasons: []string{"there are not enough cards to give each container one of its own, as the pod wants"},
			would:   []string{"no node that the pod may run on could hold it, were it empty of other tenants; ask for less, or add cards"},
		},
		{
			name: "room", cluster: new(cluster).node("a", 1), limits: of(50, 5),
			would: []string{"1 node(s) have room now"},
		},
		{
			name: "no node", cluster: new(cluster), limits: of(50, 5),
			would: []string{"no node is labelled"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			change := tt.change
			if change == nil {
				change = func(*corev1.Pod) {}
			}
			v := Of(tt.cluster.pod("w", tt.limits, change).Objects)
			e := v.Explain(v.Pod("default", "w"))
			var cards, reasons []string
			for _, verdict := range e.Verdicts {
				reasons = append(reasons, verdict.Reasons...)
				for _, c := range verdict.Cards {
					cards = append(cards, c.Says)
				}
			}
			compare(t, "cards", cards, tt.cards)
			compare(t, "reasons", reasons, tt.reasons)
			if tt.would != nil {
				compare(t, "would", e.Would, tt.would)
			}
		})
	}
}

// compare wants the lines of got to begin with those of want.
func compare(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.EqualFunc(got, want, strings.HasPrefix) {
		t.Errorf("%s:\n  %s\nwant:\n  %s", what, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}
