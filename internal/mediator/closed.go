package mediator

// maxProbes bounds how many clients are looked for at the driver at a time. Which of
// them is left to chance, so that it comes to all.
const maxProbes = 1024

// reconcileClosed gives back the memory of clients that vanished while their process
// lives: closing a control file, by close or by exec, frees the client behind it, and
// no call shows that. It does nothing unless the driver counts less than the ledger.
// It is false if calls under way kept it from being sure.
func (m *Mediator) reconcileClosed() bool {
	s := m.ledger.snapshot()
	counted, err := m.Counted()
	if err != nil {
		m.log.Warn("cannot compare the memory ledger with the driver's count", "error", err)
		return true
	}
	if !s.exceeds(counted) {
		return true
	}
	var gone []uint32
	for _, w := range m.ledger.witnesses() {
		if !m.holds(w) {
			gone = append(gone, w.client)
		}
	}
	return len(gone) == 0 || m.ledger.dropClosed(s, counted, gone)
}

// exceeds reports whether the ledger's count is above the driver's on any card.
func (s snapshot) exceeds(counted []uint64) bool {
	for i, n := range s.live {
		if n > counted[i] {
			return true
		}
	}
	return false
}

// witness is an object by which to tell whether its client is there.
type witness struct {
	client, object uint32
	card           int
}

// witnesses are an object of memory of each client of a living process.
func (l *ledger) witnesses() []witness {
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []witness
	for _, c := range l.clients {
		if c.orphaned {
			continue
		}
		for _, o := range c.objects {
			if o.allocation != nil {
				list = append(list, witness{c.handle, o.handle, o.allocation.card})
				break
			}
		}
		if len(list) == maxProbes {
			break
		}
	}
	return list
}

// holds asks the driver whether a client still has an object.
func (m *Mediator) holds(w witness) bool {
	m.clientMu.Lock()
	defer m.clientMu.Unlock()
	for j, c := range m.client.Cards() {
		if c.Minor == m.cards[w.card].Minor {
			return m.client.Holds(j, w.client, w.object)
		}
	}
	return true
}

// dropClosed drops clients that the driver does not know, as far as its count, counted[i]
// on card i, shows that their memory is back. It is false, and drops none, if the
// ledger changed since s was taken: the count and the clients are then of another moment.
func (l *ledger) dropClosed(s snapshot, counted []uint64, gone []uint32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !s.quiet || l.inFlight != 0 || l.changes != s.changes {
		return false
	}
clients:
	for _, handle := range gone {
		c, ok := l.clients[handle]
		if !ok {
			continue
		}
		sums := l.bytesOf(func(other *client) bool { return other == c })
		for i, sum := range sums {
			if s.live[i] < counted[i]+sum {
				continue clients
			}
		}
		for i, sum := range sums {
			s.live[i] -= sum
		}
		l.dropClient(c)
	}
	return true
}
