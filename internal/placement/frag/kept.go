package frag

import (
	"math"
	"slices"

	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/share"
)

// keptPart bounds the empty nodes that are kept, as a part of the nodes of their size: few
// nodes keep none.
const keptPart = 0.1

// Kept says which empty nodes are kept for pods that need all cards of a node. Where more
// pods come than find room, a node that has just become empty goes to smaller pods, which
// come more often, and pods that need whole nodes starve. Where nothing is given back yet, as
// in a cluster that fills up, no node is kept. The zero Kept keeps none.
type Kept struct {
	wanted *[maxIdle + 1]wholeNodes // nil: none
	few    [maxIdle + 1]bool        // no more nodes of so many cards are empty than are kept
}

// wholeNodes is what is expected of pods that need all cards of a node of one size.
type wholeNodes struct {
	most   int      // empty nodes to keep
	models []string // of cards, that will do for some of these pods
}

// Keeps reports whether n is kept from r, which needs less than all of it.
func (k *Kept) Keeps(n *placement.Node, r *placement.Request) bool {
	size := len(n.Cards)
	if k.wanted == nil || size > maxIdle || !k.few[size] || !isEmpty(n) {
		return false
	}
	cards := cardsOf(r)
	return cards > 0 && cards < size && slices.Contains(k.wanted[size].models, n.Cards[0].Model)
}

// Any reports whether k may keep a node from somebody.
func (k *Kept) Any() bool { return k.wanted != nil && slices.Contains(k.few[:], true) }

func isEmpty(n *placement.Node) bool {
	return len(n.Cards) > 0 && !slices.ContainsFunc(n.Cards, func(c placement.Card) bool { return !isIdle(&c) || c.Unhealthy != "" })
}

// cardsOf is how many cards r needs, were no two of its containers to share one.
func cardsOf(r *placement.Request) int {
	cards := 0
	for i := range r.Containers {
		if r.Containers[i].Stage != placement.Init {
			cards += r.Containers[i].Share.Cards()
		}
	}
	return cards
}

// Kept says which nodes are kept now.
func (m *Market) Kept() Kept {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refresh()
	k := Kept{wanted: &m.frag.wanted}
	for size := range k.wanted {
		w := &k.wanted[size]
		most := int(math.Round(float64(w.most) * m.turnover.part(m.census.cards)))
		if most == 0 {
			continue
		}
		empty := 0
		for _, model := range w.models {
			empty += m.census.models[model].empty[size]
		}
		k.few[size] = empty <= most
	}
	return k
}

// wanted is how many empty nodes of each size to keep. Pods that need whole nodes are taken to
// come at random: were all demand met, how many they hold would vary by about its root
// (Poisson), so that some such roots suffice for those that come while none ends.
func wanted(t Target, c *census, roots float64) [maxIdle + 1]wholeNodes {
	var sizes [maxIdle + 1]wholeNodes
	var total float64
	var weight [maxIdle + 1]float64
	for _, w := range t {
		total += w.Weight * float64(w.Cards*min(w.Core, share.Whole))
		if !w.whole() || w.Cards < 2 || w.Cards > maxIdle {
			continue
		}
		weight[w.Cards] += w.Weight
		for _, name := range c.names() {
			if s := &sizes[w.Cards]; w.serves(name) && !slices.Contains(s.models, name) {
				s.models = append(s.models, name)
			}
		}
	}
	for size := range sizes {
		s := &sizes[size]
		nodes := 0
		for _, model := range s.models {
			nodes += c.models[model].nodes[size]
		}
		if nodes == 0 || total == 0 {
			continue
		}
		held := weight[size] * share.Whole / total * float64(c.cards)
		s.most = int(min(math.Ceil(roots*math.Sqrt(held)), keptPart*float64(nodes)))
	}
	return sizes
}

// turnover is how much of the cards was taken and given back of late, in thousandths of
// cards.
type turnover struct{ taken, returned float64 }

// late is the part of a cluster's cards in whose taking and giving back what was counted
// before fades by half.
const late = 0.5

// add counts a change of what is in use of a cluster with so many cards.
func (t *turnover) add(change int64, cards int) {
	if change < 0 {
		t.returned -= float64(change)
	} else {
		t.taken += float64(change)
	}
	if t.taken+t.returned > late*milli*float64(cards) {
		t.taken, t.returned = t.taken/2, t.returned/2
	}
}

// part is what was given back as part of what was taken, 0…1; little of either counts as
// little given back.
func (t *turnover) part(cards int) float64 {
	if cards == 0 {
		return 0
	}
	return min(1, t.returned/max(t.taken, late/4*milli*float64(cards)))
}

// used is what of n's cards is in use, in thousandths of cards.
func used(n *placement.Node) int64 {
	var sum int64
	for i := range n.Cards {
		if c := &n.Cards[i]; c.Whole {
			sum += milli
		} else {
			sum += int64(c.Core) * milliPerPercent
		}
	}
	return sum
}
