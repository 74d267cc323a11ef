package timeshare_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/qgpu-project/qgpu/internal/share"
	"github.com/qgpu-project/qgpu/internal/timeshare"
)

// TestWindows steps through a period: each window is open for its tenant's cap, and under
// fixed-share one at a time.
func TestWindows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var tenants []timeshare.Tenant
		left := share.Whole
		for i := 0; left > 0 && i < 16; i++ {
			core := 5 * rapid.IntRange(0, left/5).Draw(t, "core")
			if core == 0 {
				continue
			}
			left -= core
			tenants = append(tenants, timeshare.Tenant{ID: fmt.Sprint(i), Core: core, Groups: 1})
		}
		if len(tenants) == 0 {
			t.Skip("no tenant")
		}
		plan, err := timeshare.New(share.FixedShare, timeshare.DefaultLimits(), tenants)
		if err != nil {
			t.Fatal(err)
		}
		windows := plan.Windows()
		begin := rapid.Uint64Range(0, 1<<62).Draw(t, "begin")
		had := make([]uint64, len(windows))
		const step = uint64(100 * time.Microsecond)
		for now := begin; now < begin+uint64(timeshare.Period); now += step {
			open := 0
			for i, w := range windows {
				is, next := w.At(now)
				if next <= now {
					t.Fatalf("the next change, at %d, is not after %d", next, now)
				}
				if later, _ := w.At(next - 1); later != is {
					t.Fatalf("window %+v changes before it says", w)
				}
				if is {
					open++
					had[i] += step
				}
			}
			if open > 1 {
				t.Fatalf("%d windows are open at %d", open, now)
			}
		}
		for i, w := range windows {
			want := uint64(tenants[i].Core) * uint64(timeshare.Period) / 100
			if d := max(had[i], want) - min(had[i], want); w.Limited() && d > step {
				t.Errorf("a tenant of %d %% had %v of %v", tenants[i].Core, time.Duration(had[i]), timeshare.Period)
			}
		}
	})
}

// TestWithin compares the sum over an interval with a walk along it.
func TestWithin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := rapid.Int64Range(0, int64(timeshare.Period))
		w := timeshare.Window{Offset: time.Duration(draw.Draw(t, "offset")), Length: time.Duration(draw.Draw(t, "length"))}
		from := rapid.Uint64Range(0, 1<<62).Draw(t, "from")
		to := from + rapid.Uint64Range(0, uint64(10*timeshare.Period)).Draw(t, "long")
		want := uint64(0)
		for now := from; now < to; {
			open, next := w.At(now)
			next = min(next, to)
			if open {
				want += next - now
			}
			now = next
		}
		if got := w.Within(from, to); uint64(got) != want {
			t.Errorf("%+v is open for %v of %d to %d, want %v", w, got, from, to, time.Duration(want))
		}
		if got := w.Within(to, from); to > from && got != 0 {
			t.Errorf("open for %v of no time", got)
		}
	})
}

func TestWhoHasAWindow(t *testing.T) {
	tenants := []timeshare.Tenant{
		{ID: "online", Class: share.Online, Core: 20, Groups: 1},
		{ID: "ordinary", Core: 30, Groups: 1},
		{ID: "none", Groups: 1},
		{ID: "offline", Class: share.Offline, Core: 40, Groups: 1},
		{ID: "many groups", Core: 10, Groups: 4000},
	}
	for policy, want := range map[share.Policy][]bool{
		share.BestEffort: {false, false, false, true, true},
		share.BurstShare: {false, false, false, true, true},
		share.FixedShare: {false, true, false, true, true},
	} {
		plan, err := timeshare.New(policy, timeshare.DefaultLimits(), tenants)
		if err != nil {
			t.Fatal(err)
		}
		for i, w := range plan.Windows() {
			if w.Limited() != want[i] {
				t.Errorf("%s: %s has the window %+v", policy, tenants[i].ID, w)
			}
		}
	}
}
