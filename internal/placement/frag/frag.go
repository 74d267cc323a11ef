package frag

import (
	"math"

	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/share"
)

// Weights are how much each concern of the scorer Frag counts. All are in
// thousandths of a card, but for those that say otherwise.
type Weights struct {
	Stranded float64 // part of FGD's step: what no expected pod can use any more
	Exact    float64 // for a shared card that is just full
	Coarse   float64 // what is less than this apart, in these two and in worth, is equal
	CPU      float64 // part of the cards beside which the CPU is used up
	Scarce   float64 // part of what is taken from models that others must have
	Whole    float64 // part of the idle cards of a node that are no longer together
	Draining float64 // part of Whole for each card that is idle towards such a group
	Reserve  float64 // groups of idle cards to keep beyond those expected; a number
	Kept     float64 // rooms to keep for large pods, in roots of how many such pods there would be
}

// Tuned are the weights that were found on the openb trace; docs/placement.md says
// how, and on which seeds.
func Tuned() Weights {
	return Weights{
		Stranded: 0.3, Exact: 30, Coarse: 20, CPU: 0.3, Scarce: 1,
		Whole: 0.3, Draining: 0.2, Reserve: 10, Kept: 1.6,
	}
}

// Frag is qGPU's scorer. It rates a step by what it does to what is free:
//
//   - the worth of the card's free part, at the prices of the pods to be expected,
//     and FGD's step in what none of them can use;
//   - cards beside which too little CPU is left;
//   - cards of models that only some pods will do with, when those must have them;
//   - idle cards together on a node, when pods are expected that need so many and few
//     such nodes are left.
//
// A Frag is a snapshot of what a [Market] knew. It never changes.
type Frag struct {
	weights  Weights
	losses   *losses
	prices   *prices
	scarcity map[string]float64
	// keep[k] is what breaking up the k'th idle card of a node costs.
	keep [maxIdle + 1]float64
	// cpuPerCard is the CPU that the pods on one card use, in thousandths of a core.
	cpuPerCard float64
	wanted     [maxIdle + 1]largePods // by the size of nodes
}

// side is a node before or after a step.
type side struct {
	free  int64 // thousandths of cards
	idle  int
	loss  int64
	bare  float64 // thousandths of cards beside which no CPU is left
	worth float64 // of the cards that the step changes
}

// Score implements [placement.Scorer].
func (f *Frag) Score(before, after *placement.Node, r *placement.Request) int64 {
	var a, b side
	worth, exact := f.worthOf(before), 0
	for i := range before.Cards {
		x, y := &before.Cards[i], &after.Cards[i]
		f.count(&a, x)
		f.count(&b, y)
		if *x == *y {
			continue
		}
		if worth != nil {
			a.worth += f.prices.of(worth, x)
			b.worth += f.prices.of(worth, y)
		}
		if full(y) {
			exact++
		}
	}
	a.loss, b.loss = f.losses.ofNode(before, before.FreeCPU), f.losses.ofNode(after, after.FreeCPU)
	f.bare(&a, before, before.FreeCPU)
	f.bare(&b, after, after.FreeCPU)
	return f.rate(before, &a, &b, exact)
}

// Pick is what Score says at best of r on n, and the first card where it says so: of
// several whole cards the first idle one, of none -1. It costs less than to try all.
// It is false for requests of several containers or parts, and if n's cards have no
// room.
func (f *Frag) Pick(n *placement.Node, r *placement.Request) (card int, score int64, ok bool) {
	s, ok := single(r)
	if !ok {
		return -1, 0, false
	}
	var was side
	for i := range n.Cards {
		f.count(&was, &n.Cards[i])
	}
	f.bare(&was, n, n.FreeCPU)
	if len(r.Containers) == 0 && f.losses.sameLevel(n, r.CPU) {
		b := was // only the step in loss counts, and there is none
		f.bare(&b, n, n.FreeCPU-r.CPU)
		return -1, f.rate(n, &was, &b, 0), true
	}
	var now sum
	was.loss, now = f.losses.around(n, r)
	switch {
	case len(r.Containers) == 0:
		b := was
		b.loss = now.total()
		f.bare(&b, n, n.FreeCPU-r.CPU)
		return -1, f.rate(n, &was, &b, 0), true
	case s.WholeCards():
		return f.pickWhole(n, r, s.Cards(), was, &now)
	}
	return f.pickPart(n, r, s, was, &now)
}

func (f *Frag) pickWhole(n *placement.Node, r *placement.Request, cards int, a side, now *sum) (card int, score int64, ok bool) {
	card = firstIdle(n, cards)
	if card < 0 {
		return -1, 0, false
	}
	b := a
	b.idle -= cards
	b.free -= int64(cards) * f.losses.free(&n.Cards[card])
	b.loss = now.less(cards)
	f.bare(&b, n, n.FreeCPU-r.CPU)
	if worth := f.worthOf(n); worth != nil {
		for range cards {
			a.worth += f.prices.of(worth, &n.Cards[card])
		}
	}
	return card, f.rate(n, &a, &b, 0), true
}

func (f *Frag) pickPart(n *placement.Node, r *placement.Request, s share.Share, was side, now *sum) (card int, score int64, ok bool) {
	worth := f.worthOf(n)
	card = -1
	for i := range n.Cards {
		c := &n.Cards[i]
		if !hasRoom(c, s) || card >= 0 && sameUse(c, &n.Cards[card]) {
			continue
		}
		after := *c
		after.Take(c.Quota(s))
		a, b, exact := was, was, 0
		b.free += f.losses.free(&after) - f.losses.free(c)
		if isIdle(c) {
			b.idle--
		}
		b.loss = now.with(c, &after)
		f.bare(&b, n, n.FreeCPU-r.CPU)
		if worth != nil {
			a.worth, b.worth = f.prices.of(worth, c), f.prices.of(worth, &after)
		}
		if full(&after) {
			exact = 1
		}
		if v := f.rate(n, &a, &b, exact); card < 0 || v > score {
			card, score = i, v
		}
	}
	return card, score, card >= 0
}

// sameUse reports whether a scorer finds no difference between two cards of a node.
func sameUse(a, b *placement.Card) bool {
	return a.Core == b.Core && a.Taken == b.Taken && a.Memory == b.Memory && a.Tenants == b.Tenants && a.Whole == b.Whole
}

// full reports whether tenants share c and use all of its core.
func full(c *placement.Card) bool { return !c.Whole && c.Core >= share.Whole }

func (f *Frag) worthOf(n *placement.Node) []float64 {
	if len(n.Cards) == 0 {
		return nil
	}
	return f.prices.table(n.Cards[0].Model)
}

func (f *Frag) count(s *side, c *placement.Card) {
	s.free += f.losses.free(c)
	if isIdle(c) {
		s.idle++
	}
}

func (f *Frag) bare(s *side, n *placement.Node, cpu int64) {
	s.bare = 0
	if n.CPU > 0 && f.cpuPerCard > 0 {
		s.bare = max(0, float64(s.free)-float64(cpu)/f.cpuPerCard*milli)
	}
}

// rate is what the step from a to b is worth, in millionths of a card.
func (f *Frag) rate(n *placement.Node, a, b *side, exact int) int64 {
	w := &f.weights
	taken := float64(a.free - b.free)
	v := w.Stranded*float64(a.loss-b.loss)/unit + w.Exact*float64(exact)
	if a.worth != 0 || b.worth != 0 {
		v += taken + b.worth - a.worth
	}
	if w.Coarse > 0 {
		v = w.Coarse * math.Floor(v/w.Coarse+1e-9)
	}
	v -= w.CPU * (b.bare - a.bare)
	if len(n.Cards) > 0 && taken > 0 {
		v -= w.Scarce * f.scarcity[n.Cards[0].Model] * taken
	}
	for k := min(a.idle, maxIdle); k > b.idle; k-- {
		v -= f.keep[k]
	}
	return int64(math.Round(v * milli))
}
