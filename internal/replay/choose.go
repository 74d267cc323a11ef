package replay

import (
	"math"

	"github.com/qgpu-project/qgpu/internal/placement/frag"
)

// noRoom is the rate of a node without room.
const noRoom = math.MinInt64

// chooser finds the best node for pods. It keeps rates by shape and node, and rates
// anew only what changed.
type chooser struct {
	cluster *cluster
	rater   rater
	keep    bool
	shapes  []rates
}

// rates are those of one shape.
type rates struct {
	version []uint32
	score   []int64
	card    []int16
}

func newChooser(c *cluster, r rater, shapes int) *chooser {
	_, dice := r.(*random)
	return &chooser{cluster: c, rater: r, keep: !dice, shapes: make([]rates, shapes)}
}

// choose is the best node for p, which has just come, and the card for its part. It
// is false if no node has room.
func (c *chooser) choose(p *pod) (node, card int, ok bool) { return c.find(p, true) }

// find is choose for a pod that has just come, or for one that was seen before.
func (c *chooser) find(p *pod, fresh bool) (node, card int, ok bool) {
	if l, learns := c.rater.(learner); learns && fresh && l.see(p) {
		c.forget()
	}
	r := &c.shapes[p.shape]
	if r.version == nil {
		n := len(c.cluster.nodes)
		*r = rates{make([]uint32, n), make([]int64, n), make([]int16, n)}
	}
	var kept frag.Kept
	if k, ok := c.rater.(keeper); ok && p.cards > 0 {
		kept = k.kept()
	}
	best := int64(noRoom)
	for i, version := range c.cluster.version {
		if r.version[i] != version || !c.keep {
			c.rate(r, i, p)
			r.version[i] = version
		}
		if r.score[i] > best && !kept.Keeps(&c.cluster.nodes[i], &p.request) {
			best, node = r.score[i], i
		}
	}
	if best == noRoom {
		return 0, 0, false
	}
	return node, int(r.card[node]), true
}

func (c *chooser) rate(r *rates, i int, p *pod) {
	r.score[i] = noRoom
	if !c.cluster.fits(i, p) {
		return
	}
	score, card := c.rater.rate(c.cluster, i, p)
	r.score[i], r.card[i] = max(score, noRoom+1), int16(card)
}

func (c *chooser) forget() {
	for i := range c.shapes {
		clear(c.shapes[i].version)
	}
}
