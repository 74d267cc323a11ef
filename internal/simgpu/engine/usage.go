package engine

import (
	"maps"
	"time"
)

// HistoryPeriod is the grain of History.
const HistoryPeriod = bucketTime * time.Nanosecond

const (
	// bucketTime is the grain of Utilization's windows, in ns, buckets their number.
	bucketTime = 5_000_000
	buckets    = 2048
	// sampleTime is the length of a sample, in ns: NVML's samples come every sixth of a second.
	sampleTime = 1_000_000_000 / 6
	samples    = 72 // as many as NVML's buffer holds
)

// meter adds up engine time by owner, on the card's clock.
type meter struct {
	fine, coarse ring
	total        map[Owner]*usage
}

// usage is what an owner had in all, while it has groups.
type usage struct {
	groups int
	busy   uint64
}

func newMeter(now uint64) *meter {
	return &meter{
		fine:   newRing(now, bucketTime, buckets),
		coarse: newRing(now, sampleTime, samples),
		total:  make(map[Owner]*usage),
	}
}

func (m *meter) join(o Owner) {
	if m.total[o] == nil {
		m.total[o] = &usage{}
	}
	m.total[o].groups++
}

func (m *meter) leave(o Owner) {
	if u := m.total[o]; u != nil {
		if u.groups--; u.groups == 0 {
			delete(m.total, o)
		}
	}
}

// add accounts the interval from…to to o.
func (m *meter) add(o Owner, from, to uint64) {
	m.fine.add(o, from, to)
	m.coarse.add(o, from, to)
	if u := m.total[o]; u != nil {
		u.busy += to - from
	}
}

// ring holds busy time per owner in periods of equal length; the oldest are forgotten.
type ring struct {
	period uint64
	start  uint64             // when the meter began
	slots  []map[Owner]uint64 // of period number n at n % len; nil if nothing ran
	last   uint64             // number of the newest period that has a slot
}

func newRing(now, period uint64, n int) ring {
	return ring{period: period, start: now, slots: make([]map[Owner]uint64, n)}
}

// number is the period that t lies in.
func (r *ring) number(t uint64) uint64 { return (t - r.start) / r.period }

// reach makes period n the newest.
func (r *ring) reach(n uint64) {
	if n <= r.last {
		return
	}
	size := uint64(len(r.slots))
	for k := range min(n-r.last, size) {
		r.slots[(n-k)%size] = nil
	}
	r.last = n
}

func (r *ring) add(o Owner, from, to uint64) {
	for from < to {
		n := r.number(from)
		r.reach(n)
		end := min(to, r.start+(n+1)*r.period)
		slot := &r.slots[n%uint64(len(r.slots))]
		if *slot == nil {
			*slot = make(map[Owner]uint64)
		}
		(*slot)[o] += end - from
		from = end
	}
}

// Utilization is the use of the graphics and compute engine in the window that ends
// now, which is lengthened to begin at a multiple of 5 ms of the card's time and holds
// 10 s at most. It is exact.
func (e *Engine) Utilization(window time.Duration) Utilization {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.idleUntilNow()
	now := e.runlist.Now()
	r := &e.meter.fine
	r.reach(r.number(now))
	past := min(uint64(max(window, 0)), (buckets-1)*bucketTime, now-r.start)
	first := r.number(now - past)
	u := Utilization{Window: time.Duration(now - (r.start + first*r.period)), ByOwner: make(map[Owner]time.Duration)}
	for n := first; n <= r.last; n++ {
		for o, busy := range r.slots[n%buckets] {
			u.ByOwner[o] += time.Duration(busy)
			u.Busy += time.Duration(busy)
		}
	}
	return u
}

// History is what each owner had of the graphics and compute engine in each period of
// HistoryPeriod of the card's clock, oldest first, from the one in which time from lies to
// the last that is complete; 10 s at most. The first begins at start. It is exact.
func (e *Engine) History(from uint64) (start uint64, periods []map[Owner]time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.idleUntilNow()
	r := &e.meter.fine
	r.reach(r.number(e.runlist.Now()))
	first := r.last - min(r.last, buckets-1)
	if from > r.start {
		first = max(first, r.number(from))
	}
	for n := first; n < r.last; n++ {
		period := make(map[Owner]time.Duration)
		for o, busy := range r.slots[n%buckets] {
			period[o] = time.Duration(busy)
		}
		periods = append(periods, period)
	}
	return r.start + first*r.period, periods
}

// Samples are the card's most recent complete sampling periods, oldest first.
func (e *Engine) Samples() []Sample {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.idleUntilNow()
	r := &e.meter.coarse
	r.reach(r.number(e.runlist.Now()))
	var out []Sample
	for n := r.last - min(r.last, samples-1); n < r.last; n++ {
		s := Sample{End: r.start + (n+1)*r.period, Period: time.Duration(r.period), ByOwner: make(map[Owner]time.Duration)}
		for o, busy := range r.slots[n%samples] {
			s.ByOwner[o] = time.Duration(busy)
			s.Busy += time.Duration(busy)
		}
		out = append(out, s)
	}
	return out
}

// Used is the engine time that each owner with groups has had, since its first.
func (e *Engine) Used() map[Owner]time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	used := make(map[Owner]time.Duration, len(e.meter.total))
	for o, u := range maps.All(e.meter.total) {
		used[o] = time.Duration(u.busy)
	}
	return used
}
