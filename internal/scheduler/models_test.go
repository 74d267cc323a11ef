package scheduler

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/qgpu-project/qgpu/internal/placement/strategy"
	"github.com/qgpu-project/qgpu/internal/podshare"
	"github.com/qgpu-project/qgpu/internal/replay"
)

const (
	product = "nvidia.com/gpu.product"
	common  = "Tesla T4"
	scarce  = "NVIDIA A100-SXM4-40GB"
)

// join adds a node, or replaces it, with cards of a model that its label names.
func (c *cluster) join(name, model string, cards int) {
	c.label(name, model)
	list := t4s(name, cards)
	for i := range list {
		list[i].Model = model
	}
	c.report(name, list...)
}

// label makes the node another object with another label.
func (c *cluster) label(name, model string) {
	n := gpuNode(name)
	n.Labels[product] = strings.ReplaceAll(model, " ", "-")
	info := &nodeInfo{node: n}
	if old := c.nodes[name]; old != nil {
		info.pods = old.pods
	}
	c.nodes[name] = info
	c.touch(name)
}

// onModels makes pod one that must have one of models.
func onModels(pod *corev1.Pod, models ...string) *corev1.Pod {
	if len(models) == 0 {
		return pod
	}
	is := corev1.NodeSelectorRequirement{Key: product, Operator: corev1.NodeSelectorOpIn}
	for _, m := range models {
		is.Values = append(is.Values, strings.ReplaceAll(m, " ", "-"))
	}
	pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{is}}},
		},
	}}
	return pod
}

// twoModels is a cluster of four nodes with common cards and one with scarce ones, where
// frag, which knows nothing yet, takes the scarce one first.
func twoModels(t testing.TB) *cluster {
	args := Args{NodePlacement: strategy.Frag, CardPlacement: strategy.Frag}
	for args.Seed = 0; ; args.Seed++ {
		first := slices.MinFunc([]string{"a", "b", "c", "d", "s"}, func(a, b string) int { return cmp.Compare(args.Rank(a), args.Rank(b)) })
		if first == "s" {
			break
		}
	}
	c := newCluster(t, args)
	for _, name := range []string{"a", "b", "c", "d"} {
		c.join(name, common, 2)
	}
	c.join("s", scarce, 2)
	return c
}

// Once some pods have come that must have the scarce model, those that take any are kept
// off it; and it is theirs all the same where nothing else is left.
func TestAnyModelKeepsOffScarceOnes(t *testing.T) {
	for _, tt := range []struct {
		name  string
		wants []string // of every other pod that came before
		node  func(string) bool
	}{
		{"nobody needs it", nil, func(node string) bool { return node == "s" }},
		{"some need it", []string{scarce}, func(node string) bool { return node != "s" && node != "" }},
		{"some need either", []string{common, scarce}, func(node string) bool { return node == "s" }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := twoModels(t)
			for i := range 40 {
				pod := c.pod([2]int{100, 0})
				if i%2 == 0 {
					onModels(pod, tt.wants...)
				}
				c.filter(pod) // it comes, and goes again
			}
			if _, node, _ := c.choose(c.pod([2]int{100, 0})); !tt.node(node) {
				t.Errorf("a pod that takes any model is placed on %q", node)
			}
			if _, node, _ := c.choose(onModels(c.pod([2]int{100, 0}), scarce)); node != "s" {
				t.Errorf("a pod that must have the scarce model is placed on %q", node)
			}
			for range 10 {
				if node, status := c.schedule(c.pod([2]int{100, 0})); node == "" {
					t.Fatalf("a card is left, and a pod that takes any is refused: %v", status.Message())
				}
			}
		})
	}
}

// learnedModels is how many pods the book has learned of, by the models they must have.
func learnedModels(t testing.TB, c *cluster) map[string]float64 {
	t.Helper()
	data, err := json.Marshal(c.plugin.book)
	if err != nil {
		t.Fatal(err)
	}
	var saved struct {
		Shapes []struct {
			Models string
			Weight float64
		}
	}
	if err := json.Unmarshal(data, &saved); err != nil {
		t.Fatal(err)
	}
	weights := make(map[string]float64)
	for _, s := range saved.Shapes {
		weights[s.Models] += s.Weight
	}
	return weights
}

func TestModelsFollowTheCluster(t *testing.T) {
	const third = "Tesla V100"
	for _, tt := range []struct {
		name   string
		change func(c *cluster)
		want   string
		none   bool
	}{
		{"as it was", func(*cluster) {}, scarce, false},
		{"a node's label changes", func(c *cluster) { c.label("s", common) }, "", true},
		{"another node gets the label", func(c *cluster) { c.label("a", scarce) }, "", false},
		{"a node with another model comes", func(c *cluster) { c.join("v", third, 1) }, scarce, false},
		{"a node with the label and another model comes", func(c *cluster) {
			c.join("v", third, 1)
			c.label("v", scarce)
		}, scarce + "|" + third, false},
		{"the cards become others", func(c *cluster) {
			cards := t4s("s", 2)
			cards[0].Model, cards[1].Model = third, third
			c.report("s", cards...)
		}, third, false},
		{"its agent says nothing any more", func(c *cluster) { c.plugin.inventories.set("s", nil) }, "", true},
		{"the node goes for good", func(c *cluster) {
			delete(c.nodes, "s")
			for range 2 * forgetAfter {
				c.plugin.view.sync(c.snapshot())
			}
		}, "", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := twoModels(t)
			c.filter(onModels(c.pod([2]int{30, 5}), scarce))
			tt.change(c)
			pod := onModels(c.pod([2]int{30, 5}), scarce)
			c.filter(pod)
			got, ok := c.plugin.view.models.Of(pod, c.plugin.view.relabelled, c.plugin.view.cards())
			if joined := strings.Join(got, "|"); joined != tt.want || ok == tt.none {
				t.Errorf("models = %q, %v; want %q, %v", joined, ok, tt.want, !tt.none)
			}
			want := map[string]float64{scarce: 1}
			if !tt.none {
				want[tt.want]++
			}
			if weights := learnedModels(t, c); !reflect.DeepEqual(weights, want) {
				t.Errorf("learned %v, want %v", weights, want)
			}
		})
	}
}

// What makes no difference to models does not have them found anew.
func TestWhatLeavesModelsAlone(t *testing.T) {
	c := twoModels(t)
	c.mustSchedule(onModels(c.pod([2]int{30, 5}), scarce))
	was := c.plugin.view.relabelled
	c.mustSchedule(onModels(c.pod([2]int{30, 5}), scarce))
	cards := t4s("a", 2)
	cards[1].Unhealthy = "Xid 79"
	c.report("a", cards...)
	touched := c.nodes["b"].node.DeepCopy()
	touched.ResourceVersion = "2"
	c.nodes["b"].node = touched
	c.touch("b")
	c.mustSchedule(onModels(c.pod([2]int{30, 5}), scarce))
	if now := c.plugin.view.relabelled; now != was {
		t.Errorf("labels and models are said to have changed %d times", now-was)
	}
}

// A pod that no node would do for teaches nothing before one comes, and then once.
func TestNoNodeTeachesNothing(t *testing.T) {
	const third = "Tesla V100"
	c := twoModels(t)
	pod := onModels(c.pod([2]int{30, 5}), third)
	for range 3 {
		c.filter(pod)
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse}}
	}
	if weights := learnedModels(t, c); len(weights) != 0 {
		t.Errorf("learned %v, want nothing", weights)
	}
	// The node that comes can be used at once, whatever was found out before.
	c.join("v", third, 1)
	if node, status := c.schedule(pod); node != "v" {
		t.Errorf("placed on %q: %v", node, status.Message())
	}
	c.filter(pod)
	if weights := learnedModels(t, c); !reflect.DeepEqual(weights, map[string]float64{third: 1}) {
		t.Errorf("learned %v, want the pod once", weights)
	}
}

// A node that the pod may not use is refused by the plugin that knows why, which is asked
// again when the node's labels change: QGPU says nothing of its model.
func TestModelsAreNoFilter(t *testing.T) {
	c := twoModels(t)
	_, fit, why := c.filter(onModels(c.pod([2]int{30, 5}), scarce))
	if len(fit) != 5 || len(why) != 0 {
		t.Errorf("%d nodes fit, and others say %v; want all 5", len(fit), why)
	}
}

// A new leader without anything to go on learns from the pods that are there, with the
// models that they must have.
func TestNewLeaderLearnsModels(t *testing.T) {
	c := twoModels(t)
	for _, pod := range []*corev1.Pod{onModels(c.pod([2]int{30, 5}), scarce), onModels(c.pod([2]int{30, 5}), common), c.pod([2]int{30, 5})} {
		c.mustSchedule(pod)
		c.confirm(pod.UID)
	}
	want := learnedModels(t, c)
	c.restart()
	for i := range 2 { // cards are reported only after the scheduler has begun
		if i == 0 {
			c.plugin.inventories = &inventories{}
			c.plugin.view.inventories = c.plugin.inventories
		} else {
			for _, name := range []string{"a", "b", "c", "d"} {
				c.join(name, common, 2)
			}
			c.join("s", scarce, 2)
		}
		c.plugin.view.sync(c.snapshot())
		c.plugin.view.sync(c.snapshot())
	}
	if got := learnedModels(t, c); !reflect.DeepEqual(got, want) || len(want) != 3 {
		t.Errorf("learned %v, and the one before %v", got, want)
	}
}

// With models the scheduler does what the simulator does, down to the card.
func TestModelsAgreeWithSimulator(t *testing.T) {
	args := Args{NodePlacement: strategy.Frag, CardPlacement: strategy.Frag}
	trace := &replay.Trace{}
	for i := range 3 * enough / 2 {
		n := replay.Node{Name: fmt.Sprint("node-", i), Model: common, Cards: 1 + i%4, CardMemoryMiB: 15 << 10}
		if i%8 == 0 {
			n.Model, n.CardMemoryMiB = scarce, 39<<10
		}
		trace.Nodes = append(trace.Nodes, n)
	}
	slices.SortFunc(trace.Nodes, func(a, b replay.Node) int { return cmp.Compare(args.Rank(a.Name), args.Rank(b.Name)) })
	random := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		p := replay.Pod{Cards: 1, CoreMilli: 50 * int64(1+random.IntN(19)), CardMemoryMiB: 1 << 10 * int64(1+random.IntN(14))}
		if random.IntN(3) == 0 {
			p.Cards, p.CoreMilli, p.CardMemoryMiB = 1+random.IntN(2), 1000, 0
		}
		if random.IntN(4) == 0 {
			p.Models = []string{scarce}
		}
		trace.Pods = append(trace.Pods, p)
	}
	c := newCluster(t, args)
	for _, n := range trace.Nodes {
		c.join(n.Name, n.Model, n.Cards)
		cards := slices.Clone(c.plugin.inventories.get(n.Name).Cards)
		for i := range cards {
			cards[i].MemoryMiB = n.CardMemoryMiB
		}
		c.report(n.Name, cards...)
	}
	placed := 0
	for i, want := range replay.Sequence(trace, strategy.Frag) {
		p := &trace.Pods[i]
		pod := onModels(c.pod([2]int{int(p.CoreMilli) * p.Cards / 10, int(p.CardMemoryMiB >> 10)}), p.Models...)
		var got replay.Place
		if got.Node, _ = c.schedule(pod); got.Node != "" {
			placed++
			lies, err := podshare.Of(c.stored[pod.UID])
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range lies.Containers["c0"] {
				got.Cards = append(got.Cards, s.Index)
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("pod %d, %+v, lies on %+v, in the simulator on %+v", i, *p, got, want)
		}
	}
	if placed < 100 || placed == len(trace.Pods) {
		t.Errorf("%d of %d pods were placed; want many, and not all", placed, len(trace.Pods))
	}
}
