package mediator

import "sync"

// account is the memory of one card, in bytes. What counts against the quota is
// reserved + charged + managed - stale.
type account struct {
	quota    uint64
	reserved uint64 // calls under way
	charged  uint64 // physical allocations, each once however often it is referenced
	managed  uint64 // mapped ranges of managed memory
	// stale is the part of charged that the driver no longer counts: clients vanish
	// with their file, whose closing the mediator cannot see. Always at most charged.
	stale uint64
}

func (a *account) used() uint64 { return a.reserved + a.charged + a.managed - a.stale }

// room is how much more may be taken.
func (a *account) room() uint64 {
	if u := a.used(); u < a.quota {
		return a.quota - u
	}
	return 0
}

// allocation is a piece of a card's memory.
type allocation struct {
	card   int
	bytes  uint64
	refs   int // objects that refer to it: the original and its duplicates
	mapped int // UVM mappings that keep it alive
}

// ledger accounts for a tenant's video memory. Memory is charged before the call
// that takes it is executed, belongs to the object (client, handle) afterwards, and
// comes back when the last object and the last mapping that refer to it are gone. The
// ledger also is the record of the tenant's RM objects, whose lifetimes decide that.
//
// Its lock is never held during a driver call.
type ledger struct {
	mu      sync.Mutex
	cards   []account
	clients map[uint32]*client
	spaces  map[int]*space // by process
	objects int            // of all clients

	// groups and channels are those on compute engines. regrouped, if not nil, is called
	// with the lock held when one of groups is gone.
	groups, channels map[*object]*client
	regrouped        func()

	// changes counts what altered charged; inFlight is the number of calls under way
	// that may. Together they tell whether a comparison with the driver's count was
	// disturbed.
	changes  uint64
	inFlight int
}

func newLedger(quotas []uint64) *ledger {
	l := &ledger{
		cards:   make([]account, len(quotas)),
		clients: make(map[uint32]*client),
		spaces:  make(map[int]*space),
		groups:  make(map[*object]*client), channels: make(map[*object]*client),
	}
	for i, q := range quotas {
		l.cards[i].quota = q
	}
	return l
}

// reserve takes n bytes of a card's quota for a call under way; false if there is
// no room. Every reserve is followed by one settle or cancel.
func (l *ledger) reserve(card int, n uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := &l.cards[card]
	if n > a.room() {
		return false
	}
	a.reserved += n
	l.inFlight++
	return true
}

// cancel gives back a reservation whose call took nothing.
func (l *ledger) cancel(card int, n uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cards[card].reserved -= n
	l.inFlight--
}

// settle turns a reservation of n bytes into an allocation of actual bytes, which
// belongs to a new object. It is false, and nothing is charged, if rounding at the
// driver made the allocation larger than the quota allows: the caller frees it.
func (l *ledger) settle(card int, n, actual uint64, o newObject) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := &l.cards[card]
	a.reserved -= n
	l.inFlight--
	l.changes++
	if actual > a.room() {
		return false
	}
	c, ok := l.clients[o.client]
	if !ok {
		return false // the client vanished during the call, and the memory with it
	}
	m := &allocation{card: card, bytes: actual}
	a.charged += actual
	o.card = card
	l.addObject(c, o, m)
	return true
}

// begin and end enclose a call that may give memory back.
func (l *ledger) begin() {
	l.mu.Lock()
	l.inFlight++
	l.mu.Unlock()
}

func (l *ledger) end() {
	l.mu.Lock()
	l.inFlight--
	l.mu.Unlock()
}

// refer and unrefer count the objects that refer to an allocation.
func (l *ledger) refer(m *allocation) {
	if m != nil {
		m.refs++
	}
}

func (l *ledger) unrefer(m *allocation) {
	if m != nil {
		m.refs--
		l.settleAllocation(m)
	}
}

// settleAllocation gives an allocation back that nothing refers to.
func (l *ledger) settleAllocation(m *allocation) {
	if m.refs > 0 || m.mapped > 0 {
		return
	}
	l.changes++
	a := &l.cards[m.card]
	a.charged -= m.bytes
	m.bytes = 0
	a.stale = min(a.stale, a.charged)
}

// balance is a card's quota and what of it is used.
func (l *ledger) balance(card int) (quota, used uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cards[card].quota, l.cards[card].used()
}
