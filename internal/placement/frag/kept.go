package frag

import (
	"math"
	"slices"

	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/share"
)

const (
	// keptPart bounds the nodes of one kind that are kept, as a part of the nodes of their
	// size: few nodes keep none.
	keptPart = 0.1
	// leastKept is how many cards a node has that may be kept: of smaller ones enough are
	// empty at any time.
	leastKept = 4
)

// Kept says which idle cards are kept for large pods, those that need at least half of a
// node: the cards of nodes that are empty, and those of nodes that are half empty and have
// whole cards in use for the rest. Where more pods come than find room, such cards go to
// smaller pods, which come more often, no node is ever empty again, and large pods starve.
// Where nothing is given back yet, as in a cluster that fills up, nothing is kept. The zero
// Kept keeps nothing.
type Kept struct {
	wanted *[maxIdle + 1]largePods // nil: none
	few    [maxIdle + 1][roomy]scarce
}

// scarce is from whom rooms of a kind are kept: pods that need less than half of a node, and
// those that need less than all of it.
type scarce struct{ small, half bool }

// room is how much of a node is idle, where no card is shared.
type room int

const (
	half  room = iota // half of the cards, rounded up, or more, but not all
	whole             // all cards
	roomy             // how many there are
	cramped
)

// roomOf is n's room.
func roomOf(n *placement.Node) room {
	idle, size := 0, len(n.Cards)
	for i := range n.Cards {
		switch c := &n.Cards[i]; {
		case c.Unhealthy != "" || !c.Whole && !isIdle(c):
			return cramped
		case isIdle(c):
			idle++
		}
	}
	switch {
	case size < leastKept || size > maxIdle || 2*idle < size:
		return cramped
	case idle == size:
		return whole
	}
	return half
}

// largePods is what is expected of pods that need at least half of a node of one size.
type largePods struct {
	most   [roomy]int // nodes with such room to keep
	models []string   // of cards, that will do for some of these pods
}

// Keeps reports whether n is kept from r.
func (k *Kept) Keeps(n *placement.Node, r *placement.Request) bool {
	if k.wanted == nil || len(r.Containers) == 0 {
		return false
	}
	room, size := roomOf(n), len(n.Cards)
	if room == cramped || !slices.Contains(k.wanted[size].models, n.Cards[0].Model) {
		return false
	}
	few, cards := k.few[size][room], wholeCards(r)
	return few.small && 2*cards < size || few.half && cards < size
}

// Any reports whether k may keep something from somebody.
func (k *Kept) Any() bool { return k.wanted != nil && k.few != [maxIdle + 1][roomy]scarce{} }

// wholeCards is how many whole cards r needs at a time.
func wholeCards(r *placement.Request) int {
	cards := 0
	for i := range r.Containers {
		if c := &r.Containers[i]; c.Stage != placement.Init && c.Share.WholeCards() {
			cards += c.Share.Cards()
		}
	}
	return cards
}

// Kept says what is kept now.
func (m *Market) Kept() Kept {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refresh()
	k := Kept{wanted: &m.frag.wanted}
	part := m.turnover.part(m.census.cards)
	for size := range k.wanted {
		w := &k.wanted[size]
		for room, most := range w.most {
			if most = int(math.Round(float64(most) * part)); most == 0 {
				continue
			}
			nodes := 0
			for _, model := range w.models {
				nodes += m.census.models[model].roomy[size][room]
			}
			// Half a node may be had of an empty one, if these are not all but gone.
			k.few[size][room] = scarce{small: nodes <= most, half: room == int(whole) && 4*nodes <= 3*most}
		}
	}
	return k
}

// wanted is how many nodes with room to keep, by size. Large pods are taken to come at random:
// were all demand met, how many of them there are would vary by about its root (Poisson), so
// that room for some such roots suffices for those that come while none ends. Of half nodes
// half as much will do, since they may be had of empty ones.
func wanted(t Target, c *census, roots float64) [maxIdle + 1]largePods {
	var sizes [maxIdle + 1]largePods
	var total float64
	var pods [maxIdle + 1][roomy]float64 // weights
	names := c.names()
	for _, w := range t {
		total += w.Weight * float64(w.Cards*min(w.Core, share.Whole)) / share.Whole
		if !w.whole() {
			continue
		}
		for size := max(leastKept, w.Cards); size <= min(2*w.Cards, maxIdle); size++ {
			room := half
			if w.Cards == size {
				room = whole
			}
			pods[size][room] += w.Weight
			for _, name := range names {
				if s := &sizes[size]; w.serves(name) && !slices.Contains(s.models, name) {
					s.models = append(s.models, name)
				}
			}
		}
	}
	for size := range sizes {
		s := &sizes[size]
		nodes := 0
		for _, model := range s.models {
			nodes += c.models[model].nodes[size]
		}
		for room, weight := range pods[size] {
			if weight == 0 {
				continue
			}
			many := roots * math.Sqrt(weight/total*float64(c.cards))
			if room == int(half) {
				many /= 2
			}
			s.most[room] = int(min(math.Ceil(many), keptPart*float64(nodes)))
		}
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
