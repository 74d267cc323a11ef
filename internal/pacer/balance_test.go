package pacer

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/qgpu-project/qgpu/internal/timeshare"
)

// TestLateWindows opens and shuts windows late by chance: over many periods the tenant has
// what its window is long, all the same.
func TestLateWindows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := timeshare.Window{Length: time.Duration(rapid.IntRange(1, 19).Draw(t, "window")) * timeshare.Period / 20}
		late := rapid.Custom(func(t *rapid.T) uint64 {
			return rapid.Uint64Range(0, uint64(w.Length/8)).Draw(t, "late")
		})
		b := balance{beyond: 1}
		const periods = 100
		had, opened := time.Duration(0), uint64(0)
		edge := uint64(timeshare.Period)
		for range periods {
			opened = edge + min(late.Draw(t, "opens"), uint64(most(w)))
			b.turned(w, true, edge, opened)
			_, edge = w.At(edge)
			shut := b.end(w, edge) + late.Draw(t, "shuts")
			b.turned(w, false, edge, shut)
			had += time.Duration(shut - opened)
			_, edge = w.At(edge)
		}
		if d := (had - periods*w.Length).Abs(); d > w.Length {
			t.Errorf("the tenant had %v in %d windows of %v", had, periods, w.Length)
		}
	})
}

// TestStallIsMadeUpFor has a window shut far too late, once.
func TestStallIsMadeUpFor(t *testing.T) {
	w := timeshare.Window{Length: 10 * time.Millisecond}
	const ms = uint64(time.Millisecond)
	b := balance{beyond: 1}
	b.turned(w, true, 50*ms, 50*ms)
	b.turned(w, false, 60*ms, 67*ms)
	if end := b.end(w, 110*ms); end != 105*ms {
		t.Errorf("after 7 ms too much the window of 100 to 110 ms ends at %d µs, want half of it", end/1000)
	}
	b.turned(w, true, 100*ms, 100*ms)
	b.turned(w, false, 110*ms, 105*ms)
	if end := b.end(w, 160*ms); end != 158*ms {
		t.Errorf("the rest of it makes the next window end at %d µs, want 158000", end/1000)
	}
	b = balance{beyond: 0.25}
	b.turned(w, true, 50*ms, 50*ms)
	b.turned(w, false, 60*ms, 64*ms)
	if b.over != time.Millisecond {
		t.Errorf("4 ms in another's window count as %v, want a quarter", b.over)
	}
	b.forget()
	b.turned(w, false, 110*ms, 140*ms)
	if b.over != time.Millisecond {
		t.Error("a window whose beginning is not known is counted")
	}
}
