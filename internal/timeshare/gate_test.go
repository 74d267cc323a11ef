package timeshare_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/qgpu-project/qgpu/internal/share"
	"github.com/qgpu-project/qgpu/internal/timeshare"
)

// drive lets a tenant behind a gate use the card whenever greed says so, obeyed late by at
// most the limits' latency, and returns its use at each multiple of step.
func drive(t *rapid.T, g *timeshare.Gate, length, step uint64, greed func() bool) []uint64 {
	latency := uint64(timeshare.DefaultLimits().Latency)
	var log []uint64
	used, next, obeyed := uint64(0), uint64(0), uint64(0)
	open, running := true, true
	for now := uint64(0); now < length; now += step {
		if now >= next {
			var wanted bool
			wanted, next = g.Check(now, used, 0)
			if next <= now {
				t.Fatalf("at %d the next check is at %d", now, next)
			}
			if wanted != open {
				open = wanted
				obeyed = now + rapid.Uint64Range(0, latency).Draw(t, "latency")/step*step
			}
		}
		if now >= obeyed {
			running = open
		}
		if running && greed() {
			used += step
		}
		log = append(log, used)
	}
	return log
}

// TestNeverAboveTheCapByMoreThanATurn is for tenants that use the card at any times, in
// windows of any length.
func TestNeverAboveTheCapByMoreThanATurn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tenant := timeshare.Tenant{ID: "a", Core: 5 * rapid.IntRange(1, 19).Draw(t, "core"), Groups: rapid.IntRange(1, 8).Draw(t, "groups")}
		plan := mustPlan(t, share.FixedShare, []timeshare.Tenant{tenant})
		s := plan.Settings[0]
		const step = 10 * us
		phase := 0
		wants := true
		log := drive(t, plan.NewGate(s, 0, 0, 0), 300*ms, step, func() bool {
			if phase--; phase < 0 {
				phase = rapid.IntRange(1, 3000).Draw(t, "steps")
				wants = !wants
			}
			return wants
		})
		// The gate's checks fall on the grid of steps, so that two may be late.
		slack := float64(s.Turn) + 2*step
		// used(j) - used(i) ≤ cap × (j-i) + slack, by the least of used - cap × time so far.
		least := 0.0
		for k, used := range log {
			above := float64(used) - s.Cap*float64(k+1)*step
			if above-least > slack {
				t.Fatalf("core %d: %.0f µs above the cap at %d µs, a turn is %v", tenant.Core, (above-least)/us, k*10, s.Turn)
			}
			least = min(least, above)
		}
	})
}

// TestAlwaysBusyTenantReachesItsCap has it alone on an idle card.
func TestAlwaysBusyTenantReachesItsCap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tenant := timeshare.Tenant{ID: "a", Core: 5 * rapid.IntRange(1, 19).Draw(t, "core"), Groups: 1}
		plan := mustPlan(t, share.FixedShare, []timeshare.Tenant{tenant})
		log := drive(t, plan.NewGate(plan.Settings[0], 0, 0, 0), 1000*ms, 10*us, func() bool { return true })
		if got := float64(log[len(log)-1]) / (10 * ms); got < float64(tenant.Core)-0.5 {
			t.Errorf("had %.2f %%, want %d", got, tenant.Core)
		}
	})
}

func TestGateOfAnUncappedTenantStaysOpen(t *testing.T) {
	plan, err := timeshare.New(share.BurstShare, timeshare.DefaultLimits(), []timeshare.Tenant{{ID: "a", Core: 30}})
	if err != nil {
		t.Fatal(err)
	}
	g := plan.NewGate(plan.Settings[0], 0, 0, 0)
	for now := uint64(0); now < 100*ms; now += ms {
		if open, next := g.Check(now, now, now); !open || next != timeshare.Never {
			t.Fatalf("open %v until %d", open, next)
		}
	}
}

// TestNoGateStaysShut: whatever clocks and counters it was told, a gate opens within
// two seconds in which its tenant has nothing and those ahead of it are idle.
func TestNoGateStaysShut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tenants := []timeshare.Tenant{
			{ID: "a", Class: share.Offline, Core: rapid.IntRange(1, 100).Draw(t, "core"), Groups: rapid.IntRange(1, 500).Draw(t, "groups")},
			{ID: "b", Class: share.Online, Groups: 1},
		}
		plan := mustPlan(t, share.BurstShare, tenants)
		any := rapid.Uint64Range(0, 1<<40)
		g := plan.NewGate(plan.Settings[0], any.Draw(t, "start"), any.Draw(t, "own at start"), any.Draw(t, "ahead at start"))
		var now, own, ahead uint64
		for range rapid.IntRange(0, 20).Draw(t, "checks") {
			now, own, ahead = any.Draw(t, "now"), any.Draw(t, "own"), any.Draw(t, "ahead")
			g.Check(now, own, ahead)
		}
		now = 1 << 41
		g.Check(now, own, ahead)
		if open, _ := g.Check(now+2*uint64(time.Second), own, ahead); !open {
			t.Error("the gate is shut")
		}
	})
}

func TestChangeKeepsWhatWasUsed(t *testing.T) {
	tenant := timeshare.Tenant{ID: "a", Core: 50, Groups: 1}
	plan, err := timeshare.New(share.FixedShare, timeshare.DefaultLimits(), []timeshare.Tenant{tenant})
	if err != nil {
		t.Fatal(err)
	}
	g := plan.NewGate(plan.Settings[0], 0, 0, 0)
	for now := uint64(ms); now < 50*ms; now += ms {
		g.Check(now, now, 0)
	}
	if open, _ := g.Check(50*ms, 50*ms, 0); open {
		t.Fatal("open after twice the cap")
	}
	tenant.Core = 10
	plan, err = timeshare.New(share.FixedShare, timeshare.DefaultLimits(), []timeshare.Tenant{tenant})
	if err != nil {
		t.Fatal(err)
	}
	g.Change(&plan, plan.Settings[0])
	// 25 ms too many, but for the turn that it had in the bucket; at 10 % of 100 ms, 10 ms come back.
	if open, _ := g.Check(150*ms, 50*ms, 0); open {
		t.Error("a change of core forgave what was used")
	}
	if open, _ := g.Check(400*ms, 50*ms, 0); !open {
		t.Error("shut when all is paid back")
	}
}
