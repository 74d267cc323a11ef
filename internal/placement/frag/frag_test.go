package frag

import (
	"encoding/json"
	"math"
	"math/rand"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/share"
)

const gib = share.GiB

// request is a pod with one container.
func request(core int, memory share.Memory, cpu int64, models ...string) *placement.Request {
	r := &placement.Request{CPU: cpu, Models: models}
	if core > 0 || memory > 0 {
		r.Containers = []placement.Container{{Name: "main", Share: share.Share{Core: core, Memory: memory}}}
	}
	return r
}

// node is a node whose cards have so much core taken, each by one tenant; 100 is a
// whole card, and 0 an idle one.
func node(model string, cpu int64, cores ...int) *placement.Node {
	n := &placement.Node{CPU: 128_000, FreeCPU: cpu}
	for i, core := range cores {
		c := placement.Card{Index: i, Model: model, Memory: 16 * gib}
		s := share.Share{Core: core, Memory: share.Memory(core) * 16 * gib / 100}
		if core == share.Whole {
			s.Memory = 0
		}
		if core > 0 {
			c.Take(c.Quota(s))
		}
		n.Cards = append(n.Cards, c)
	}
	return n
}

func drawNode(t *rapid.T) *placement.Node {
	model := rapid.SampledFrom([]string{"A", "B", "unheard"}).Draw(t, "model")
	cores := rapid.SliceOfN(rapid.SampledFrom([]int{0, 0, 5, 30, 35, 50, 80, 95, 100}), 1, 8).Draw(t, "cores")
	n := node(model, int64(rapid.IntRange(0, 64).Draw(t, "cpu"))*1000, cores...)
	if rapid.Bool().Draw(t, "unknown CPU") {
		n.CPU, n.FreeCPU = 0, 0
	}
	return n
}

func drawRequest(t *rapid.T) *placement.Request {
	cpu := int64(rapid.SampledFrom([]int{0, 1, 4, 12}).Draw(t, "cpu")) * 1000
	core := rapid.SampledFrom([]int{0, 5, 20, 50, 65, 100, 200, 800}).Draw(t, "core")
	memory := share.Memory(0)
	if core > 0 && core < share.Whole {
		memory = share.Memory(rapid.IntRange(1, 16).Draw(t, "memory")) * gib
	}
	return request(core, memory, cpu)
}

// drawMarket is a market that has seen some nodes and pods.
func drawMarket(t *rapid.T) *Market {
	m := NewMarket(Tuned())
	for range rapid.IntRange(0, 6).Draw(t, "nodes") {
		m.Update(nil, drawNode(t))
	}
	for range rapid.IntRange(0, 12).Draw(t, "pods") {
		m.Observe(drawRequest(t))
	}
	return m
}

// ways are the nodes that n may be with r on it: by the card of a part, or one.
func ways(n *placement.Node, r *placement.Request) map[int]*placement.Node {
	s, _ := single(r)
	after := func(cards ...int) *placement.Node {
		b := *n
		b.Cards = slices.Clone(n.Cards)
		b.FreeCPU -= r.CPU
		for _, i := range cards {
			b.Cards[i].Take(b.Cards[i].Quota(s.PerCard()))
		}
		return &b
	}
	out := map[int]*placement.Node{}
	switch {
	case len(r.Containers) == 0:
		out[-1] = after()
	case s.WholeCards():
		var idle []int
		for i := range n.Cards {
			if isIdle(&n.Cards[i]) {
				idle = append(idle, i)
			}
		}
		if len(idle) >= s.Cards() {
			out[idle[0]] = after(idle[:s.Cards()]...)
		}
	default:
		for i := range n.Cards {
			if n.Cards[i].Fit(s) == nil {
				out[i] = after(i)
			}
		}
	}
	return out
}

type picker interface {
	placement.Scorer
	Pick(*placement.Node, *placement.Request) (int, int64, bool)
}

func drawScorer(t *rapid.T) picker {
	m := drawMarket(t)
	if rapid.Bool().Draw(t, "fgd") {
		return NewFGD(m.learner.Target(), m.census.names())
	}
	f, _ := m.Scorer()
	return f
}

func TestPickIsTheBestScore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, n, r := drawScorer(t), drawNode(t), drawRequest(t)
		card, score, ok := s.Pick(n, r)
		all := ways(n, r)
		if ok != (len(all) > 0) {
			t.Fatalf("Pick found room: %v, and there are %d ways", ok, len(all))
		}
		if !ok {
			return
		}
		for i, after := range all {
			v := s.Score(n, after, r)
			if v > score || v == score && i < card || i == card && v != score {
				t.Fatalf("Pick = card %d at %d, and card %d scores %d", card, score, i, v)
			}
		}
	})
}

func TestOrderOfCardsAndNamesDoNotCount(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, n, r := drawScorer(t), drawNode(t), drawRequest(t)
		_, want, ok := s.Pick(n, r)
		other := *n
		other.Name = "another"
		other.Cards = rapid.Permutation(n.Cards).Draw(t, "cards")
		if _, got, okNow := s.Pick(&other, r); got != want || okNow != ok {
			t.Fatalf("Pick = %d, %v, and %d, %v with the cards in another order", want, ok, got, okNow)
		}
	})
}

func TestLossStepByStepEqualsLossAnew(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, n, r := drawMarket(t), drawNode(t), drawRequest(t)
		l := newLosses(m.learner.Target(), []string{"A", "B"})
		l.pressure = rapid.Float64Range(0.1, 1).Draw(t, "pressure")
		s, _ := single(r)
		now := l.sum(n, n.FreeCPU-r.CPU)
		for card, after := range ways(n, r) {
			got := now.total()
			switch {
			case s.WholeCards():
				got = now.less(s.Cards())
			case card >= 0:
				got = now.with(&n.Cards[card], &after.Cards[card])
			}
			if want := l.ofNode(after, after.FreeCPU); got != want {
				t.Fatalf("loss with card %d taken is %d, anew %d", card, got, want)
			}
		}
	})
}

func TestNothingIsAllocatedToScore(t *testing.T) {
	m := NewMarket(Tuned())
	n := node("A", 32_000, 0, 30, 65, 100, 0, 0, 50, 0)
	m.Update(nil, n)
	part, whole := request(35, 4*gib, 4000), request(200, 0, 4000)
	m.Observe(part)
	m.Observe(whole)
	f, _ := m.Scorer()
	g := NewFGD(m.learner.Target(), []string{"A"})
	after := ways(n, part)[1]
	for name, score := range map[string]func(){
		"frag":       func() { f.Score(n, after, part) },
		"frag part":  func() { f.Pick(n, part) },
		"frag whole": func() { f.Pick(n, whole) },
		"fgd":        func() { g.Score(n, after, part) },
		"fgd part":   func() { g.Pick(n, part) },
		"learning":   func() { m.Observe(part) },
	} {
		if allocs := testing.AllocsPerRun(100, score); allocs != 0 {
			t.Errorf("%s: %v allocations", name, allocs)
		}
	}
}

// TestStranded has nothing but pods of 65 and 35: what a card strands is what neither
// can use.
func TestStranded(t *testing.T) {
	l := newLosses(Target{
		{Shape{CPU: 4000, Cards: 1, Core: 65}, 1},
		{Shape{CPU: 1000, Cards: 1, Core: 35}, 1},
		{Shape{CPU: 1000, Cards: 2, Core: 100}, 2},
	}, []string{"A"})
	for _, tt := range []struct {
		name string
		node *placement.Node
		want float64 // thousandths of a card
	}{
		{"35 free serve one in four", node("A", 9000, 65), 350 * 0.75},
		{"too little for any", node("A", 9000, 80), 200},
		{"no CPU for the larger", node("A", 2000, 30), 700 * 0.75},
		{"no CPU at all", node("A", 0, 30), 700},
		{"one idle card is not two", node("A", 9000, 0), 1000 * 0.5},
		{"two idle cards serve all", node("A", 9000, 0, 0), 0},
		{"full", node("A", 9000, 100), 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := float64(l.ofNode(tt.node, tt.node.FreeCPU)) / unit; math.Abs(got-tt.want) > 1e-3 {
				t.Errorf("strands %v, want %v", got, tt.want)
			}
		})
	}
}

// market has seen nodes and, so many times each, pods.
func market(nodes []*placement.Node, times int, pods ...*placement.Request) *Market {
	m := NewMarket(Tuned())
	for _, n := range nodes {
		m.Update(nil, n)
	}
	for range times {
		for _, r := range pods {
			m.Observe(r)
		}
	}
	return m
}

func TestPartsGoToTheirPartners(t *testing.T) {
	nodes := []*placement.Node{node("A", 64_000, 65, 50, 0, 0), node("A", 64_000, 80, 65)}
	f, _ := market(nodes, 50, request(65, 10*gib, 1000), request(35, 5*gib, 1000)).Scorer()
	if card, _, _ := f.Pick(nodes[0], request(35, 5*gib, 1000)); card != 0 {
		t.Errorf("35 percent go to card %d, want card 0, where 65 are taken", card)
	}
	if card, _, _ := f.Pick(nodes[0], request(65, 10*gib, 1000)); card != 2 {
		t.Errorf("65 percent go to card %d, want an idle card: no 35 fit beside 50", card)
	}
}

func TestCoreWithoutMemoryIsWorthNothing(t *testing.T) {
	n := node("A", 64_000, 0, 50)
	n.Cards[1].Taken = n.Cards[1].Memory // half of the core left, and no memory
	m := market([]*placement.Node{n, node("A", 64_000, 0, 0, 30)}, 20, request(50, 8*gib, 1000), request(20, 8*gib, 1000))
	f, _ := m.Scorer()
	worth := f.prices.table("A")
	if got := f.prices.of(worth, &n.Cards[1]); got != 0 {
		t.Errorf("core without memory is worth %v", got)
	}
	if got := f.prices.of(worth, &n.Cards[0]); got <= 0 {
		t.Errorf("an idle card is worth %v", got)
	}
	if p := f.losses.pressure; p <= 0 || p >= 1 {
		t.Errorf("core is %v of a card's worth where pods ask for memory too", p)
	}
}

// TestLastWholeNodesAreKept breaks a node up only while there are plenty.
func TestLastWholeNodesAreKept(t *testing.T) {
	one := request(100, 0, 1000)
	broken, whole := node("A", 128_000, 100, 100, 100, 0, 0, 0, 0, 0), node("A", 128_000, 0, 0, 0, 0, 0, 0, 0, 0)
	preferred := func(others int) int64 {
		nodes := []*placement.Node{broken, whole}
		for range others {
			nodes = append(nodes, whole)
		}
		f, _ := market(nodes, 20, request(800, 0, 1000), one).Scorer()
		_, a, _ := f.Pick(broken, one)
		_, b, _ := f.Pick(whole, one)
		return a - b
	}
	few, many := preferred(1), preferred(400)
	if few <= 0 {
		t.Errorf("with two whole nodes, a pod of one card prefers the whole node by %d", -few)
	}
	if few <= many {
		t.Errorf("the broken node is preferred by %d with few whole nodes, and by %d with many", few, many)
	}
}

func TestScarceModelsAreLeftToThoseWhoMustHaveThem(t *testing.T) {
	a, b := node("A", 64_000, 0, 0), node("B", 64_000, 0, 0)
	f, _ := market([]*placement.Node{a, a, a, a, b}, 30, request(100, 0, 1000), request(100, 0, 1000), request(100, 0, 1000, "B")).Scorer()
	anyModel := request(100, 0, 1000)
	_, onA, _ := f.Pick(a, anyModel)
	if _, onB, _ := f.Pick(b, anyModel); onA <= onB {
		t.Errorf("a pod that takes any model rates the common one %d and the scarce one %d", onA, onB)
	}
}

func TestMarketIsDeterministic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var nodes []*placement.Node
		for range rapid.IntRange(1, 5).Draw(t, "nodes") {
			nodes = append(nodes, drawNode(t))
		}
		var pods []*placement.Request
		for range rapid.IntRange(1, 30).Draw(t, "pods") {
			pods = append(pods, drawRequest(t))
		}
		probe, n := drawRequest(t), nodes[0]
		play := func() (score int64, generation uint64) {
			m := market(nodes, 0)
			for _, r := range pods {
				m.Observe(r)
				_, generation = m.Scorer()
			}
			f, _ := m.Scorer()
			_, score, _ = f.Pick(n, probe)
			return score, generation
		}
		s1, g1 := play()
		if s2, g2 := play(); s1 != s2 || g1 != g2 {
			t.Fatalf("score %d of generation %d, and %d of %d when played again", s1, g1, s2, g2)
		}
	})
}

func TestCensusAddsAndRemoves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var kept census
		kept.add(drawNode(t), 1)
		before := deepCopy(&kept)
		n := drawNode(t)
		kept.add(n, 1)
		kept.add(n, -1)
		if kept.blocks != before.blocks || kept.cards != before.cards {
			t.Fatalf("add and remove leave %+v of %+v", kept, before)
		}
		for name, s := range before.models {
			if s.free != kept.models[name].free {
				t.Fatalf("add and remove change what is free of %s", name)
			}
		}
	})
}

func deepCopy(c *census) census {
	d := census{models: map[string]*modelStock{}, blocks: c.blocks, cards: c.cards}
	for name, s := range c.models {
		copied := *s
		d.models[name] = &copied
	}
	return d
}

func TestLearnerIsSavedAndFades(t *testing.T) {
	var l Learner
	for range 3 * memory {
		l.Observe(request(20, gib, 1000))
	}
	l.Observe(request(800, 0, 1000, "B", "A"))
	if l.seen >= memory {
		t.Errorf("the learner keeps %v pods in mind, at most %d", l.seen, memory)
	}
	data, err := json.Marshal(&l)
	if err != nil {
		t.Fatal(err)
	}
	var m Learner
	if err := json.Unmarshal(data, &m); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(l.Target(), m.Target()) {
		t.Errorf("saved %v, read %v", l.Target(), m.Target())
	}
	for _, bad := range []string{`{"version":2}`, `{"version":1,"shapes":[{"cards":1,"weight":-1}]}`, `{"version":1,"shapes":[{"cards":-1,"weight":1}]}`, `[]`} {
		if err := json.Unmarshal([]byte(bad), &m); err == nil {
			t.Errorf("%s is taken for a learned workload", bad)
		}
	}
}

func TestLearnerIsBounded(t *testing.T) {
	var l Learner
	rng := rand.New(rand.NewSource(1))
	for range 5 * maxShapes {
		l.Observe(request(5*(1+rng.Intn(19)), gib, rng.Int63n(1<<40)))
		if len(l.counts) > maxShapes {
			t.Fatalf("the learner keeps %d shapes, at most %d", len(l.counts), maxShapes)
		}
	}
}

func TestAtLeast(t *testing.T) {
	for _, tt := range []struct {
		mean float64
		n    int
		want float64
	}{{0, 0, 1}, {0, 1, 0}, {1, 1, 1 - 1/math.E}, {600, 600, 0.5}, {600, 900, 0}, {600, 300, 1}} {
		if got := atLeast(tt.mean, tt.n); math.Abs(got-tt.want) > 0.03 {
			t.Errorf("atLeast(%v, %d) = %v, want %v", tt.mean, tt.n, got, tt.want)
		}
	}
}
