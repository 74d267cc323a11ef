package replay

import (
	"cmp"
	"math"
	"math/rand"
	"slices"

	"github.com/qgpu-project/qgpu/internal/placement/frag"
)

// Inflation is the protocol of the published table: pods arrive in random order and
// stay, with copies of random ones behind them, until Load times the cluster's cards
// were asked for. A pod that fits nowhere is lost.
type Inflation struct {
	Load float64 // of capacity; the published table has 1.3
}

// Run is the outcome of a run.
type Run struct {
	Trace, Policy string
	Seed          int64
	// Allocated is the percent of cards allocated at each percent of arrived load, the
	// mean of all arrivals that round to it; where there was none, as before.
	Allocated []float64
	// Arrived and Lost are pods by kind: a part of a card, 1, 2, 4, 8 cards, others.
	Arrived, Lost [kinds]int
	// ArrivedMilli and LostMilli are what they asked for, in thousandths of a card.
	ArrivedMilli, LostMilli int64
	// Steady is the mean percent of cards in use over time, where time passes.
	Steady float64
	// Memory is the percent of card memory that is taken at the end.
	Memory float64
	// Waited is how many seconds pods waited in all, in a history.
	Waited float64
}

// At is what was allocated at so many percent of arrived load, or NaN.
func (r *Run) At(percent int) float64 {
	if percent < 0 || percent >= len(r.Allocated) {
		return math.NaN()
	}
	return r.Allocated[percent]
}

// LostPercent is the part of the demand for cards that was lost.
func (r *Run) LostPercent() float64 {
	if r.ArrivedMilli == 0 {
		return 0
	}
	return percent(r.LostMilli, r.ArrivedMilli)
}

// Run plays t under a policy.
func (in Inflation) Run(t *Trace, policy string, seed int64) *Run {
	rng := rand.New(rand.NewSource(seed))
	pods, rank := in.arrivals(t, rng)
	ready, shapes := prepare(pods)
	c := newCluster(t.Nodes, rank)
	rater := newRater(policy, setting{target: declared(t.Pods), cluster: c, rng: rng})
	chooser := newChooser(c, rater, shapes)
	run := &Run{Trace: t.Name, Policy: policy, Seed: seed}
	curve := newCurve(in.Load)
	var arrived int64
	for i := range ready {
		p := &ready[i]
		arrived += p.milli()
		node, card, ok := chooser.choose(p)
		if ok {
			c.put(node, card, p)
		}
		run.count(p, ok)
		curve.add(percent(arrived, c.capacity), percent(c.used, c.capacity))
	}
	run.Allocated = curve.means()
	run.Memory = c.memory()
	return run
}

func (r *Run) count(p *pod, ok bool) {
	if p.kind < 0 {
		return
	}
	r.Arrived[p.kind]++
	r.ArrivedMilli += p.milli()
	if !ok {
		r.Lost[p.kind]++
		r.LostMilli += p.milli()
	}
}

// arrivals are the pods in the order in which they come, and the nodes' ranks.
func (in Inflation) arrivals(t *Trace, rng *rand.Rand) (pods []Pod, rank []int) {
	byName := slices.Clone(t.Pods)
	slices.SortStableFunc(byName, func(a, b Pod) int { return cmp.Compare(a.Name, b.Name) })
	pods = slices.Clone(byName)
	rng.Int()
	rng.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
	var capacity, asked int64
	for _, n := range t.Nodes {
		capacity += int64(n.Cards) * wholeMilli
	}
	for _, p := range pods {
		asked += p.GPUMilli()
	}
	most := in.Load * float64(capacity)
	for float64(asked) > most && len(pods) > 0 {
		i := rng.Intn(len(pods))
		asked -= pods[i].GPUMilli()
		pods = slices.Delete(pods, i, i+1)
	}
	for asked > 0 && float64(asked) < most {
		p := byName[rng.Intn(len(byName))]
		if float64(asked+p.CoreMilli) > most {
			break
		}
		asked += p.GPUMilli()
		pods = append(pods, p)
	}
	return pods, rng.Perm(len(t.Nodes))
}

// declared is the target workload of all pods of a trace.
func declared(pods []Pod) frag.Target {
	var shapes []frag.Shape
	for _, p := range pods {
		r := p.Request()
		shapes = append(shapes, frag.Shapes(&r)...)
	}
	return frag.NewTarget(shapes)
}

func percent(part, whole int64) float64 { return float64(part) / float64(whole) * 100 }

// curve gathers what is allocated by what arrived, both in percent.
type curve struct {
	sums   []float64
	counts []int
}

func newCurve(load float64) *curve {
	n := int(math.Round(load*100)) + 2
	return &curve{make([]float64, n), make([]int, n)}
}

func (c *curve) add(arrived, allocated float64) {
	if i := int(math.RoundToEven(arrived)); i < len(c.sums) {
		c.sums[i] += math.RoundToEven(allocated*100) / 100
		c.counts[i]++
	}
}

func (c *curve) means() []float64 {
	means := make([]float64, len(c.sums))
	last := 0.0
	for i := range means {
		if c.counts[i] > 0 {
			last = c.sums[i] / float64(c.counts[i])
		}
		means[i] = last
	}
	return means
}
