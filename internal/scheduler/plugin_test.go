package scheduler

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/podshare"
	"github.com/qgpu-project/qgpu/internal/share"
)

func oneNode(t testing.TB, cards int) *cluster {
	c := newCluster(t, Args{}, gpuNode("n1"))
	c.report("n1", t4s("n1", cards)...)
	return c
}

func TestPodGetsCardsInItsBinding(t *testing.T) {
	c := oneNode(t, 2)
	pod := c.pod([2]int{30, 5}, [2]int{0, 0}, [2]int{100, 0})
	node, status := c.schedule(pod)
	if node != "n1" {
		t.Fatalf("schedule = %q, %v", node, status)
	}
	bound := c.stored[pod.UID]
	p, err := podshare.Of(bound)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Check(mustRequest(t, pod), "n1"); err != nil {
		t.Errorf("the placement is not the pod's: %v", err)
	}
	if len(p.Containers) != 2 || p.Policy != share.BestEffort {
		t.Errorf("placement %s: want containers c0 and c2, and no c1, under best-effort", bound.Annotations[podshare.PlacementNote])
	}
	if p.Containers["c0"][0].UUID == p.Containers["c2"][0].UUID {
		t.Error("a whole card is shared")
	}
}

func mustRequest(t testing.TB, pod *corev1.Pod) *placement.Request {
	t.Helper()
	r, err := podshare.Reader{}.Request(pod)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestPodWithoutShareIsNoBusinessOfOurs(t *testing.T) {
	c, ctx := oneNode(t, 1), context.Background()
	pod, state := c.pod([2]int{0, 0}), &cycleState{}
	if _, s := c.plugin.PreFilter(ctx, state, pod, c.snapshot()); !s.IsSkip() {
		t.Errorf("PreFilter = %v, want Skip", s)
	}
	if s := c.plugin.PreScore(ctx, state, pod, c.snapshot()); !s.IsSkip() {
		t.Errorf("PreScore = %v, want Skip", s)
	}
	if s := c.plugin.Reserve(ctx, state, pod, "n1"); !s.IsSuccess() {
		t.Errorf("Reserve = %v", s)
	}
	if s := c.plugin.Bind(ctx, state, pod, "n1"); !s.IsSkip() {
		t.Errorf("Bind = %v, want Skip, so that the next plugin binds", s)
	}
}

func TestReasons(t *testing.T) {
	tests := []struct {
		name    string
		prepare func(c *cluster)
		asks    [][2]int
		code    fwk.Code
		want    string
	}{
		{"memory", fill(10, 12), [][2]int{{10, 5}}, fwk.Unschedulable, "2 card(s) lack memory: most free 3Gi of 15Gi, 5Gi asked"},
		{"core", fill(80, 1), [][2]int{{30, 5}}, fwk.Unschedulable, "2 card(s) lack core: most free 20%, 30% asked"},
		{"whole", fill(10, 1), [][2]int{{200, 0}}, fwk.Unschedulable, "2 card(s) are shared: 0 idle, 2 asked as a whole"},
		{"taken", func(c *cluster) { c.mustSchedule(c.pod([2]int{200, 0})) }, [][2]int{{10, 1}}, fwk.Unschedulable, "2 card(s) are taken as a whole"},
		{"too many cards", nil, [][2]int{{300, 0}}, fwk.Unschedulable, "there are 2 card(s) and 3 are asked for"},
		{"together", nil, [][2]int{{60, 1}, {60, 1}, {60, 1}}, fwk.Unschedulable, "room for each container and not for all at once"},
		{"unhealthy", func(c *cluster) {
			cards := t4s("n1", 2)
			cards[0].Unhealthy, cards[1].Unhealthy = "Xid 79", "Xid 79"
			c.report("n1", cards...)
		}, [][2]int{{10, 1}}, fwk.Unschedulable, "2 card(s) take nobody: Xid 79"},
		{"no inventory", func(c *cluster) { c.plugin.inventories.set("n1", nil) }, [][2]int{{10, 1}}, fwk.UnschedulableAndUnresolvable, "qgpu-agent has not reported"},
		{"not enabled", func(c *cluster) {
			c.nodes["n1"].node.Labels = nil
			c.touch("n1")
		}, [][2]int{{10, 1}}, fwk.UnschedulableAndUnresolvable, "qgpu-device-enable=enable is missing"},
		{"wrong policy", func(c *cluster) {
			c.nodes["n1"].node.Labels[podshare.PolicyLabel] = "fair"
			c.touch("n1")
		}, [][2]int{{10, 1}}, fwk.UnschedulableAndUnresolvable, `policy "fair" is unknown`},
		{"not advertised", func(c *cluster) {
			c.nodes["n1"].node.Status.Allocatable = nil
			c.touch("n1")
		}, [][2]int{{10, 1}}, fwk.UnschedulableAndUnresolvable, "qgpu-agent has not advertised"},
		{"a rule", nil, [][2]int{{33, 1}}, fwk.UnschedulableAndUnresolvable, "the nearest is 35"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := oneNode(t, 2)
			if tt.prepare != nil {
				tt.prepare(c)
			}
			_, fit, why := c.filter(c.pod(tt.asks...))
			status := why["n1"]
			if len(fit) != 0 || status.Code() != tt.code || !strings.Contains(status.Message(), tt.want) {
				t.Errorf("Filter = %v %q, want %v with %q", status.Code(), status.Message(), tt.code, tt.want)
			}
		})
	}
}

// fill puts one tenant of so much on each of two cards.
func fill(core, memory int) func(*cluster) {
	return func(c *cluster) {
		for range 2 {
			pod := c.pod([2]int{core, memory})
			pod.Annotations = map[string]string{podshare.CardPlacementNote: "spread"}
			c.mustSchedule(pod)
		}
	}
}

func (c *cluster) mustSchedule(pod *corev1.Pod) string {
	node, status := c.schedule(pod)
	if node == "" {
		panic(status.Message())
	}
	return node
}

// TestFailedBindingLeavesNothing: elastic-gpu-scheduler kept a pod's cards when its
// binding failed, and reported success.
func TestFailedBindingLeavesNothing(t *testing.T) {
	c := oneNode(t, 2)
	c.mustSchedule(c.pod([2]int{30, 5}))
	before := cardsOf(c, "n1")
	c.bindErr = errBind
	pod := c.pod([2]int{100, 0}, [2]int{20, 4})
	if node, status := c.schedule(pod); node != "" || !strings.Contains(status.Message(), " to node n1: the API server is away") {
		t.Fatalf("schedule = %q, %v, want a failed binding", node, status)
	}
	if after := cardsOf(c, "n1"); after != before {
		t.Errorf("the cards are\n%s, and were\n%s", after, before)
	}
	if len(c.plugin.ledger.byPod) != 1 {
		t.Errorf("the ledger has %d pods, want the first alone", len(c.plugin.ledger.byPod))
	}
	c.plugin.Unreserve(context.Background(), &cycleState{}, pod, "n1") // may come again
	if node, status := c.schedule(pod); node == "" {
		t.Errorf("the pod cannot be placed after its binding failed: %v", status.Message())
	}
}

// TestLostAnswerIsNoFailure: a binding that was made must not be taken back because its
// answer was lost.
func TestLostAnswerIsNoFailure(t *testing.T) {
	c := oneNode(t, 1)
	c.lost = true
	if node, status := c.schedule(c.pod([2]int{60, 5})); node == "" {
		t.Fatalf("schedule = %v, want success", status.Message())
	}
	if node, _ := c.schedule(c.pod([2]int{60, 5})); node != "" {
		t.Error("the card was given away twice")
	}
}

// cardsOf writes down all that a fresh pod would see of a node's cards.
func cardsOf(c *cluster, node string) string {
	c.filter(c.pod([2]int{5, 1}))
	data, err := json.Marshal(c.plugin.view.byName[node].Cards)
	if err != nil {
		panic(err)
	}
	return string(data)
}

func TestHandPlacedPodHasNothing(t *testing.T) {
	c := oneNode(t, 1)
	byHand := c.pod([2]int{100, 0})
	byHand.Spec.NodeName = "n1"
	c.put("n1", byHand)
	elsewhere := c.pod([2]int{50, 5})
	elsewhere.Spec.NodeName = "n1"
	elsewhere.Annotations = map[string]string{podshare.PlacementNote: `{"node":"n2","policy":"best-effort","containers":{"c0":[{"index":0,"uuid":"GPU-n1-0","core":50,"memory":5368709120}]}}`}
	c.put("n1", elsewhere)
	broken := c.pod([2]int{50, 5})
	broken.Spec.NodeName = "n1"
	broken.Annotations = map[string]string{podshare.PlacementNote: `{`}
	c.put("n1", broken)
	if node, status := c.schedule(c.pod([2]int{100, 0})); node != "n1" {
		t.Errorf("schedule = %v, want n1: nobody has its card", status.Message())
	}
}

// TestPreemptionSeesFreedCards: the preemption plugin asks Filter about a copy of the
// node without the victims.
func TestPreemptionSeesFreedCards(t *testing.T) {
	c, ctx := oneNode(t, 1), context.Background()
	victim := c.pod([2]int{100, 0})
	c.mustSchedule(victim)
	c.confirm(victim.UID)
	pod := c.pod([2]int{50, 5})
	state, fit, _ := c.filter(pod)
	if len(fit) != 0 {
		t.Fatal("the pod fits beside a whole card's tenant")
	}
	c.generation++
	tried := c.nodes["n1"].without(c.generation, victim.UID)
	if s := c.plugin.Filter(ctx, state, pod, tried); !s.IsSuccess() {
		t.Errorf("Filter without the victim = %v", s.Message())
	}
	// A nominated pod is on the node in all but its nodeName.
	nominated := c.pod([2]int{60, 5})
	tried.pods = append(tried.pods, nominated)
	c.generation++
	tried.generation = c.generation
	if s := c.plugin.Filter(ctx, state, pod, tried); s.IsSuccess() {
		t.Error("the pod fits in the place of a nominated one")
	}
	if s := c.plugin.Filter(ctx, state, pod, c.nodes["n1"]); s.IsSuccess() {
		t.Error("trying has changed the node itself")
	}
}

// TestForeignPolicyKeepsCardsToItself: cards are shared by tenants of one policy.
func TestForeignPolicyKeepsCardsToItself(t *testing.T) {
	c := oneNode(t, 2)
	old := c.pod([2]int{10, 1})
	c.mustSchedule(old)
	c.confirm(old.UID)
	c.nodes["n1"].node.Labels[podshare.PolicyLabel] = "fs"
	c.touch("n1")
	pod := c.pod([2]int{10, 1})
	c.mustSchedule(pod)
	a, _ := podshare.Of(c.stored[old.UID])
	b, err := podshare.Of(c.stored[pod.UID])
	if err != nil || b.Policy != share.FixedShare || a.Containers["c0"][0].UUID == b.Containers["c0"][0].UUID {
		t.Errorf("placements %+v and %+v: want another card, under fixed-share", a, b)
	}
}

func TestScoresAreDeterministicWithOneWinner(t *testing.T) {
	names := []string{"a", "b", "c", "d", "e"}
	var nodes []*corev1.Node
	for _, name := range names {
		nodes = append(nodes, gpuNode(name))
	}
	winners := make(map[string]bool)
	for seed := range uint64(20) {
		var previous fwk.NodeScoreList
		for range 2 {
			c := newCluster(t, Args{Seed: seed, NodePlacement: "binpack", CardPlacement: "binpack"}, nodes...)
			for _, name := range names {
				c.report(name, t4s("same", 2)...)
			}
			_, node, scores := c.choose(c.pod([2]int{30, 5}))
			winners[node] = true
			for i, s := range scores {
				if s.Score == fwk.MaxScore != (s.Name == node) || s.Score < 0 || s.Score != fwk.MaxScore && s.Score != runnerUp {
					t.Fatalf("seed %d: scores %v: want one 100 and 99 for its equals", seed, scores)
				}
				if previous != nil && previous[i] != s {
					t.Fatalf("seed %d: scores %v, and before %v", seed, scores, previous)
				}
			}
			previous = scores
		}
	}
	if len(winners) < 3 {
		t.Errorf("20 seeds have only %d winners of 5", len(winners))
	}
}

func TestNormalizeScoreSpansAnyRatings(t *testing.T) {
	c := newCluster(t, Args{})
	scores := fwk.NodeScoreList{{Name: "a", Score: -1 << 62}, {Name: "b", Score: 1<<62 + 5}, {Name: "c", Score: 0}}
	c.plugin.NormalizeScore(context.Background(), nil, nil, scores)
	for i, want := range []int64{0, 100, 49} {
		if scores[i].Score != want {
			t.Errorf("node %s has score %d, want %d", scores[i].Name, scores[i].Score, want)
		}
	}
}

func TestHints(t *testing.T) {
	c := oneNode(t, 1)
	logger := klog.Background()
	plain, sharing := c.pod([2]int{0, 0}), c.pod([2]int{10, 1})
	enabled, relabelled, other := gpuNode("n"), gpuNode("n"), gpuNode("n")
	relabelled.Labels[podshare.PolicyLabel] = "bs"
	other.Labels = nil
	zeroed := gpuNode("n")
	zeroed.Status.Allocatable = nil
	tests := []struct {
		name     string
		hint     fwk.QueueingHintFn
		old, now any
		want     fwk.QueueingHint
	}{
		{"a pod with a share left", c.plugin.afterPodLeft, sharing, nil, fwk.Queue},
		{"a pod without one left", c.plugin.afterPodLeft, plain, nil, fwk.QueueSkip},
		{"an unknown pod left", c.plugin.afterPodLeft, nil, nil, fwk.Queue},
		{"a node came", c.plugin.afterNodeChanged, nil, enabled, fwk.Queue},
		{"a node without cards came", c.plugin.afterNodeChanged, nil, other, fwk.QueueSkip},
		{"another policy", c.plugin.afterNodeChanged, enabled, relabelled, fwk.Queue},
		{"enabled", c.plugin.afterNodeChanged, other, enabled, fwk.Queue},
		{"advertised", c.plugin.afterNodeChanged, zeroed, enabled, fwk.Queue},
		{"nothing of ours", c.plugin.afterNodeChanged, enabled, enabled, fwk.QueueSkip},
	}
	for _, tt := range tests {
		if got, err := tt.hint(logger, sharing, tt.old, tt.now); got != tt.want || err != nil {
			t.Errorf("%s: hint = %v, %v, want %v", tt.name, got, err, tt.want)
		}
	}
}
