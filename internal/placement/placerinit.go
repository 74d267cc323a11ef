package placement

import "slices"

// placeInit puts the init containers on cards, when all others have theirs. They
// take turns, so that what one gets leaves the others what they had: the best card
// for each is a choice that need never be taken back.
func (p *Placer) placeInit() bool {
	if !p.inits {
		return true
	}
	clear(p.prefix)
	copy(p.most, p.running)
	for i := range p.r.Containers {
		c := &p.r.Containers[i]
		switch {
		case c.Stage == Sidecar:
			for _, card := range p.of(i) {
				p.prefix[card].add(p.node.Cards[card].part(c))
			}
		case c.Stage == Init && !slices.Contains(p.order, i):
			if !p.placeOneInit(i, c) {
				p.showRunning()
				return false
			}
		}
	}
	return true
}

func (p *Placer) placeOneInit(i int, k *Container) bool {
	mine := p.of(i)
	for slot := range mine {
		from := len(p.options)
		p.offerInit(mine[:slot], k)
		if len(p.options) == from {
			return false
		}
		mine[slot] = p.options[from].card
		p.options = p.options[:from]
	}
	for _, card := range mine {
		p.most[card] = p.mostWith(card, k)
		p.show(card, p.most[card])
	}
	return true
}

// offerInit pushes the cards that an init container which has mine already may get,
// best first.
func (p *Placer) offerInit(mine []int, k *Container) {
	from := len(p.options)
	for card := range p.node.Cards {
		if !slices.Contains(mine, card) && p.allowedInit(card) && p.fitsInit(card, k) {
			p.options = append(p.options, option{card: card})
		}
	}
	options := p.options[from:]
	if p.scorer == nil || len(options) < 2 {
		return
	}
	for o := range options {
		card := options[o].card
		p.show(card, p.mostWith(card, k))
		options[o].score = p.scorer.Score(p.node, &p.after, p.r)
		p.show(card, p.most[card])
	}
	bestFirst(options)
}

func (p *Placer) allowedInit(card int) bool {
	switch p.r.Together {
	case Same:
		return slices.Contains(p.of(p.order[0]), card)
	case Different:
		return p.prefix[card].Tenants == 0
	}
	return true
}

func (p *Placer) fitsInit(card int, k *Container) bool {
	c := &p.node.Cards[card]
	return c.serves(p.r.Models) && p.prefix[card].joins(c.part(k)) && c.holds(p.mostWith(card, k))
}

// mostWith is the peak on card with an init container k.
func (p *Placer) mostWith(card int, k *Container) Use {
	begun := p.prefix[card]
	begun.add(p.node.Cards[card].part(k))
	return peak(p.most[card], begun)
}

func (p *Placer) showRunning() {
	for card, use := range p.running {
		p.show(card, use)
	}
}
