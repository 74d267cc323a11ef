package replay

import (
	"cmp"
	"container/heap"
	"math/rand"
	"slices"
)

// Churn is a loss system in its steady state: pods drawn from the trace arrive at
// random (Poisson), stay for a random time (exponential, mean 1) and are lost if they
// fit nowhere at once. The cluster begins filled with a steady state's worth of pods.
type Churn struct {
	Load float64 // offered, of capacity
	// WarmUp and Measured are in mean stays.
	WarmUp, Measured float64
}

// Run plays t under a policy.
func (ch Churn) Run(t *Trace, policy string, seed int64) *Run {
	rng := rand.New(rand.NewSource(seed))
	byName := slices.Clone(t.Pods)
	slices.SortStableFunc(byName, func(a, b Pod) int { return cmp.Compare(a.Name, b.Name) })
	ready, shapes := prepare(byName)
	c := newCluster(t.Nodes, rng.Perm(len(t.Nodes)))
	// Policies that draw do so from their own source: arrivals are the same for all.
	own := rand.New(rand.NewSource(rng.Int63()))
	s := &system{
		cluster: c,
		chooser: newChooser(c, newRater(policy, setting{target: declared(t.Pods), cluster: c, rng: own}), shapes),
		run:     &Run{Trace: t.Name, Policy: policy, Seed: seed},
	}
	var demand int64
	for i := range ready {
		demand += ready[i].milli()
	}
	if demand == 0 || c.capacity == 0 {
		return s.run
	}
	rate := ch.Load * float64(c.capacity) / (float64(demand) / float64(len(ready)))
	next := 0.0
	fill := int(rate)
	for s.now < ch.WarmUp+ch.Measured {
		s.advance(next)
		s.measure = s.now >= ch.WarmUp
		p := &ready[rng.Intn(len(ready))]
		s.arrive(p, next+rng.ExpFloat64())
		if fill > 0 {
			fill--
			continue
		}
		next += rng.ExpFloat64() / rate
	}
	s.run.Steady = s.area / s.span / float64(c.capacity) * 100
	return s.run
}

// system is a churn in progress.
type system struct {
	cluster *cluster
	chooser *chooser
	run     *Run
	leaving departures
	now     float64
	measure bool
	area    float64 // thousandths of cards in use, over measured time
	span    float64
}

// advance lets time pass until then, and pods leave.
func (s *system) advance(then float64) {
	for len(s.leaving) > 0 && s.leaving[0].at <= then {
		d := heap.Pop(&s.leaving).(departure)
		s.pass(d.at)
		s.cluster.remove(d.placed)
	}
	s.pass(then)
}

func (s *system) pass(then float64) {
	if s.measure {
		s.area += float64(s.cluster.used) * (then - s.now)
		s.span += then - s.now
	}
	s.now = then
}

func (s *system) arrive(p *pod, leave float64) {
	node, card, ok := s.chooser.choose(p)
	if ok {
		heap.Push(&s.leaving, departure{leave, s.cluster.put(node, card, p)})
	}
	if s.measure {
		s.run.count(p, ok)
	}
}

type departure struct {
	at float64
	placed
}

// departures is a heap, the next first.
type departures []departure

func (d departures) Len() int           { return len(d) }
func (d departures) Less(i, j int) bool { return d[i].at < d[j].at }
func (d departures) Swap(i, j int)      { d[i], d[j] = d[j], d[i] }
func (d *departures) Push(x any)        { *d = append(*d, x.(departure)) }
func (d *departures) Pop() any {
	last := len(*d) - 1
	x := (*d)[last]
	*d = (*d)[:last]
	return x
}
