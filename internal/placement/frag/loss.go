package frag

import (
	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/share"
)

// losses are the tables of a target for each model of a cluster. Read-only.
type losses struct {
	models []string
	tables []*stranding
	other  *stranding // of models that no node had when the tables were made
	// pressure is how much of a card's worth is its core; the rest is its memory.
	pressure float64
}

func newLosses(t Target, models []string) *losses {
	l := &losses{models: models, other: newStranding(t, ""), pressure: 1}
	for _, m := range models {
		l.tables = append(l.tables, newStranding(t, m))
	}
	return l
}

func (l *losses) table(model string) *stranding {
	for i, m := range l.models {
		if m == model {
			return l.tables[i]
		}
	}
	return l.other
}

// free is what is free of c, in thousandths of a card: its core, or core and memory
// by their worth.
func (l *losses) free(c *placement.Card) int64 {
	core := int64(freeCore(c)) * milliPerPercent
	if l.pressure >= 1 || c.Memory <= 0 {
		return core
	}
	memory := float64(c.Free()) / float64(c.Memory) * milli
	return int64(l.pressure*float64(core) + (1-l.pressure)*memory)
}

const (
	milli           = 1000
	milliPerPercent = 10
)

// ofNode is what n strands, in thousandths of a card times unit, if cpu is free.
func (l *losses) ofNode(n *placement.Node, cpu int64) int64 {
	s := l.sum(n, cpu)
	return s.total()
}

// sum is a node's loss, kept so that the loss after a change of one card costs no
// second pass.
type sum struct {
	losses *losses
	table  *stranding
	cpu    int   // level of free CPU
	shared int64 // loss of the cards that have tenants
	idle   int   // cards that have none
	sample *placement.Card
}

// of is the table for n's cards.
func (l *losses) of(n *placement.Node) *stranding {
	if len(n.Cards) == 0 {
		return l.other
	}
	return l.table(n.Cards[0].Model)
}

// sameLevel reports whether n strands the same with so much CPU less free.
func (l *losses) sameLevel(n *placement.Node, cpu int64) bool {
	t := l.of(n)
	return t.level(n, n.FreeCPU) == t.level(n, n.FreeCPU-cpu)
}

func (l *losses) sum(n *placement.Node, cpu int64) sum {
	s := sum{losses: l, table: l.of(n)}
	s.cpu = s.table.level(n, cpu)
	for i := range n.Cards {
		c := &n.Cards[i]
		if isIdle(c) {
			s.idle++
			s.sample = c
			continue
		}
		s.shared += s.ofShared(c)
	}
	return s
}

func (s *sum) ofShared(c *placement.Card) int64 {
	free := s.losses.free(c)
	if free == 0 {
		return 0
	}
	return free * s.table.ofShared(c, s.cpu)
}

func (s *sum) total() int64 { return s.shared + s.ofIdle(s.idle) }

func (s *sum) ofIdle(idle int) int64 {
	if idle == 0 {
		return 0
	}
	return int64(idle) * s.losses.free(s.sample) * s.table.ofIdle(s.sample, s.cpu, idle)
}

// with is the loss if c came to be after.
func (s *sum) with(c, after *placement.Card) int64 {
	if isIdle(c) {
		return s.shared + s.ofShared(after) + s.ofIdle(s.idle-1)
	}
	return s.shared - s.ofShared(c) + s.ofShared(after) + s.ofIdle(s.idle)
}

// around is what n strands now, and the sum for when r has taken its CPU.
func (l *losses) around(n *placement.Node, r *placement.Request) (was int64, now sum) {
	now = l.sum(n, n.FreeCPU)
	was = now.total()
	if now.table.level(n, n.FreeCPU-r.CPU) != now.cpu {
		now = l.sum(n, n.FreeCPU-r.CPU)
	}
	return was, now
}

// less is the loss if so many of the idle cards were taken as a whole.
func (s *sum) less(cards int) int64 { return s.shared + s.ofIdle(s.idle-cards) }

// hasRoom reports whether the one-card share s, which is no whole card, fits on c.
func hasRoom(c *placement.Card, s share.Share) bool {
	core := s.Core
	if s.Class == share.Offline {
		core = 0
	}
	return c.Unhealthy == "" && !c.Whole && c.Tenants < placement.MaxTenants &&
		c.Core+core <= share.Whole && s.Memory <= c.Free()
}

// single is the share of a request of at most one container, which Pick can place
// without trying. It is false for others.
func single(r *placement.Request) (s share.Share, ok bool) {
	switch len(r.Containers) {
	case 0:
		return s, true
	case 1:
		s = r.Containers[0].Share
		return s, s.WholeCards() || s.Cards() == 1
	}
	return s, false
}

// firstIdle is the first of n's idle cards if there are at least so many, else -1.
func firstIdle(n *placement.Node, cards int) int {
	first, idle := -1, 0
	for i := range n.Cards {
		if c := &n.Cards[i]; isIdle(c) && c.Unhealthy == "" {
			if first < 0 {
				first = i
			}
			idle++
		}
	}
	if idle < cards {
		return -1
	}
	return first
}
