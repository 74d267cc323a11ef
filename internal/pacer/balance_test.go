package pacer

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/qgpu-project/qgpu/internal/timeshare"
)

// paced lets a balance run the window w for some periods on a clock of the test's. late is
// how much later than is due each turn takes effect. It returns for how long the channels
// could run.
func paced(b *balance, w timeshare.Window, periods int, late func() time.Duration) time.Duration {
	const start = uint64(7 * timeshare.Period)
	now, end := start, start+uint64(periods)*uint64(timeshare.Period)
	b.turned(w, false, now)
	had := time.Duration(0)
	for now < end {
		open, until := b.decide(w)
		if open != b.open {
			until = now + uint64(late())
		}
		until = min(until, end)
		if b.open {
			had += time.Duration(until - now)
		}
		now = until
		if open != b.open {
			b.turned(w, open, now)
		} else {
			b.reckon(w, now)
		}
	}
	return had
}

func drawWindow(t *rapid.T) timeshare.Window {
	return timeshare.Window{
		Offset: time.Duration(rapid.IntRange(0, int(timeshare.Period)-1).Draw(t, "offset")),
		Length: time.Duration(rapid.IntRange(1, 19).Draw(t, "twentieths")) * timeshare.Period / 20,
	}
}

// TestCapHoldsHoweverLate turns windows late by chance, by many windows at times: over a
// long time the tenant has no more than its cap, but for what it still owes.
func TestCapHoldsHoweverLate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWindow(t)
		b := &balance{beyond: 1}
		longest := rapid.SampledFrom([]time.Duration{time.Millisecond, timeshare.Period / 5, debtWindows / 2 * w.Length}).Draw(t, "longest")
		const periods = 200
		had := paced(b, w, periods, func() time.Duration {
			if rapid.IntRange(0, 3).Draw(t, "is late") > 0 {
				return 50 * time.Microsecond
			}
			return time.Duration(rapid.Int64Range(0, int64(longest)).Draw(t, "late"))
		})
		if had > periods*w.Length+w.Length+max(b.over, 0) {
			t.Errorf("the tenant had %v in %d windows of %v, and owes %v", had, periods, w.Length, b.over)
		}
	})
}

// TestLittleLatenessCostsNothing turns windows late by a small part of them: the tenant has
// what they are long.
func TestLittleLatenessCostsNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWindow(t)
		b := &balance{beyond: 1}
		const periods = 100
		had := paced(b, w, periods, func() time.Duration {
			return time.Duration(rapid.Int64Range(0, int64(most(w)/3)).Draw(t, "late"))
		})
		if d := (had - periods*w.Length).Abs(); d > w.Length {
			t.Errorf("the tenant had %v in %d windows of %v", had, periods, w.Length)
		}
	})
}

// TestDebtSpansWindows has one window shut far too late.
func TestDebtSpansWindows(t *testing.T) {
	const ms = uint64(time.Millisecond)
	w := timeshare.Window{Length: 10 * time.Millisecond}
	b := &balance{beyond: 1}
	b.turned(w, true, 100*ms)
	b.turned(w, false, 135*ms) // 25 ms too late: two and a half windows
	for _, c := range []struct {
		at    uint64
		open  bool
		until uint64
	}{
		{200 * ms, false, 300 * ms},
		{300 * ms, false, 400 * ms},
		{400 * ms, true, 405 * ms},
	} {
		b.reckon(w, c.at)
		if open, until := b.decide(w); open != c.open || until != c.until {
			t.Errorf("at %d ms the window is open %v until %d µs, want %v until %d ms", c.at/ms, open, until/1000, c.open, c.until/ms)
		}
	}
	b.turned(w, true, 400*ms)
	b.turned(w, false, 405*ms)
	b.reckon(w, 500*ms)
	if open, until := b.decide(w); !open || until != 510*ms || b.over != 0 {
		t.Errorf("when all is paid back the window is open %v until %d µs, %v are owed", open, until/1000, b.over)
	}
}

// TestNeighboursTime counts time in another's window as the part that slices leave there.
func TestNeighboursTime(t *testing.T) {
	const ms = uint64(time.Millisecond)
	w := timeshare.Window{Length: 10 * time.Millisecond}
	b := &balance{beyond: 0.25}
	b.turned(w, true, 100*ms)
	b.turned(w, false, 114*ms)
	if b.over != time.Millisecond {
		t.Errorf("4 ms in another's window count as %v, want a quarter", b.over)
	}
	missed := &balance{beyond: 1}
	missed.turned(w, false, 100*ms)
	missed.turned(w, true, 109*ms)
	missed.reckon(w, 110*ms)
	if open, until := missed.decide(w); !open || until != 110*ms+uint64(most(w)) {
		t.Errorf("a window that was missed goes on %v until %d µs, want %v", open, until/1000, most(w))
	}
}
