package mediator

import (
	"slices"
	"time"
)

// maxRanges bounds the ranges remembered of one process. A process with more pieces
// of managed memory cannot get another one.
const maxRanges = 1 << 16

// span is a range of addresses: first included, end not.
type span struct{ first, end uint64 }

func (s span) bytes() uint64 { return s.end - s.first }

// spans are disjoint, sorted and not adjacent.
type spans []span

// find is the index of the first span that ends behind addr.
func (s spans) find(addr uint64) int {
	i, _ := slices.BinarySearchFunc(s, addr, func(x span, a uint64) int {
		if x.end <= a {
			return -1
		}
		return 1
	})
	return i
}

// overlap is how many bytes of x lie in s.
func (s spans) overlap(x span) uint64 {
	var sum uint64
	for i := s.find(x.first); i < len(s) && s[i].first < x.end; i++ {
		sum += min(s[i].end, x.end) - max(s[i].first, x.first)
	}
	return sum
}

// without is s less x.
func (s spans) without(x span) spans {
	i := s.find(x.first)
	j := i
	var rest []span
	for ; j < len(s) && s[j].first < x.end; j++ {
		if s[j].first < x.first {
			rest = append(rest, span{s[j].first, x.first})
		}
		if s[j].end > x.end {
			rest = append(rest, span{x.end, s[j].end})
		}
	}
	return slices.Replace(s, i, j, rest...)
}

// with is s and x.
func (s spans) with(x span) spans {
	if x.first >= x.end {
		return s
	}
	s = s.without(x)
	i := s.find(x.first)
	j := i
	if i > 0 && s[i-1].end == x.first {
		i--
		x.first = s[i].first
	}
	if j < len(s) && s[j].first == x.end {
		x.end = s[j].end
		j++
	}
	return slices.Replace(s, i, j, x)
}

func (s spans) bytes() uint64 {
	var sum uint64
	for _, x := range s {
		sum += x.bytes()
	}
	return sum
}

// space is what the ledger knows of a process's UVM address space.
type space struct {
	managed []spans // charged ranges of managed memory, by card
	pending []pendingMap
	pools   spans // semaphore pools: mappings of these take memory of the host
	// external mappings by base address, and the ranges made for them
	mapped map[uint64]mapping
	ranges map[uint64]uint64 // base to length
	held   []int             // the mediator's own descriptors of the files: see heldUVM
}

// mapping is a UVM mapping of an allocation.
type mapping struct {
	length     uint64
	file       int // of held
	allocation *allocation
}

// pendingMap is a mapping that was charged and let through, and of which it is not
// yet known that the kernel made it.
type pendingMap struct {
	thread int
	span   span
	since  time.Time
}

// settlingTime is how long after its answer a mapping may still be made by the kernel.
const settlingTime = time.Second

func (l *ledger) space(process int) *space {
	s, ok := l.spaces[process]
	if !ok {
		s = &space{
			managed: make([]spans, len(l.cards)),
			mapped:  make(map[uint64]mapping),
			ranges:  make(map[uint64]uint64),
		}
		l.spaces[process] = s
	}
	return s
}

// mapManaged charges a range of managed memory of a process, whose thread maps it,
// to the card with the most room. What the range replaces is given back. It is false
// if no card has room.
func (l *ledger) mapManaged(process, thread int, x span) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.space(process)
	s.settled(thread)
	if s.pools.overlap(x) == x.bytes() {
		return true
	}
	best, room := 0, uint64(0)
	for i := range l.cards {
		// What the range replaces on this card counts as room.
		if r := l.cards[i].room() + s.managed[i].overlap(x); r >= room {
			best, room = i, r
		}
	}
	if x.bytes() > room || len(s.managed[best]) >= maxRanges || len(s.pending) >= maxRanges {
		return false
	}
	l.unmapManaged(s, x)
	s.managed[best] = s.managed[best].with(x)
	l.cards[best].managed += x.bytes()
	s.pending = append(s.pending, pendingMap{thread, x, time.Now()})
	return true
}

func (l *ledger) unmapManaged(s *space, x span) {
	for i := range s.managed {
		if n := s.managed[i].overlap(x); n > 0 {
			s.managed[i] = s.managed[i].without(x)
			l.cards[i].managed -= n
		}
	}
}

// settled drops the pending mappings of a thread that makes another call: the one
// before has been executed or has failed.
func (s *space) settled(thread int) {
	s.pending = slices.DeleteFunc(s.pending, func(p pendingMap) bool { return p.thread == thread })
}

// keepManaged gives back the managed memory of a process that is not among the
// ranges it has mapped. Mappings that may not have been made yet stay charged.
func (l *ledger) keepManaged(process, thread int, mapped spans, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, ok := l.spaces[process]
	if !ok {
		return
	}
	s.settled(thread)
	s.pending = slices.DeleteFunc(s.pending, func(p pendingMap) bool {
		return now.Sub(p.since) > settlingTime || mapped.overlap(p.span) == p.span.bytes()
	})
	keep := slices.Clone(mapped)
	for _, p := range s.pending {
		keep = keep.with(p.span)
	}
	for i := range s.managed {
		gone := slices.Clone(s.managed[i])
		for _, k := range keep {
			gone = gone.without(k)
		}
		for _, g := range gone {
			s.managed[i] = s.managed[i].without(g)
		}
		l.cards[i].managed -= gone.bytes()
	}
}

// managedProcesses are the processes with charged managed memory.
func (l *ledger) managedProcesses() []int {
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []int
	for pid, s := range l.spaces {
		for i := range s.managed {
			if len(s.managed[i]) > 0 {
				list = append(list, pid)
				break
			}
		}
	}
	return list
}

// addPool records a semaphore pool of UVM, which lies in the host's memory and is
// mapped like managed memory.
func (l *ledger) addPool(process int, x span) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.space(process); len(s.pools) < maxRanges {
		s.pools = s.pools.with(x)
	}
}

// addRange records a range for external mappings.
func (l *ledger) addRange(process int, base, length uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.space(process); len(s.ranges) < maxRanges {
		s.ranges[base] = length
	}
}

// mapExternal records that UVM maps an object of a client at base. UVM holds the
// memory from then on, even if the client frees the object.
func (l *ledger) mapExternal(process, file int, base, length uint64, client, handle uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c, ok := l.clients[client]
	if !ok {
		return
	}
	o, ok := c.objects[handle]
	if !ok || o.allocation == nil {
		return
	}
	s := l.space(process)
	o.allocation.mapped++
	if old, ok := s.mapped[base]; ok {
		old.allocation.mapped--
		l.settleAllocation(old.allocation)
	}
	s.mapped[base] = mapping{length, file, o.allocation}
}

// mayMapExternal reports whether one more mapping can be remembered.
func (l *ledger) mayMapExternal(process int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.space(process).mapped) < maxRanges
}

// unmapExternal records that mappings that lie in x are gone.
func (l *ledger) unmapExternal(process int, x span) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s, ok := l.spaces[process]; ok {
		l.unmapAll(s, x)
	}
}

func (l *ledger) unmapAll(s *space, x span) {
	if m, ok := s.mapped[x.first]; ok && m.length == x.bytes() {
		l.unmapOne(s, x.first, m)
		return
	}
	for base, m := range s.mapped {
		if base >= x.first && base < x.end && m.length <= x.end-base {
			l.unmapOne(s, base, m)
		}
	}
}

func (l *ledger) unmapOne(s *space, base uint64, m mapping) {
	delete(s.mapped, base)
	m.allocation.mapped--
	l.settleAllocation(m.allocation)
}

// freeRange records that UVM freed the range at base.
func (l *ledger) freeRange(process int, base uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, ok := l.spaces[process]
	if !ok {
		return
	}
	if i := s.pools.find(base); i < len(s.pools) && s.pools[i].first <= base {
		s.pools = s.pools.without(s.pools[i])
	}
	length, ok := s.ranges[base]
	if !ok {
		return
	}
	delete(s.ranges, base)
	l.unmapAll(s, span{base, base + length})
}

// dropProcess marks the clients of a process that ended as orphaned: they live on if
// another process holds their file.
func (l *ledger) dropProcess(process int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.clients {
		if c.owner == process {
			c.orphaned = true
		}
	}
}

// takeSpace removes a process's UVM address space from the ledger. Its managed memory
// is given back at once; the allocations that UVM maps stay charged until dropMappings.
func (l *ledger) takeSpace(process int) *space {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, ok := l.spaces[process]
	if !ok {
		return nil
	}
	delete(l.spaces, process)
	for i := range s.managed {
		l.cards[i].managed -= s.managed[i].bytes()
	}
	return s
}

// dropMappings gives back what the mappings of a taken space kept alive.
func (l *ledger) dropMappings(s *space) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for base, m := range s.mapped {
		l.unmapOne(s, base, m)
	}
}
