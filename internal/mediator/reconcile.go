package mediator

import "time"

// snapshot is the ledger's count at one moment, to be compared with the driver's.
type snapshot struct {
	changes uint64
	quiet   bool     // no call is under way that changes the count
	live    []uint64 // bytes that objects refer to, by card; the driver counts these
	orphans int      // clients of processes that ended
}

// snapshot counts what the driver would count.
func (l *ledger) snapshot() snapshot {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := snapshot{changes: l.changes, quiet: l.inFlight == 0, live: make([]uint64, len(l.cards))}
	for i := range l.cards {
		s.live[i] = l.cards[i].charged
	}
	seen := make(map[*allocation]struct{})
	for _, p := range l.spaces {
		for _, m := range p.mapped {
			if _, ok := seen[m.allocation]; !ok && m.allocation.refs == 0 {
				// UVM alone holds it: the driver counts it for no process.
				seen[m.allocation] = struct{}{}
				s.live[m.allocation.card] -= m.allocation.bytes
			}
		}
	}
	for _, c := range l.clients {
		if c.orphaned {
			s.orphans++
		}
	}
	return s
}

// bytesOf is the memory that the chosen clients, and nobody else, refer to, by card.
func (l *ledger) bytesOf(chosen func(*client) bool) []uint64 {
	sums := make([]uint64, len(l.cards))
	refs := make(map[*allocation]int)
	for _, c := range l.clients {
		if !chosen(c) {
			continue
		}
		for _, o := range c.objects {
			if m := o.allocation; m != nil {
				refs[m]++
				if refs[m] == m.refs && m.mapped == 0 {
					sums[m.card] += m.bytes
				}
			}
		}
	}
	return sums
}

func (c *client) isOrphaned() bool { return c.orphaned }

// correct lowers the count to the driver's, counted[i] on card i, as far as orphaned
// clients explain the difference. It does nothing if the ledger changed since s was
// taken: the driver's count would then be of another moment.
func (l *ledger) correct(s snapshot, counted []uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !s.quiet || l.inFlight != 0 || l.changes != s.changes {
		return
	}
	sums := l.bytesOf((*client).isOrphaned)
	all := true
	for i := range l.cards {
		excess := uint64(0)
		if s.live[i] > counted[i] {
			excess = s.live[i] - counted[i]
		}
		if excess < sums[i] {
			all = false
		}
		l.cards[i].stale = min(excess, sums[i])
	}
	if !all {
		return // some of them live on, and it cannot be told which
	}
	for _, c := range l.clients {
		if c.orphaned {
			l.dropClient(c)
		}
	}
}

// settleStale keeps stale within what orphaned clients explain, after a client is gone.
func (l *ledger) settleStale() {
	for i := range l.cards {
		if l.cards[i].stale > 0 {
			for j, sum := range l.bytesOf((*client).isOrphaned) {
				l.cards[j].stale = min(l.cards[j].stale, sum)
			}
			return
		}
	}
}

// Reconciliation waits for the driver a little: a file that a dying process held is
// closed just after the process is gone.
const (
	reconcileTries = 5
	reconcileWait  = 2 * time.Millisecond
)

// reconcile compares the ledger with what the driver counts and what processes have
// mapped, and gives back what is no longer there. It is called when a call would be
// refused for want of memory, on behalf of a thread, and when a process ends.
func (m *Mediator) reconcile(thread int) {
	m.reconcileManaged(thread)
	m.reconciling.Lock()
	defer m.reconciling.Unlock()
	for try := 0; try < reconcileTries && !m.reconcileClosed(); try++ {
		time.Sleep(m.patience << try)
	}
	for try := range reconcileTries {
		s := m.ledger.snapshot()
		if s.orphans == 0 {
			return
		}
		if try > 0 {
			time.Sleep(m.patience << try)
		}
		counted, err := m.Counted()
		if err != nil {
			m.log.Warn("cannot compare the memory ledger with the driver's count", "error", err)
			return
		}
		m.ledger.correct(s, counted)
	}
}

// reconcileManaged gives back the managed memory that processes have unmapped, of
// which no call tells. thread is the one whose call asks.
func (m *Mediator) reconcileManaged(thread int) {
	for _, pid := range m.ledger.managedProcesses() {
		now := time.Now()
		mapped, err := m.uvmRanges(pid)
		if err != nil {
			continue // it ended; its exit gives all back
		}
		m.ledger.keepManaged(pid, thread, mapped, now)
	}
}

// Counted is the driver's own count of the tenant's memory in bytes, on each of Usage's
// cards, without managed memory, which it does not count. All the tenant's clients are
// clients of this process to the driver.
func (m *Mediator) Counted() ([]uint64, error) {
	m.clientMu.Lock()
	defer m.clientMu.Unlock()
	counted := make([]uint64, len(m.cards))
	for i := range m.cards {
		for j, c := range m.client.Cards() {
			if c.Minor != m.cards[i].Minor {
				continue
			}
			n, err := m.client.ProcessMemory(j, m.self)
			if err != nil {
				return nil, err
			}
			counted[i] = n
		}
	}
	return counted, nil
}

// uvmRanges are the ranges of UVM files that a process has mapped.
func (m *Mediator) uvmRanges(pid int) (spans, error) {
	maps, err := m.processes.Maps(pid)
	if err != nil {
		return nil, err
	}
	var s spans
	for _, x := range maps {
		if m.files.isUVM(x.Dev, x.Ino) {
			s = s.with(span{x.First, x.End})
		}
	}
	return s, nil
}
