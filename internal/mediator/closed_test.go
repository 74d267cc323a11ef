package mediator

import "testing"

// A file that its living process closed is noticed before memory is refused; the
// clients of the process's other files stay.
func TestClosedFileOfLivingProcess(t *testing.T) {
	m, d, tn := setUp(t, gib)
	kept, closed := tn.context(), tn.context()
	tn.vidmem(kept, 200*mib)
	tn.vidmem(closed, 700*mib)
	d.mu.Lock()
	delete(d.clients, closed.client)
	d.mu.Unlock()
	if _, status := tn.vidmem(kept, 800*mib); status != 0 || used(m) != 1000*mib {
		t.Errorf("status %#x, used %d", status, used(m))
	}
	if m.ledger.hasClient(closed.client) || !m.ledger.hasClient(kept.client) {
		t.Error("the wrong client is gone")
	}
}

// A client that merely cannot be found is kept as long as the driver counts its memory.
func TestCountedMemoryIsKept(t *testing.T) {
	m, _, tn := setUp(t, gib)
	c := tn.context()
	tn.vidmem(c, 900*mib)
	s := m.ledger.snapshot()
	if m.ledger.dropClosed(s, s.live, []uint32{c.client}); used(m) != 900*mib || !m.ledger.hasClient(c.client) {
		t.Errorf("used %d, client known: %v", used(m), m.ledger.hasClient(c.client))
	}
	// Nor is anything given back when the ledger changed in the meantime.
	tn.vidmem(c, 10*mib)
	if m.ledger.dropClosed(s, make([]uint64, len(s.live)), []uint32{c.client}) || used(m) != 910*mib {
		t.Errorf("by an old count: used %d", used(m))
	}
}
