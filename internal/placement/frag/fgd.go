package frag

import (
	"math"

	"github.com/qgpu-project/qgpu/internal/placement"
)

// FGD is the fragmentation gradient descent of Weng et al., "Beware of
// Fragmentation" (USENIX ATC 2023), with the coarse score of its authors' simulator:
// the step in what the node strands, through a sigmoid, cut to 0…100. Many nodes
// score the same, and it matters that ties go to the first of a fixed order of nodes.
type FGD struct{ losses *losses }

// NewFGD measures against t on nodes of the given card models.
func NewFGD(t Target, models []string) *FGD { return &FGD{newLosses(t.Popular(popular), models)} }

// popular is the part of the pods that the paper's target workload covers.
const popular = 0.95

// Score implements [placement.Scorer].
func (f *FGD) Score(before, after *placement.Node, _ *placement.Request) int64 {
	return coarse(f.losses.ofNode(before, before.FreeCPU) - f.losses.ofNode(after, after.FreeCPU))
}

// Pick is what Score says at best of r on n, and the first card where it says so: of
// several whole cards the first idle one, of none -1. It costs less than to try all.
// It is false for requests of several containers or parts, and if n's cards have no
// room.
func (f *FGD) Pick(n *placement.Node, r *placement.Request) (card int, score int64, ok bool) {
	s, ok := single(r)
	if !ok {
		return -1, 0, false
	}
	was, now := f.losses.around(n, r)
	switch {
	case len(r.Containers) == 0:
		return -1, coarse(was - now.total()), true
	case s.WholeCards():
		if card = firstIdle(n, s.Cards()); card < 0 {
			return -1, 0, false
		}
		return card, coarse(was - now.less(s.Cards())), true
	}
	card = -1
	for i := range n.Cards {
		c := &n.Cards[i]
		if !hasRoom(c, s) {
			continue
		}
		after := *c
		after.Take(c.Quota(s))
		if v := coarse(was - now.with(c, &after)); card < 0 || v > score {
			card, score = i, v
		}
	}
	return card, score, card >= 0
}

func coarse(gain int64) int64 {
	x := float64(gain) / unit / milli
	return int64(100 / (1 + math.Exp(-x)))
}
