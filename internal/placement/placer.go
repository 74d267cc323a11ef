package placement

import (
	"cmp"
	"slices"

	"github.com/qgpu-project/qgpu/internal/share"
)

// maxTries bounds the search on one node. A pod of a few containers needs some
// dozens; only a pod made to be hard comes here, and it must not hold up others.
const maxTries = 20_000

// Placer finds places for requests. It holds the memory of its search, so that
// placing allocates nothing once it has seen a node and a request of the size.
// It serves one caller at a time; the zero Placer is ready.
type Placer struct {
	node   *Node
	after  Node
	r      *Request
	scorer Scorer

	order   []int    // the containers that are no init containers, largest first
	first   []int    // by container: where its cards begin in cards
	cards   []int    // by container and slot: a position in node.Cards, or -1
	class   []int    // by card: the position of the first card that is alike
	running []Use    // by card: what r's sidecars and apps take of it
	prefix  []Use    // by card: what the sidecars before an init container take
	most    []Use    // by card: the peak of what r takes, with its init containers
	banned  []bool   // by place in order and card: tried there without success
	options []option // a stack: the candidates of each open choice
	inits   bool     // the request has init containers
	tries   int
}

// option is a card that a container may get.
type option struct {
	card  int
	score int64
}

// Place looks for cards of n for all containers of r, and reports whether there are
// any. Where there are several ways it prefers, container by container with the
// largest first, what s rates highest, and among equals the card that comes first;
// without s it takes the first that fit. n must not change until the result is read.
func (p *Placer) Place(n *Node, r *Request, s Scorer) bool {
	p.reset(n, r, s)
	if n.CPU > 0 && r.CPU > n.FreeCPU || r.Together == Same && !evenCards(r) || !p.roomInAll() {
		return false
	}
	return p.place(0, 0)
}

// Exhausted reports whether the last Place gave up before it had tried all ways.
func (p *Placer) Exhausted() bool { return p.tries > maxTries }

// After is the node of the last Place that succeeded, with the request on it.
// It is valid until the next Place.
func (p *Placer) After() *Node { return &p.after }

// Assignment is the result of the last Place that succeeded.
func (p *Placer) Assignment() Assignment {
	a := make(Assignment, len(p.r.Containers))
	for i, c := range p.r.Containers {
		for _, card := range slices.Sorted(slices.Values(p.of(i))) {
			a[c.Name] = append(a[c.Name], p.node.Cards[card].slice(&p.r.Containers[i]))
		}
	}
	return a
}

// of is where container i's cards are kept.
func (p *Placer) of(i int) []int { return p.cards[p.first[i]:p.first[i+1]] }

func (p *Placer) reset(n *Node, r *Request, s Scorer) {
	p.node, p.r, p.scorer, p.tries = n, r, s, 0
	cards := append(p.after.Cards[:0], n.Cards...)
	p.after = *n
	p.after.Cards = cards
	p.after.FreeCPU -= r.CPU

	p.order, p.first, p.cards, p.options = p.order[:0], append(p.first[:0], 0), p.cards[:0], p.options[:0]
	for i, c := range r.Containers {
		for range c.Share.Cards() {
			p.cards = append(p.cards, -1)
		}
		p.first = append(p.first, len(p.cards))
		if c.Stage != Init {
			p.order = append(p.order, i)
		}
	}
	p.inits = len(p.order) < len(r.Containers)
	if r.Together == Same && len(p.order) == 0 && p.inits {
		p.order = append(p.order, 0) // whose cards all others must have
	}
	slices.SortStableFunc(p.order, func(i, j int) int {
		return bySize(r.Containers[i].Share, r.Containers[j].Share)
	})
	p.class = p.class[:0]
	for i := range n.Cards {
		first := 0
		for !n.Cards[first].alike(&n.Cards[i]) {
			first++
		}
		p.class = append(p.class, first)
	}
	p.running = zeroed(p.running, len(n.Cards))
	p.prefix = zeroed(p.prefix, len(n.Cards))
	p.most = zeroed(p.most, len(n.Cards))
	p.banned = zeroed(p.banned, len(n.Cards)*len(p.order))
}

func zeroed[T any](s []T, n int) []T {
	s = slices.Grow(s[:0], n)[:n]
	clear(s)
	return s
}

// bySize orders shares that are harder to place first, and equal ones together.
func bySize(a, b share.Share) int {
	return cmp.Or(cmp.Compare(b.Cards(), a.Cards()), cmp.Compare(b.Core, a.Core),
		cmp.Compare(b.Memory, a.Memory), cmp.Compare(a.Class, b.Class))
}

func evenCards(r *Request) bool {
	for _, c := range r.Containers {
		if c.Share.Cards() != r.Containers[0].Share.Cards() {
			return false
		}
	}
	return true
}

// roomInAll reports whether the sums of what is free could do: a cheap no for nodes
// that are nearly full.
func (p *Placer) roomInAll() bool {
	var memory share.Memory
	var core, tenants int
	for i := range p.node.Cards {
		c := &p.node.Cards[i]
		if c.Unhealthy == "" && !c.Whole {
			memory, core, tenants = memory+c.Free(), core+share.Whole-c.Core, tenants+MaxTenants-c.Tenants
		}
	}
	for _, i := range p.order {
		s := p.r.Containers[i].Share
		memory -= s.Memory
		core -= reserved(s)
		tenants -= s.Cards()
	}
	return memory >= 0 && core >= 0 && tenants >= 0
}

// place puts the container at order[at] and all that follow on cards, from the
// slot'th card of that container on, and reports whether it could.
func (p *Placer) place(at, slot int) bool {
	if at == len(p.order) {
		return p.placeInit()
	}
	i := p.order[at]
	mine := p.of(i)
	if slot == len(mine) {
		p.inherit(at + 1)
		return p.place(at+1, 0)
	}
	k := &p.r.Containers[i]
	from := len(p.options)
	p.offer(at, slot, k)
	to := len(p.options)
	for o := from; o < to; o++ {
		if p.tries++; p.tries > maxTries {
			break
		}
		card := p.options[o].card
		was := p.running[card]
		p.put(card, p.node.Cards[card].part(k))
		mine[slot] = card
		if p.place(at, slot+1) {
			return true
		}
		mine[slot] = -1
		p.set(card, was)
		p.ban(at, card)
	}
	for o := from; o < to; o++ {
		p.unban(at, p.options[o].card)
	}
	p.options = p.options[:from]
	return false
}

// offer pushes the cards that the container at order[at] may get, best first and
// one of each kind.
func (p *Placer) offer(at, slot int, k *Container) {
	from := len(p.options)
	mine := p.of(p.order[at])[:slot]
	for card := range p.node.Cards {
		if p.banned[at*len(p.class)+card] || slices.Contains(mine, card) || !p.allowed(at, card) || !p.fits(card, k) {
			continue
		}
		if !slices.ContainsFunc(p.options[from:], func(o option) bool { return p.equal(o.card, card) }) {
			p.options = append(p.options, option{card: card})
		}
	}
	p.rank(p.options[from:], p.running, k)
}

// rank orders options by what the scorer makes of a card with k beside what use
// says of it.
func (p *Placer) rank(options []option, use []Use, k *Container) {
	if p.scorer == nil || len(options) < 2 {
		return
	}
	for i := range options {
		card := options[i].card
		u := use[card]
		u.add(p.node.Cards[card].part(k))
		p.show(card, u)
		options[i].score = p.scorer.Score(p.node, &p.after, p.r)
		p.show(card, use[card])
	}
	bestFirst(options)
}

func bestFirst(options []option) {
	slices.SortFunc(options, func(a, b option) int {
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.card, b.card))
	})
}

// allowed reports whether the request's rule lets the container at order[at] have card.
func (p *Placer) allowed(at, card int) bool {
	switch p.r.Together {
	case Same:
		return at == 0 || slices.Contains(p.of(p.order[0]), card)
	case Different:
		return p.running[card].Tenants == 0
	}
	return true
}

func (p *Placer) fits(card int, k *Container) bool {
	c := &p.node.Cards[card]
	use, running := c.part(k), p.running[card]
	if !c.serves(p.r.Models) || !running.joins(use) {
		return false
	}
	running.add(use)
	return c.holds(running)
}

// equal reports whether it makes no difference which of two cards is taken next.
// Where init containers are to come it matters who runs on a card, not only how much.
func (p *Placer) equal(a, b int) bool {
	return p.class[a] == p.class[b] && p.running[a] == p.running[b] && (!p.inits || p.running[a].Tenants == 0)
}

func (p *Placer) put(card int, use Use) {
	p.running[card].add(use)
	p.set(card, p.running[card])
}

func (p *Placer) set(card int, use Use) {
	p.running[card] = use
	p.show(card, use)
}

// show lets the scorer see use on card.
func (p *Placer) show(card int, use Use) {
	p.after.Cards[card] = p.node.Cards[card]
	p.after.Cards[card].add(use)
}

// ban keeps the container at order[at] off card and its equals: all ways with any
// of them were tried. unban takes that back.
func (p *Placer) ban(at, card int)   { p.mark(at, card, true) }
func (p *Placer) unban(at, card int) { p.mark(at, card, false) }

func (p *Placer) mark(at, card int, banned bool) {
	row := p.banned[at*len(p.class):][:len(p.class)]
	for other := range row {
		if other == card || p.equal(card, other) {
			row[other] = banned
		}
	}
}

// inherit bans for the container at order[at] what is banned for the one before it,
// if they ask the same: to swap them makes no difference.
func (p *Placer) inherit(at int) {
	if at >= len(p.order) {
		return
	}
	row := p.banned[at*len(p.class):][:len(p.class)]
	clear(row)
	a, b := &p.r.Containers[p.order[at-1]], &p.r.Containers[p.order[at]]
	if a.asks(b) && a.Stage == App && a.Share.Cards() == 1 {
		copy(row, p.banned[(at-1)*len(p.class):])
	}
}
