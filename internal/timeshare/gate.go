package timeshare

import (
	"math"
	"time"
)

// Never is the time of a check that is not needed.
const Never = math.MaxUint64

// maxDebt bounds how long a gate stays shut after its tenant had more than it may, by
// whatever fault, in nanoseconds.
const maxDebt = 1e9

// reopen is how full a bucket must be, as part of its depth, for a shut gate to open: enough
// for a gate not to move for every kernel, and not so much that the bucket is full, and loses
// what comes, before its tenant has waited for its turn.
const reopen = 0.75

// A Gate decides when a tenant's channels are kept off the card. It is a state machine
// on the card's clock: what it decides follows from the times and uses that it is told.
// Its zero value is open for ever.
type Gate struct {
	bucket bucket
	yield  yield
}

// NewGate returns the gate that s asks for, at time now of the card's clock, when the
// tenant has used own and those ahead of it ahead, all in nanoseconds.
func (p *Plan) NewGate(s Setting, now, own, ahead uint64) *Gate {
	g := &Gate{}
	g.bucket = bucket{rate: 1, at: now, used: own, open: true}
	g.yield = yield{seen: ahead, open: true}
	g.Change(p, s)
	g.bucket.tokens = g.bucket.depth
	return g
}

// Change makes g follow another plan, and keeps what the tenant has had.
func (g *Gate) Change(p *Plan, s Setting) {
	g.bucket.change(s.Cap, s.Turn, p.limits.Latency)
	g.yield.enabled = s.Yields
	g.yield.hold, g.yield.poll = uint64(p.limits.Hold), uint64(p.limits.Poll)
}

// Check decides at time now whether the gate is open, given the engine time that the
// tenant and those ahead of it have used so far, all in nanoseconds. The answer holds
// until time next at the latest; an earlier check does no harm.
func (g *Gate) Check(now, own, ahead uint64) (open bool, next uint64) {
	mayHave, first := g.bucket.check(now, own)
	mayRun, second := g.yield.check(now, ahead)
	return mayHave && mayRun, min(first, second)
}

// bucket holds engine time that its tenant may still use.
type bucket struct {
	rate   float64 // fills by this part of the card's time; 1 and more: no cap
	depth  float64 // ns
	poll   float64 // ns from one check to the next while open
	tokens float64 // ns; negative after the tenant had too much
	at     uint64  // time of the last check
	used   uint64  // by then
	open   bool
}

// change sets the cap. Of the one turn that a tenant may have at once, a part is kept for
// what it has until the card obeys, and another for what is not known between checks.
func (b *bucket) change(rate float64, turn, latency time.Duration) {
	b.rate = rate
	b.poll = float64(turn) / 4
	b.depth = max(float64(turn)*(1-rate/4)-float64(latency), float64(turn)/2)
}

func (b *bucket) check(now, used uint64) (open bool, next uint64) {
	passed := 0.0
	if now > b.at {
		passed = float64(now - b.at)
		b.at = now
	}
	// Whether the tenant waited first and the bucket ran over, or it ran first, is not
	// known. The latter is taken to be so for as long as a check may be away.
	b.tokens = min(b.tokens+b.rate*passed, b.depth+b.rate*min(passed, b.poll))
	// Use that went back is that of a tenant whose counters began anew.
	if used > b.used {
		b.tokens = max(b.tokens-float64(used-b.used), -maxDebt*b.rate)
	}
	b.tokens = min(b.tokens, b.depth)
	b.used = used
	if b.rate >= 1 || b.rate <= 0 {
		b.open = true
		return true, Never
	}
	// Less than a microsecond is nothing.
	if b.open && b.tokens < 1000 {
		b.open = false
	} else if !b.open && b.tokens >= reopen*b.depth {
		b.open = true
	}
	if b.open {
		// The soonest at which it can be empty.
		return true, after(now, min(b.tokens/(1-b.rate), b.poll))
	}
	return false, after(now, (reopen*b.depth-b.tokens)/b.rate)
}

// yield keeps a tenant off while those ahead of it work.
type yield struct {
	enabled    bool
	hold, poll uint64
	seen       uint64 // use of those ahead at the last check
	idleAt     uint64 // when they had been seen to work last
	open       bool
}

func (y *yield) check(now, ahead uint64) (open bool, next uint64) {
	if ahead > y.seen {
		y.open, y.idleAt = false, now
	}
	y.seen = ahead
	if !y.enabled {
		y.open = true
		return true, Never
	}
	if !y.open && now >= y.idleAt && now-y.idleAt >= y.hold {
		y.open = true
	}
	return y.open, after(now, float64(y.poll))
}

// after is a time d ns after now, at least 1 ns and at most a second.
func after(now uint64, d float64) uint64 {
	return now + uint64(min(max(math.Ceil(d), 1), float64(time.Second)))
}
