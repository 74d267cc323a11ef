package pacer

import (
	"time"

	"github.com/qgpu-project/qgpu/internal/timeshare"
)

// balance makes up for windows that opened or shut late since the machine was busy: what
// a tenant had too much in one it has less in the next, and the other way round.
type balance struct {
	// beyond is the part of the card that the tenant is taken to have had after its window:
	// 1 if that is nobody else's time.
	beyond float64

	since uint64        // when the window opened, on the card's clock; 0 if that is not known
	over  time.Duration // what the tenant had too much; negative: too little
}

// forget has the window that is open now not counted: its beginning was not seen.
func (b *balance) forget() { b.since = 0 }

// turned says that the window opened, or shut, at time now of the card's clock, which was
// due at edge.
func (b *balance) turned(w timeshare.Window, open bool, edge, now uint64) {
	if open {
		b.since = now
		return
	}
	if b.since == 0 {
		return
	}
	within, after := float64(min(now, edge))-float64(b.since), float64(now)-float64(max(b.since, edge))
	had := max(within, 0) + b.beyond*max(after, 0)
	b.over += time.Duration(had) - w.Length
	b.over = min(max(b.over, -most(w)), w.Length)
	b.since = 0
}

// end is when the window that is to shut at edge should shut to make up for what was.
func (b *balance) end(w timeshare.Window, edge uint64) uint64 {
	return edge - uint64(min(b.over, w.Length/2))
}

// most is by how much a window may be longer than planned: what comes then is another
// tenant's, or the next window.
func most(w timeshare.Window) time.Duration { return min(w.Length, timeshare.Period-w.Length) / 4 }
