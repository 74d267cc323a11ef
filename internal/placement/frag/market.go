package frag

import (
	"math"
	"sync"

	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/share"
)

// Market keeps what the scorers of this package rate by: the pods to be expected,
// learned from those it is shown, and what is free in the cluster. What it makes of
// them depends on nothing but the order of the calls. It may be used from several
// goroutines.
type Market struct {
	weights Weights

	mu         sync.Mutex
	learner    Learner
	census     census
	turnover   turnover
	pricing    pricing
	frag       *Frag
	fgd        *FGD // of this generation; nil: nobody has asked
	generation uint64
	seen, due  float64 // pods shown, and how many make the next snapshot due
	asked      int64   // thousandths of cards that were asked for since the snapshot
	shapes     []Shape // of the pod being shown; kept for its memory
}

const (
	// staleAfter is the part of the cluster's cards that may be asked for before
	// prices are found anew.
	staleAfter = 0.02
	// early is by how much the pods seen grow before, at the beginning, they are.
	early = 1.2
)

// NewMarket makes an empty market.
func NewMarket(w Weights) *Market { return &Market{weights: w} }

// Declare tells m what to expect before it has seen pods: t, counted as so many.
func (m *Market) Declare(t Target, pods float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.learner.Declare(t, pods)
	m.frag = nil
}

// Observe shows m a pod when it first comes, before it is placed.
func (m *Market) Observe(r *placement.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.shapes = appendShapes(m.shapes[:0], r)
	m.learner.observe(m.shapes)
	m.seen++
	for _, s := range m.shapes {
		m.asked += int64(s.Cards*min(s.Core, share.Whole)) * milliPerPercent
	}
}

// Update tells m that a node has come, changed or gone: before or after is nil where
// there was or is none. Neither is kept.
func (m *Market) Update(before, after *placement.Node) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if before != nil {
		m.census.add(before, -1)
	}
	if after != nil {
		m.census.add(after, 1)
	}
	if before != nil && after != nil && len(before.Cards) == len(after.Cards) {
		m.turnover.add(used(after)-used(before), m.census.cards)
	}
}

// Scorer is the scorer to rate by now, and a number that is another whenever the
// scorer is: ratings by one are not to be compared with those by another.
func (m *Market) Scorer() (*Frag, uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refresh()
	return m.frag, m.generation
}

// FGD is, like Scorer, FGD measuring against the pods to be expected now.
func (m *Market) FGD() (*FGD, uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refresh()
	if m.fgd == nil {
		m.fgd = NewFGD(m.learner.Target(), m.census.names())
	}
	return m.fgd, m.generation
}

// refresh makes the scorer anew if it is stale.
func (m *Market) refresh() {
	stale := float64(m.asked) >= staleAfter*milli*float64(m.census.cards)
	if m.frag == nil || m.asked > 0 && (stale || m.seen < memory && m.seen >= m.due) {
		m.frag, m.fgd = m.snapshot(), nil
		m.generation++
		m.asked, m.due = 0, m.seen*early
	}
}

// MarshalJSON writes what m has learned.
func (m *Market) MarshalJSON() ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.learner.MarshalJSON()
}

// UnmarshalJSON replaces what m has learned by what MarshalJSON wrote.
func (m *Market) UnmarshalJSON(data []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.frag = nil
	return m.learner.UnmarshalJSON(data)
}

func (m *Market) snapshot() *Frag {
	all := m.learner.Target()
	t := all.Popular(popular)
	pressure := pressure(all, &m.census)
	f := &Frag{
		weights:    m.weights,
		losses:     newLosses(t, m.census.names()),
		prices:     m.pricing.solve(all, &m.census, pressure),
		scarcity:   scarcity(t, &m.census),
		cpuPerCard: cpuPerCard,
		wanted:     wanted(all, &m.census, m.weights.Kept),
	}
	f.losses.pressure = pressure
	m.reserve(f, all)
	return f
}

// cpuPerCard is the CPU beside a card in use: what pods use in the mean is less, but
// those to come must find some too.
const cpuPerCard = 16_000

// pressure is which part of the expected demand for cards is for their core: of a
// part of a card, the larger of core and memory weighs more. It is 1 if nobody asks
// for memory.
func pressure(t Target, c *census) float64 {
	var memory share.Memory
	for _, s := range c.models {
		memory = max(memory, s.memory)
	}
	var core, mem float64
	for _, w := range t {
		if w.Cards == 0 || w.whole() || w.Memory == 0 || memory == 0 {
			continue
		}
		core += w.Weight * float64(w.Cards*w.Core) / share.Whole
		mem += w.Weight * float64(w.Cards) * float64(w.Memory) / float64(memory)
	}
	if mem == 0 {
		return 1
	}
	return core / (core + mem)
}

// scarcity is for each model the demand by pods that will do with few models, as part
// of the model's cards, if the cluster were just full; at most 2.
func scarcity(t Target, c *census) map[string]float64 {
	typed := map[string]float64{}
	var total float64
	for _, w := range t {
		demand := w.Weight * float64(w.Cards*min(w.Core, share.Whole))
		total += demand
		if w.Models == "" || demand == 0 {
			continue
		}
		cards := 0
		for _, name := range c.names() {
			if w.serves(name) {
				cards += c.models[name].cards
			}
		}
		for _, name := range c.names() {
			if w.serves(name) && cards > 0 {
				typed[name] += demand * float64(c.models[name].cards) / float64(cards)
			}
		}
	}
	scarcity := map[string]float64{}
	for name, s := range c.models {
		if total > 0 && s.cards > 0 {
			scarcity[name] = min(2, typed[name]/total*float64(c.cards)/float64(s.cards))
		}
	}
	return scarcity
}

// reserve sets what it costs to break up groups of idle cards. A group of g cards on
// one node is worth keeping as far as it is likely that all groups will be asked for,
// while as much is asked for as is free: pods are taken to come at random (Poisson).
func (m *Market) reserve(f *Frag, t Target) {
	var groups [maxIdle + 1]float64 // weight of pods of so many whole cards
	var total, free float64
	for _, w := range t {
		total += w.Weight * float64(w.Cards*min(w.Core, share.Whole))
		if w.whole() && w.Cards > 1 && w.Cards <= maxIdle {
			groups[w.Cards] += w.Weight
		}
	}
	for _, s := range m.census.models {
		for core := range s.free {
			for _, n := range s.free[core] {
				free += float64(core * n)
			}
		}
	}
	for g, weight := range groups {
		if weight == 0 {
			continue
		}
		expected := weight/total*free + m.weights.Reserve
		cost := m.weights.Whole * float64(g) * milli * atLeast(expected, m.census.blocks[g])
		for k := 1; k <= maxIdle; k++ {
			if k%g == 0 {
				f.keep[k] += cost
			} else {
				f.keep[k] += cost * m.weights.Draining * float64(k%g) / float64(g)
			}
		}
	}
}

// atLeast is the probability that a Poisson variable of the given mean is n or more.
func atLeast(mean float64, n int) float64 {
	if mean > 500 { // e^-mean is nearly 0: the normal distribution is near enough
		return math.Erfc((float64(n)-0.5-mean)/math.Sqrt(2*mean)) / 2
	}
	term, less := math.Exp(-mean), 0.0
	for i := range n {
		less += term
		term *= mean / float64(i+1)
	}
	return max(0, 1-less)
}
