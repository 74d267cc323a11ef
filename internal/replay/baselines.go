package replay

import (
	"math/rand"
	"slices"

	"github.com/qgpu-project/qgpu/internal/share"
)

// The baselines are those of the published table (github.com/hkust-adsl/
// kubernetes-scheduler-simulator), whose nodes have at most these.
const (
	mostCPU = 128_000 // thousandths of a core
	mostGPU = 8 * wholeMilli
)

// random takes any node with room, and any card.
type random struct{ rng *rand.Rand }

func (r *random) rate(c *cluster, i int, p *pod) (int64, int) {
	card, seen := -1, 0
	for j := range c.nodes[i].Cards {
		if p.kind == 0 && c.roomOn(&c.nodes[i].Cards[j], p) {
			if seen++; r.rng.Intn(seen) == 0 {
				card = j
			}
		}
	}
	return r.rng.Int63(), card
}

// tightest is the card with the least free core that has room for p's part.
func tightest(c *cluster, i int, p *pod) int {
	best := -1
	cards := c.nodes[i].Cards
	for j := range cards {
		if p.kind == 0 && c.roomOn(&cards[j], p) && (best < 0 || freeCore(&cards[j]) < freeCore(&cards[best])) {
			best = j
		}
	}
	return best
}

// dotProduct avoids nodes that are rich in what the pod asks for.
type dotProduct struct{}

func (dotProduct) rate(c *cluster, i int, p *pod) (int64, int) {
	n, f := &c.nodes[i], &c.facts[i]
	product := float64(n.FreeCPU)/mostCPU*(float64(p.cpu)/mostCPU) +
		float64(f.free)/mostGPU*(float64(p.milli())/mostGPU)
	return int64(100 * (1 - product/2)), tightest(c, i, p)
}

// clustering keeps pods with equally many cards together.
type clustering struct{}

func (clustering) rate(c *cluster, i int, p *pod) (int64, int) {
	if p.cards == 0 {
		return 0, -1
	}
	f := &c.facts[i]
	different := 0
	for _, n := range f.kinds {
		if n > 0 {
			different++
		}
	}
	score := 25 * (mostGPU - f.free) / mostGPU
	switch {
	case f.kinds[p.kind] > 0 && different == 1:
		score += 75
	case f.kinds[p.kind] > 0:
		score += 50
	case different == 0:
		score += 25
	}
	return score, tightest(c, i, p)
}

// packing prefers shared cards to free ones, and used nodes to free ones.
type packing struct{}

func (packing) rate(c *cluster, i int, p *pod) (int64, int) {
	if p.cards == 0 {
		return 0, -1
	}
	f, cards := &c.facts[i], c.nodes[i].Cards
	card := tightest(c, i, p)
	if f.idle == len(cards) {
		return max(33-int64(f.idle), int64(f.idle)), card
	}
	free := make([]int, 0, 16)
	for j := range cards {
		free = append(free, freeCore(&cards[j]))
	}
	slices.Sort(free)
	left, fresh, shared := p.cards, int64(0), int64(0)
	for _, core := range free {
		if left == 0 || core < p.core {
			continue
		}
		left--
		shared += int64(core)
		if core == share.Whole {
			fresh++
		}
	}
	if fresh > 0 {
		return max(50-fresh, 33), card
	}
	return max(100-shared/10, 50), card
}

// bestFit leaves the least of CPU and cards.
type bestFit struct{}

func (bestFit) rate(c *cluster, i int, p *pod) (int64, int) {
	left := float64(c.nodes[i].FreeCPU-p.cpu)/mostCPU*0.5 + float64(c.facts[i].free-p.milli())/mostGPU*0.5
	return int64((1 - left) * 100), tightest(c, i, p)
}
