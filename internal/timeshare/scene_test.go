package timeshare_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/qgpu-project/qgpu/internal/share"
	"github.com/qgpu-project/qgpu/internal/timeshare"
)

// TestWaking has a tenant that wakes while the others work: it has its share from the
// first rotation on, or where it has a window, from its next one.
func TestWaking(t *testing.T) {
	for _, p := range policies {
		for _, m := range []mix{
			{"10:90", []int{10, 90}, -1},
			{"90:10", []int{90, 10}, -1},
			{"5:5:10", []int{5, 5, 10}, -1},
		} {
			t.Run(fmt.Sprint(p, "/", m.name), func(t *testing.T) {
				var loads []load
				for _, core := range m.cores {
					loads = append(loads, always(core))
				}
				wake := uint64(503 * ms)
				loads[0].pattern = []interval{{wake, timeshare.Never}}
				c := newCard(t, p, loads...)
				c.run(time.Duration(wake))
				rotation := uint64(0)
				for _, s := range c.plan.Settings {
					rotation += uint64(s.Turn)
				}
				if c.windows[0].Limited() {
					rotation = uint64(timeshare.Period)
				}
				for c.used[0] == 0 {
					c.run(10 * time.Microsecond)
				}
				if waited := c.list.Now() - wake; waited > rotation+100*us {
					t.Errorf("waited for %d µs, a rotation is %d µs", waited/us, rotation/us)
				}
				c.run(1500 * time.Millisecond)
				want := m.want(p, 0)
				if low, high := c.worst(0, time.Duration(wake), time.Second); low < want-1 || high > want+1 {
					t.Errorf("had %.2f to %.2f %% over 1 s from its waking on, want %.2f", low, high, want)
				}
			})
		}
	}
}

// TestGroupsOfATenant compares tenants of many groups with one of a single group.
func TestGroupsOfATenant(t *testing.T) {
	for _, p := range policies {
		for _, groups := range []int{2, 6, 40, 100} {
			t.Run(fmt.Sprint(p, "/", groups), func(t *testing.T) {
				many, one := always(50), always(50)
				many.Groups = groups
				c := newCard(t, p, many, one)
				c.run(2 * time.Second)
				least, most := c.worst(0, 500*time.Millisecond, time.Second)
				if most > 51 {
					t.Errorf("%d groups had up to %.2f %%", groups, most)
				}
				low, _ := c.worst(1, 500*time.Millisecond, time.Second)
				// The other bears half of what changes between so many groups cost.
				if cost := c.waste(); low < 50-1-cost/2 || least < 50-1-cost {
					t.Errorf("one group had %.2f %%, %d groups %.2f %%; changes cost %.2f %%", low, groups, least, cost)
				}
				t.Logf("%d groups had %.2f to %.2f %%, one had %.2f %%; changes cost %.2f %%", groups, least, most, low, c.waste())
			})
		}
	}
}

// TestLateGroups adds groups to a working tenant, each with the slice of the plan that it
// meets, and then a plan for the new number.
func TestLateGroups(t *testing.T) {
	c := newCard(t, share.BurstShare, always(30), always(70))
	c.run(500 * time.Millisecond)
	for range 7 {
		l := &c.loads[0]
		l.Groups++
		g := c.list.Add(ownerOf{0, l.Groups - 1})
		g.SetTimeslice(c.plan.Slice(l.Tenant))
		ch := c.list.AddChannel(g)
		c.list.Schedule(ch)
		c.groups[0], c.chans[0] = append(c.groups[0], g), append(c.chans[0], ch)
		c.replan(share.BurstShare)
		c.restartAt = c.list.Now() + 2*ms
		c.run(100 * time.Millisecond)
		if got := c.share(0, 100*time.Millisecond); got > 33 {
			t.Errorf("with %d groups the tenant had %.2f %% of 100 ms, want 30", l.Groups, got)
		}
	}
	if low, high := c.worst(1, 500*time.Millisecond, 700*time.Millisecond); low < 69 || high > 71 {
		t.Errorf("the other had %.2f to %.2f %% meanwhile, want 70", low, high)
	}
}

func online(pattern []interval) load {
	return load{Tenant: timeshare.Tenant{Class: share.Online, Groups: 1}, kernel: 100 * us, pattern: pattern}
}

func offline(core, groups int) load {
	return load{Tenant: timeshare.Tenant{Class: share.Offline, Core: core, Groups: groups}, kernel: 20 * ms}
}

// bursts are n bursts of 10 ms of work, in each of n periods of 50 ms one, at another time in
// each.
func bursts(n uint64) []interval {
	var out []interval
	for k := range n {
		at := k*50*ms + k*1370*us%(20*ms)
		out = append(out, interval{at, at + 10*ms})
	}
	return out
}

// TestOnlineFirst has bursts of online work over offline tenants that always have work.
func TestOnlineFirst(t *testing.T) {
	for _, o := range []struct {
		groups int
		wait   uint64  // of an online kernel, at most
		part   float64 // of what is idle that offline work gets, at least
	}{
		{1, 300 * us, 0.9},
		{4, 350 * us, 0.8},
		{16, 1000 * us, 0.75}, // slices of 50 µs, each with a change of 10 µs
		{40, 2500 * us, 0.7},
	} {
		t.Run(fmt.Sprint(o.groups, " groups"), func(t *testing.T) {
			c := newCard(t, share.BestEffort, online(bursts(40)), offline(100, o.groups))
			worst := c.longestWait()
			if worst > o.wait {
				t.Errorf("an online kernel waited for %d µs", worst/us)
			}
			on, off := c.share(0, 1500*time.Millisecond), c.share(1, 1500*time.Millisecond)
			if off < o.part*(100-on) {
				t.Errorf("offline had %.2f %% of the card, online %.2f %%", off, on)
			}
			t.Logf("waited at most %d µs; online %.2f %% of 20, offline %.2f %%", worst/us, on, off)
		})
	}
}

// longestWait is how long at most the first tenant waited for the card when it had new
// work, in ns.
func (c *card) longestWait() uint64 {
	worst := uint64(0)
	for _, i := range c.loads[0].pattern {
		c.run(time.Duration(i.from - c.list.Now()))
		for before := c.used[0]; c.used[0] == before; {
			c.run(10 * time.Microsecond)
		}
		worst = max(worst, c.list.Now()-i.from)
	}
	c.run(50 * time.Millisecond)
	return worst
}

// TestOnlineOverOrdinary has ordinary tenants who keep their proportion in what is left.
func TestOnlineOverOrdinary(t *testing.T) {
	c := newCard(t, share.BurstShare, online(bursts(40)), always(10), always(90))
	if worst := c.longestWait(); worst > 4200*us {
		t.Errorf("an online kernel waited for %d µs", worst/us)
	}
	ten, ninety := c.share(1, time.Second), c.share(2, time.Second)
	if part := 100 * ten / (ten + ninety); part < 9 || part > 11 {
		t.Errorf("of what was left, the tenant of core 10 had %.2f %%", part)
	}
	if left := ten + ninety; left < 0.9*80 {
		t.Errorf("ordinary tenants had %.2f %% of the card, 80 were left", left)
	}
}

// TestOfflineStops while online work never pauses, and so does nearly an ordinary tenant.
// Windows of offline tenants open and shut meanwhile: each restart ends the online tenant's
// turn of 33 ms early, and the 1.6 ms of the others come once more.
func TestOfflineStops(t *testing.T) {
	c := newCard(t, share.BestEffort, online([]interval{{100 * ms, 1200 * ms}}), offline(30, 1), offline(100, 3), always(0))
	c.run(1200 * time.Millisecond)
	if got := c.share(0, time.Second); got < 93 {
		t.Errorf("online had %.2f %% of 1 s", got)
	}
	c.run(1100 * time.Millisecond)
	if got := c.share(3, time.Second); got < 80 {
		t.Errorf("the ordinary tenant had %.2f %% of 1 s over offline ones", got)
	}
}

// TestOfflineCaps has offline tenants on a card that is idle otherwise.
func TestOfflineCaps(t *testing.T) {
	c := newCard(t, share.BestEffort, offline(30, 1), offline(45, 2))
	c.run(2 * time.Second)
	for i, want := range []float64{30, 45} {
		if low, high := c.worst(i, 500*time.Millisecond, time.Second); low < want-1 || high > want+1 {
			t.Errorf("had %.2f to %.2f %%, want %v", low, high, want)
		}
	}
}
