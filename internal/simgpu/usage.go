package simgpu

import (
	"time"

	"github.com/qgpu-project/qgpu/internal/simgpu/engine"
)

// CardUsage is what the processes of a card had of its graphics and compute engine.
type CardUsage struct {
	// Now is the card's clock in ns.
	Now uint64 `json:"now"`
	// Used is the engine time of each process with channel groups, by process id in the
	// driver's pid namespace, since its first group.
	Used map[int]time.Duration `json:"used"`
}

// Usage is what the cards' own accounts say. A real driver has none so exact: it is for
// whoever wants to check what a share is worth, not for those who enforce it.
func (d *Driver) Usage() []CardUsage {
	list := make([]CardUsage, len(d.cards))
	for i, c := range d.cards {
		list[i] = CardUsage{Now: c.engine.Now(), Used: make(map[int]time.Duration)}
		for owner, used := range c.engine.Used() {
			if pid, ok := owner.(int); ok {
				list[i].Used[pid] = used
			}
		}
	}
	return list
}

// CardHistory is what the processes of a card had of its graphics and compute engine in
// consecutive periods of its clock.
type CardHistory struct {
	Start   uint64                  `json:"start"` // of the first, in ns
	Period  time.Duration           `json:"period"`
	Periods []map[int]time.Duration `json:"periods"` // by process id
}

// History is what the cards' own accounts say of the time since from, in ns of their clocks,
// or of the last 10 s of it.
func (d *Driver) History(from uint64) []CardHistory {
	list := make([]CardHistory, len(d.cards))
	for i, c := range d.cards {
		h := CardHistory{Period: engine.HistoryPeriod}
		var periods []map[engine.Owner]time.Duration
		h.Start, periods = c.engine.History(from)
		for _, p := range periods {
			used := make(map[int]time.Duration, len(p))
			for owner, busy := range p {
				if pid, ok := owner.(int); ok {
					used[pid] = busy
				}
			}
			h.Periods = append(h.Periods, used)
		}
		list[i] = h
	}
	return list
}
