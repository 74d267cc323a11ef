package engine

// How often the card looks at what clients write, in ns. Doorbells are pages that
// clients map, so nothing tells when one is rung: the card looks often while an owner
// is active, and less and less often afterwards.
const (
	hotFor   = 20_000_000 // an owner counts as active for so long
	coldEach = 250_000    // channels of other owners are looked at so often
)

// pauses are the times between two looks by the time since the last activity.
var pauses = []struct{ since, pause int64 }{
	{500_000, 15_000},
	{5_000_000, 100_000},
	{200_000_000, 250_000},
	{1_000_000_000, 1_000_000},
	{10_000_000_000, 2_000_000},
}

const longestPause = 4_000_000

// poll decides which channels are looked at when.
type poll struct {
	hot      []*Channel       // of active owners
	owners   map[Owner]uint64 // host time of the last activity
	last     uint64           // host time of any activity
	complete uint64           // host time of the last look at all channels
}

// active notes that a channel does something.
func (p *poll) active(c *Channel, host uint64) {
	p.last = host
	owner := c.group.owner
	before, known := p.owners[owner]
	if p.owners == nil {
		p.owners = make(map[Owner]uint64)
	}
	p.owners[owner] = host
	if !known || before+hotFor < host {
		p.all() // which makes the owner's channels hot
	}
}

// all makes the next look one at all channels.
func (p *poll) all() { p.complete = 0 }

// due returns the channels to look at now.
func (p *poll) due(e *Engine, host uint64) []*Channel {
	if host < p.complete+coldEach {
		return p.hot
	}
	p.complete = host
	p.hot = p.hot[:0]
	for owner, at := range p.owners {
		if at+hotFor < host {
			delete(p.owners, owner)
		}
	}
	all := e.channels
	for _, c := range all {
		if _, active := p.owners[c.group.owner]; active && c.fault == nil {
			p.hot = append(p.hot, c)
		}
	}
	return all
}

// pause is the time from now to the next look; negative if there is nothing to look
// at. A turn that began at begin sets the pace: the card spends no more than a fifth of
// a core on looking while it is active, and a hundredth when it is not.
func (p *poll) pause(e *Engine, begin, now uint64) int64 {
	if len(e.channels) == 0 {
		return -1
	}
	cost := int64(now - begin)
	since := int64(now - p.last)
	for _, s := range pauses {
		if since < s.since {
			return max(s.pause, 4*cost)
		}
	}
	return max(longestPause, 100*min(cost, 100_000))
}
