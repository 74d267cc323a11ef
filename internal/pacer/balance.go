package pacer

import (
	"time"

	"github.com/qgpu-project/qgpu/internal/timeshare"
)

// balance keeps account, on the card's clock, of what a tenant had of the card beyond its
// window, since that was shut late, or missed, since it was opened late. What it had too
// much is taken from the windows to come, as many as that needs.
type balance struct {
	// beyond is the part of the card that the tenant is taken to have had after its window:
	// 1 if that is nobody else's time.
	beyond float64

	at   uint64        // up to which over is reckoned; 0 if nothing is known yet
	open bool          // the tenant's channels may run since then
	over time.Duration // what the tenant had too much; negative: too little
}

const (
	// debtWindows is how many windows a tenant may owe, those of two seconds. More than that
	// only a machine that stood still for long makes a debt.
	debtWindows = 20
	// least is the shortest that a window is opened for.
	least = 300 * time.Microsecond
)

// reckon brings the account up to time now.
func (b *balance) reckon(w timeshare.Window, now uint64) {
	if b.at != 0 && now > b.at {
		within := w.Within(b.at, now)
		if b.open {
			b.over += time.Duration(b.beyond * float64(time.Duration(now-b.at)-within))
		} else {
			b.over -= within
		}
		b.over = min(max(b.over, -most(w)), debtWindows*w.Length)
	}
	b.at = now
}

// turned says that the tenant was let on the card, or kept off it, at time now.
func (b *balance) turned(w timeshare.Window, open bool, now uint64) {
	b.reckon(w, now)
	b.open = open
}

// decide tells whether the tenant should be on the card now, for which the account is
// reckoned, and when that is to be asked again.
func (b *balance) decide(w timeshare.Window) (open bool, until uint64) {
	scheduled, edge := w.At(b.at)
	if !scheduled {
		return b.decideBeyond(w, edge)
	}
	left := time.Duration(edge-b.at) - max(b.over, 0)
	if left <= 0 || left < least && !b.open {
		return false, edge + uint64(timeshare.Period-w.Length)
	}
	return true, b.at + uint64(left)
}

// decideBeyond decides after the window's end, where a tenant that had too little may stay
// on the card for a little. The next window begins at time next.
func (b *balance) decideBeyond(w timeshare.Window, next uint64) (open bool, until uint64) {
	if b.open && b.over < 0 {
		ended := next - uint64(timeshare.Period-w.Length)
		allowed := most(w) - time.Duration(b.at-ended)
		if left := min(allowed, time.Duration(float64(-b.over)/b.beyond)); left > 0 {
			return true, b.at + uint64(left)
		}
	}
	return false, next
}

// most is by how much a window may be longer than planned: what comes then is another
// tenant's, or the next window.
func most(w timeshare.Window) time.Duration { return min(w.Length, timeshare.Period-w.Length) / 4 }
