package frag

import (
	"math"
	"slices"

	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/share"
)

// prices is what free parts of cards are worth, in thousandths of a card. A free part
// is worth the best set of expected pods that it can take, each at what it uses less
// its own price. The price of a pod is raised while more of its kind would be placed
// than are expected, and lowered while fewer would: a pod of a plentiful kind is no
// reason to keep a part of its size, a rare one is soon served. These are the dual
// prices of the linear program that fits the expected pods, as much as there is room
// for, into what is free now; subgradient steps find them near enough, and what was
// found last is the start of the next time.
type prices struct {
	models []string
	worth  [][]float64 // by model, and by level of core and memory: see at
	step   int         // of core, in percent
	mems   int         // levels of memory; 0 if the expected pods ask for none
}

// kind is expected pods that take the same part of a card.
type kind struct {
	Core   int
	Memory share.Memory
	Models string
}

// item is a kind with what the search needs.
type item struct {
	kind
	demand float64   // expected parts for each thousandth of a card of room
	core   int       // in steps
	fits   []bool    // by model
	mem    []int     // by model: levels, rounded up
	value  []float64 // by model: what it uses, in thousandths of a card
	price  float64
}

const (
	rounds    = 60  // of steps, each time
	firstRise = 10  // times as many the first time
	stride    = 0.3 // of the first step, as part of what the pod uses
)

// at is where the worth of so many steps of core and levels of memory is kept.
func (p *prices) at(core, mem int) int { return core*(p.mems+1) + mem }

// of is what is free of c worth.
func (p *prices) of(worth []float64, c *placement.Card) float64 {
	mem := 0
	if p.mems > 0 {
		mem = memoryLevel(c)
	}
	return worth[p.at(freeCore(c)/p.step, mem)]
}

// table is the worth of cards of a model; nil if the model is not known.
func (p *prices) table(model string) []float64 {
	for i, m := range p.models {
		if m == model {
			return p.worth[i]
		}
	}
	return nil
}

// pricing finds prices, and remembers those of kinds.
type pricing struct {
	known map[kind]float64
}

// solve prices what c has free for the pods that t expects. pressure is the part of a
// card's worth that is core.
func (g *pricing) solve(t Target, c *census, pressure float64) *prices {
	p := &prices{models: c.names(), step: share.Whole}
	if len(p.models) == 0 {
		return p
	}
	items := g.items(t, c, p, pressure)
	first := len(g.known) == 0
	room := 0.0
	stocks := make([][]stock, len(p.models))
	for m, name := range p.models {
		stocks[m] = stocksOf(c.models[name], p)
		for _, s := range stocks[m] {
			room += s.cards * p.used(s.core, s.mem, pressure)
		}
	}
	n := rounds
	if first {
		n *= firstRise
	}
	g.ascend(items, stocks, p, room, n)
	g.known = make(map[kind]float64, len(items))
	for i := range items {
		g.known[items[i].kind] = items[i].price
	}
	return p
}

// used is what so many steps of core and levels of memory are of a card.
func (p *prices) used(core, mem int, pressure float64) float64 {
	used := float64(core*p.step) * milliPerPercent
	if p.mems > 0 {
		used = pressure*used + (1-pressure)*float64(mem)/memoryLevels*milli
	}
	return used
}

// items are the kinds of t, and sets p's steps and levels for them.
func (g *pricing) items(t Target, c *census, p *prices, pressure float64) []item {
	var items []item
	at := map[kind]int{}
	for _, w := range t {
		if w.Cards == 0 || w.Core == 0 && w.Memory == 0 {
			continue
		}
		k := kind{min(w.Core, share.Whole), w.Memory, w.Models}
		if w.whole() {
			k.Memory = 0
		} else if w.Memory > 0 {
			p.mems = memoryLevels
		}
		i, ok := at[k]
		if !ok {
			i = len(items)
			at[k] = i
			items = append(items, item{kind: k, price: g.known[k]})
			p.step = gcd(p.step, k.Core)
		}
		items[i].demand += w.Weight * float64(w.Cards)
	}
	var total float64
	for i := range items {
		it := &items[i]
		it.core = it.Core / p.step
		most := 0.0
		for _, name := range p.models {
			s := c.models[name]
			mem := s.levels(it.Memory)
			if it.Core == share.Whole && it.Memory == 0 {
				mem = p.mems
			}
			if p.mems == 0 {
				mem = 0
			}
			it.fits = append(it.fits, Shape{Models: it.Models}.serves(name) && mem <= p.mems && it.core+mem > 0)
			it.mem = append(it.mem, mem)
			it.value = append(it.value, p.used(it.core, mem, pressure))
			most = max(most, p.used(it.core, mem, pressure))
		}
		total += it.demand * most
	}
	for i := range items {
		items[i].demand /= max(total, 1)
	}
	return items
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// stock is cards with the same free.
type stock struct {
	core, mem int // steps and levels
	cards     float64
}

func stocksOf(s *modelStock, p *prices) []stock {
	var stocks []stock
	for core := range s.free {
		for mem, n := range s.free[core] {
			if p.mems == 0 {
				mem = 0
			}
			if n > 0 && (core >= p.step || mem > 0) {
				stocks = append(stocks, stock{core / p.step, mem, float64(n)})
			}
		}
	}
	return stocks
}

// ascend moves the items' prices n steps, and leaves the mean of the later ones.
func (g *pricing) ascend(items []item, stocks [][]stock, p *prices, room float64, n int) {
	size := (share.Whole/p.step + 1) * (p.mems + 1)
	search := knapsack{prices: p, items: items, worth: make([]float64, size), choice: make([]int, size)}
	placed, sums := make([]float64, len(items)), make([]float64, len(items))
	from := n / 3
	for round := range n {
		clear(placed)
		for m := range p.models {
			search.fill(m)
			for _, s := range stocks[m] {
				search.count(m, s, placed)
			}
		}
		stride := stride / math.Sqrt(1+float64(round))
		for i := range items {
			it := &items[i]
			if round >= from {
				sums[i] += it.price
			}
			expected := it.demand * room
			excess := max(-1, min(1, (placed[i]-expected)/(expected+1)))
			most := slices.Max(it.value)
			it.price = max(0, min(most, it.price+stride*most*excess))
		}
	}
	for i := range items {
		items[i].price = sums[i] / float64(n-from)
	}
	for m := range p.models {
		search.fill(m)
		p.worth = append(p.worth, slices.Clone(search.worth))
	}
}

// knapsack is the best set of items for every free part of a card.
type knapsack struct {
	*prices
	items  []item
	worth  []float64
	choice []int   // the item taken last, or one of:
	offers []offer // of the model at hand
}

// offer is an item that is worth more than its price.
type offer struct {
	item, core, mem, back int
	gain                  float64
}

const (
	lessCore   = -1 // leave a step of core
	lessMemory = -2 // leave a level of memory
)

// fill finds the sets for cards of model m.
func (k *knapsack) fill(m int) {
	k.offers = k.offers[:0]
	for i := range k.items {
		it := &k.items[i]
		if gain := it.value[m] - it.price; it.fits[m] && gain > 1e-9 {
			k.offers = append(k.offers, offer{i, it.core, it.mem[m], k.at(it.core, it.mem[m]), gain})
		}
	}
	for core := 0; core <= share.Whole/k.step; core++ {
		for mem := 0; mem <= k.mems; mem++ {
			at := k.at(core, mem)
			best, choice := 0.0, lessCore
			if core > 0 {
				best = k.worth[k.at(core-1, mem)]
			}
			if mem > 0 && (core == 0 || k.worth[at-1] > best) {
				best, choice = k.worth[at-1], lessMemory
			}
			for o := range k.offers {
				of := &k.offers[o]
				if of.core > core || of.mem > mem {
					continue
				}
				if v := k.worth[at-of.back] + of.gain; v > best+1e-9 {
					best, choice = v, of.item
				}
			}
			k.worth[at], k.choice[at] = best, choice
		}
	}
}

// count adds the items that the cards of s would take.
func (k *knapsack) count(m int, s stock, placed []float64) {
	for core, mem := s.core, s.mem; core > 0 || mem > 0; {
		switch i := k.choice[k.at(core, mem)]; {
		case i == lessMemory:
			mem--
		case i == lessCore:
			core--
		default:
			placed[i] += s.cards
			core, mem = core-k.items[i].core, mem-k.items[i].mem[m]
		}
	}
}
