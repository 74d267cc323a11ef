package mediator

import (
	"maps"
	"slices"
	"sync"
)

// maxNames bounds the names of refused calls, part of which the tenant chooses.
const maxNames = 256

// counters count refused calls by name.
type counters struct {
	mu      sync.Mutex
	refused map[string]uint64
}

// refused counts a refusal, and logs the first of its name.
func (m *Mediator) refused(name string) {
	m.counts.mu.Lock()
	if m.counts.refused == nil {
		m.counts.refused = make(map[string]uint64)
	}
	if _, ok := m.counts.refused[name]; !ok && len(m.counts.refused) >= maxNames {
		name = "other"
	}
	m.counts.refused[name]++
	first := m.counts.refused[name] == 1
	m.counts.mu.Unlock()
	if first {
		m.log.Info("refused a call of the tenant", "call", name)
	}
}

// Usage is what a tenant holds at one moment.
type Usage struct {
	Cards     []CardUsage
	Processes []ProcessUsage
}

// CardUsage is a tenant's memory on one card, in bytes.
type CardUsage struct {
	Minor   int
	UUID    string
	Name    string
	Quota   uint64
	Used    uint64 // of the quota
	Managed uint64 // the part of Used that is managed memory
}

// ProcessUsage is the memory of one of the tenant's processes.
type ProcessUsage struct {
	PID  int // in the mediator's pid namespace
	Name string
	Used []uint64 // bytes on each of Usage's cards, without managed memory
}

// Stats count what a mediator has done since it began.
type Stats struct {
	Executed uint64            // calls executed at the driver
	Refused  map[string]uint64 // calls refused, by name
}

// Usage tells what the tenant holds.
func (m *Mediator) Usage() Usage {
	var u Usage
	m.ledger.mu.Lock()
	for i := range m.cards {
		a := m.ledger.cards[i]
		u.Cards = append(u.Cards, CardUsage{
			Minor: m.cards[i].Minor, UUID: m.cards[i].UUID, Name: m.cards[i].Name,
			Quota: a.quota, Used: a.used(), Managed: a.managed,
		})
	}
	m.ledger.mu.Unlock()
	pids := m.tenants.list()
	slices.Sort(pids)
	for _, pid := range pids {
		p := ProcessUsage{PID: pid, Name: m.processes.Name(pid)}
		for i := range m.cards {
			p.Used = append(p.Used, m.ledger.processMemory(pid, i))
		}
		u.Processes = append(u.Processes, p)
	}
	return u
}

// Stats tells what the mediator has done.
func (m *Mediator) Stats() Stats {
	m.counts.mu.Lock()
	defer m.counts.mu.Unlock()
	return Stats{Executed: m.executed.Load(), Refused: maps.Clone(m.counts.refused)}
}
