package engine

import "time"

// Bounds of the host's lateness, in ns.
const (
	// lateness up to this is made up for: the card's clock catches up. Beyond, the card
	// has lost the time.
	tolerance = 100_000
	// stride is the longest that a busy card's clock moves on in one go. The loop looks
	// much more often, unless the host let it wait: then clients, whose time it is to
	// do something by this clock, waited too.
	stride = 1_000_000
)

// clock relates the card's clock to the host's.
type clock struct {
	host func() uint64 // monotonic, ns
	lag  uint64        // how far the card is behind; grows only
}

// realtime is a clock that starts at the present time.
func realtime() clock {
	start := time.Now()
	base := uint64(start.UnixNano())
	return clock{host: func() uint64 { return base + uint64(time.Since(start)) }}
}

// target is the time that the card should have come to.
func (k *clock) target() uint64 { return k.host() - k.lag }

// due is the host's time at which the card should come to t.
func (k *clock) due(t uint64) uint64 { return t + k.lag }

// done tells the clock that what was due at card time t has been done just now.
func (k *clock) done(t uint64) {
	if now := k.target(); now > t+tolerance {
		k.lag += now - t
	}
}

// limit is how far the card may go now.
func (e *Engine) limit() uint64 {
	target := e.clock.target()
	if far := e.runlist.Now() + stride; target > far {
		return far
	}
	return target
}
