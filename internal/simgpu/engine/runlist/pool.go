package runlist

import "container/heap"

// A Pool is a set of equal copy engines, which take transfers in the order in which
// they were submitted, each the next that is free. Unlike a [Runlist] it never
// interrupts: transfers are short, and copy engines run beside each other.
type Pool struct {
	free []uint64 // when each engine is free
	ends transfers
	seq  uint64
}

// NewPool returns a pool of n engines, at least one.
func NewPool(n int) *Pool { return &Pool{free: make([]uint64, max(n, 1))} }

// Submit queues a transfer of length ns at time now.
func (p *Pool) Submit(now, length uint64, tag any) {
	first := 0
	for i, t := range p.free {
		if t < p.free[first] {
			first = i
		}
	}
	end := max(now, p.free[first]) + max(length, 1)
	p.free[first] = end
	p.seq++
	heap.Push(&p.ends, transfer{end: end, seq: p.seq, tag: tag})
}

// Next is the time at which the next transfer is done, or [Never].
func (p *Pool) Next() uint64 {
	if len(p.ends) == 0 {
		return Never
	}
	return p.ends[0].end
}

// Pop takes out the transfer that is done next.
func (p *Pool) Pop() (tag any) { return heap.Pop(&p.ends).(transfer).tag }

type transfer struct {
	end, seq uint64
	tag      any
}

type transfers []transfer

func (t transfers) Len() int { return len(t) }
func (t transfers) Less(i, j int) bool {
	return t[i].end < t[j].end || t[i].end == t[j].end && t[i].seq < t[j].seq
}
func (t transfers) Swap(i, j int) { t[i], t[j] = t[j], t[i] }
func (t *transfers) Push(x any)   { *t = append(*t, x.(transfer)) }
func (t *transfers) Pop() any {
	old := *t
	x := old[len(old)-1]
	*t = old[:len(old)-1]
	return x
}
