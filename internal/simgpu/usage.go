package simgpu

import "time"

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
