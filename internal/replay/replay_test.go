package replay

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// small is the trace of testdata: 24 nodes of three models, 600 pods.
func small(t *testing.T) *Trace {
	t.Helper()
	trace, err := Open("testdata", "")
	if err != nil {
		t.Fatal(err)
	}
	return trace
}

func TestTraceIsWrittenAndRead(t *testing.T) {
	want := small(t)
	dir := t.TempDir()
	if err := Write(dir, want); err != nil {
		t.Fatal(err)
	}
	got, err := Open(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Error("a trace is not read as it was written")
	}
	if len(want.Nodes) != 24 || len(want.Pods) != 600 {
		t.Errorf("testdata has %d nodes and %d pods", len(want.Nodes), len(want.Pods))
	}
}

func TestBadTracesAreRefused(t *testing.T) {
	const header = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\n"
	for name, tt := range map[string]struct{ text, want string }{
		"empty":          {"", "header"},
		"missing column": {"name,cpu_milli\n", "column memory_mib is missing"},
		"no number":      {header + "a,x,1,1,1000\n", `line 2: column cpu_milli: "x" is not a number`},
		"negative":       {header + "a,-1,1,1,1000\n", "is not a number of 0"},
		"too many cards": {header + "a,1,1,1000000,1000\n", "column num_gpu"},
		"too much core":  {header + "a,1,1,1,1001\n", "column gpu_milli"},
		"not finite":     {header + "a,NaN,1,1,1000\n", "column cpu_milli"},
		"short line":     {header + "a,1\n", "wrong number of fields"},
	} {
		if _, err := ReadPods(strings.NewReader(tt.text)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
	if _, err := Open(t.TempDir(), ""); err == nil || !strings.Contains(err.Error(), "has no trace") {
		t.Errorf("an empty folder: %v", err)
	}
}

func FuzzReadPods(f *testing.F) {
	f.Add([]byte("name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\na,1000,1024,1,460,T4|P100\n"))
	f.Add([]byte("name,cpu_milli,memory_mib,num_gpu,gpu_milli\n\"a\n\",1e3,0,8,1000\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		pods, err := ReadPods(bytes.NewReader(data))
		if err != nil {
			return
		}
		for _, p := range pods {
			if p.Cards < 0 || p.Cards > maxCards || p.CoreMilli < 0 || p.CoreMilli > wholeMilli || p.CoreMilli%milliPerPercent != 0 {
				t.Fatalf("read %+v", p)
			}
		}
		var out bytes.Buffer
		if err := WritePods(&out, pods); err != nil {
			t.Fatal(err)
		}
		again, err := ReadPods(&out)
		if err != nil || len(again) != len(pods) {
			t.Fatalf("%d pods, written and read %d, %v", len(pods), len(again), err)
		}
	})
}

func TestHashedNamesNeedTheKey(t *testing.T) {
	a, b := Hashed([]byte("k"), "team-a/trainer"), Hashed([]byte("l"), "team-a/trainer")
	if a == b || a != Hashed([]byte("k"), "team-a/trainer") || a == Hashed([]byte("k"), "team-b/trainer") {
		t.Errorf("hashes %s and %s", a, b)
	}
}

func protocols() []Protocol {
	return []Protocol{Inflation{Load: 1.3}, Churn{Load: 1, WarmUp: 0.2, Measured: 0.5}, History{}}
}

// TestKeptRatesEqualFreshOnes plays each policy with rates kept by shape and version,
// and with every node rated anew for every pod.
func TestKeptRatesEqualFreshOnes(t *testing.T) {
	trace := small(t)
	ready, shapes := prepare(trace.Pods)
	for _, policy := range Policies() {
		if policy == "random" {
			continue
		}
		var nodes [2][]int
		for i := range nodes {
			c := newCluster(trace.Nodes, nil)
			choose := newChooser(c, newRater(policy, setting{target: declared(trace.Pods), cluster: c}), shapes)
			choose.keep = i == 0
			var here []placed
			rng := rand.New(rand.NewSource(7))
			for j := range ready {
				node, card, ok := choose.choose(&ready[j])
				nodes[i] = append(nodes[i], node, card)
				if ok {
					here = append(here, c.put(node, card, &ready[j]))
				}
				if len(here) > 0 && rng.Intn(3) == 0 {
					at := rng.Intn(len(here))
					c.remove(here[at])
					here = slices.Delete(here, at, at+1)
				}
			}
		}
		if !slices.Equal(nodes[0], nodes[1]) {
			t.Errorf("%s chooses other nodes when rates are kept", policy)
		}
	}
}

func TestRunsDependOnTheSeedAlone(t *testing.T) {
	trace := small(t)
	var jobs []Job
	for _, protocol := range protocols() {
		for _, policy := range Policies() {
			jobs = append(jobs, Job{trace, policy, 1, protocol}, Job{trace, policy, 1, protocol})
		}
	}
	runs, err := RunAll(context.Background(), jobs, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(runs); i += 2 {
		if !reflect.DeepEqual(runs[i], runs[i+1]) {
			t.Errorf("%s under %T differs with the same seed", jobs[i].Policy, jobs[i].Protocol)
		}
		if i > 0 && jobs[i].Protocol == jobs[i-2].Protocol && !slices.Equal(runs[i].Arrived[:], runs[i-2].Arrived[:]) {
			t.Errorf("%s and %s under %T are not given the same pods", jobs[i].Policy, jobs[i-2].Policy, jobs[i].Protocol)
		}
	}
}

func TestNoRunGivesAwayMoreThanThereIs(t *testing.T) {
	trace := WithMemory(small(t), 3)
	for _, policy := range Policies() {
		for _, protocol := range protocols() {
			r := protocol.Run(trace, policy, 5)
			if r.Steady > 100 || r.Memory > 100 || r.LostMilli > r.ArrivedMilli {
				t.Errorf("%s under %T: %+v", policy, protocol, r)
			}
			for at, v := range r.Allocated {
				if v > 100 || v > float64(at)+2 {
					t.Errorf("%s: %v %% allocated when %d %% had arrived", policy, v, at)
				}
			}
		}
	}
}

func TestPutAndRemoveLeaveNothing(t *testing.T) {
	trace := WithMemory(small(t), 1)
	ready, shapes := prepare(trace.Pods)
	rapid.Check(t, func(t *rapid.T) {
		c, fresh := newCluster(trace.Nodes, nil), newCluster(trace.Nodes, nil)
		choose := newChooser(c, newRater(rapid.SampledFrom(Policies()[1:]).Draw(t, "policy"), setting{target: declared(trace.Pods), cluster: c}), shapes)
		var here []placed
		for range rapid.IntRange(1, 200).Draw(t, "pods") {
			p := &ready[rapid.IntRange(0, len(ready)-1).Draw(t, "pod")]
			if node, card, ok := choose.choose(p); ok {
				here = append(here, c.put(node, card, p))
			}
		}
		for i := range c.nodes {
			for _, card := range c.nodes[i].Cards {
				if card.Core > 100 || card.Taken > card.Memory || card.Core < 0 {
					t.Fatalf("overfull: %+v", card)
				}
			}
		}
		for _, at := range here {
			c.remove(at)
		}
		if c.used != 0 || !reflect.DeepEqual(c.nodes, fresh.nodes) || !reflect.DeepEqual(c.facts, fresh.facts) {
			t.Fatal("pods that were placed and removed leave something behind")
		}
	})
}

func TestInflationArrivals(t *testing.T) {
	trace := small(t)
	var capacity int64
	for _, n := range trace.Nodes {
		capacity += int64(n.Cards) * wholeMilli
	}
	for _, load := range []float64{0.5, 1.3} {
		pods, rank := Inflation{Load: load}.arrivals(trace, rand.New(rand.NewSource(1)))
		var asked int64
		for _, p := range pods {
			asked += p.GPUMilli()
		}
		if got := float64(asked) / float64(capacity); math.Abs(got-load) > 0.05 {
			t.Errorf("load %v: %v arrive", load, got)
		}
		slices.Sort(rank)
		if !slices.IsSorted(rank) || rank[0] != 0 || rank[len(rank)-1] != len(rank)-1 {
			t.Error("ranks are no permutation")
		}
	}
	none := &Trace{Nodes: trace.Nodes, Pods: []Pod{{Name: "cpu", CPU: 1}}}
	if pods, _ := (Inflation{Load: 1}).arrivals(none, rand.New(rand.NewSource(1))); len(pods) != 1 {
		t.Errorf("pods without cards are inflated to %d", len(pods))
	}
}

// TestHistoryWaits has one card and two pods that want it at the same time.
func TestHistoryWaits(t *testing.T) {
	trace := &Trace{
		Nodes: []Node{{Name: "n", Model: "T4", CPU: 8000, HostMemoryMiB: 1024, Cards: 1}},
		Pods: []Pod{
			{Name: "first", Cards: 1, CoreMilli: 1000, Created: 0, Scheduled: 0, Deleted: 60},
			{Name: "second", Cards: 1, CoreMilli: 1000, Created: 20, Scheduled: 70, Deleted: 100},
		},
	}
	r := History{}.Run(trace, "frag", 1)
	if r.Lost[1] != 1 || r.Waited != 40 {
		t.Errorf("%d pods waited %v seconds in all, want 1 and 40", r.Lost[1], r.Waited)
	}
	if math.Abs(r.Steady-90) > 1e-9 {
		t.Errorf("%v %% in use, want 90: both pods, one after the other, of 100 seconds", r.Steady)
	}
}

// TestFragKeepsWholeNodes: where policies differ most, at a load that leaves room.
func TestFragKeepsWholeNodes(t *testing.T) {
	trace := small(t)
	lost := map[string]int{}
	for _, policy := range []string{"frag", "random"} {
		for seed := range int64(3) {
			lost[policy] += Churn{Load: 0.8, WarmUp: 1, Measured: 6}.Run(trace, policy, seed).Lost[4]
		}
	}
	if 2*lost["frag"] > lost["random"] {
		t.Errorf("pods of eight cards lost: %v", lost)
	}
}

// TestWholeNodesDoNotStarve has more pods come than find room: those that need whole nodes are
// turned away far more often where no empty node is kept for them, and hardly less is in use where
// some are.
func TestWholeNodesDoNotStarve(t *testing.T) {
	trace := &Trace{Name: "mixed"}
	for i := range 100 {
		trace.Nodes = append(trace.Nodes, Node{Name: fmt.Sprintf("n%03d", i), CPU: 96_000, HostMemoryMiB: 1 << 20, Model: "A", Cards: 8, CardMemoryMiB: 16 << 10})
	}
	for i := range 200 {
		p := Pod{Name: fmt.Sprintf("p%03d", i), CPU: 1000, HostMemoryMiB: 1 << 10, Cards: 1, CoreMilli: 1000}
		switch {
		case i%50 == 0:
			p.Cards = 8
		case i%2 == 0:
			p.CoreMilli = 500
		}
		trace.Pods = append(trace.Pods, p)
	}
	lost := map[string]float64{}
	use := map[string]float64{}
	const eight, seeds = 4, 4
	for _, policy := range []string{"frag", "frag:kept=0"} {
		for seed := range int64(seeds) {
			run := Churn{Load: 1.1, WarmUp: 2, Measured: 4}.Run(trace, policy, seed)
			lost[policy] += percent(int64(run.Lost[eight]), int64(run.Arrived[eight])) / seeds
			use[policy] += run.Steady / seeds
		}
	}
	t.Logf("lost %v, in use %v", lost, use)
	if lost["frag"] > lost["frag:kept=0"]/2 || lost["frag:kept=0"] < 50 {
		t.Errorf("of pods of eight cards %v %% are turned away", lost)
	}
	if use["frag"] < use["frag:kept=0"]-1 {
		t.Errorf("%v %% of the cards are in use", use)
	}
}

func TestSyntheticMemory(t *testing.T) {
	trace := small(t)
	for i := range trace.Nodes {
		trace.Nodes[i].CardMemoryMiB = 0
	}
	for i := range trace.Pods {
		trace.Pods[i].CardMemoryMiB = 0
	}
	a, b, c := WithMemory(trace, 1), WithMemory(trace, 1), WithMemory(trace, 2)
	if !reflect.DeepEqual(a, b) || reflect.DeepEqual(a.Pods, c.Pods) {
		t.Error("the demand for memory does not follow its seed")
	}
	for _, p := range a.Pods {
		part := p.Cards > 0 && p.CoreMilli < wholeMilli
		if part != (p.CardMemoryMiB > 0) || p.CardMemoryMiB%gibMiB != 0 || p.CardMemoryMiB > 80*gibMiB {
			t.Errorf("%+v", p)
		}
	}
}

func TestPolicyNames(t *testing.T) {
	for name, want := range map[string]string{
		"frag": "", "frag:cpu=0.2:whole=0": "", "none": "is unknown",
		"fgd:cpu=1": "only frag has weights", "frag:colour=1": "the weights are coarse, cpu", "frag:cpu=x": `weight "cpu=x"`,
	} {
		err := ValidatePolicy(name)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
}

func TestPublishedTableIsRead(t *testing.T) {
	line := "openb_pod_list_default,06-FGD,1.3,42,6212" + strings.Repeat(",1.5", 130) + ","
	p, err := parsePublished(strings.NewReader("workload,sc_policy,tune,seed,total_gpus" + strings.Repeat(",0", 131) + "\n" + line + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	curve := p[PublishedRun{"default", "fgd", 42}]
	if len(curve) != 131 || curve[0] != 1.5 || !math.IsNaN(curve[130]) {
		t.Errorf("read %v", curve)
	}
	if _, err := parsePublished(strings.NewReader("a,b\n1,2\n")); err == nil {
		t.Error("another table is taken for the published one")
	}
}
