package timeshare_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/qgpu-project/qgpu/internal/share"
)

// some is a tenant that has work in some of its groups.
func some(core, groups, busy int) load {
	l := always(core)
	l.Groups, l.busy = groups, busy
	return l
}

// infer runs the card for d and lets the plan learn from what is used, each 100 ms.
func (c *card) infer(p share.Policy, d time.Duration) {
	const period = 100 * time.Millisecond
	for end := c.list.Now() + uint64(d); c.list.Now() < end; {
		before := slices.Clone(c.used)
		c.run(period)
		for i := range before {
			before[i] = c.used[i] - before[i]
		}
		for i, active := range c.plan.Infer(c.tenants(), before, period) {
			c.loads[i].Active = active
		}
		c.replan(p)
		c.restartAt = c.list.Now()
	}
}

// TestSomeGroupsWork has tenants some of whose groups have no work. After some periods
// everybody has what its core gives it, or at least, where a tenant that works now and then
// leaves in doubt who has too much, what its core guarantees.
func TestSomeGroupsWork(t *testing.T) {
	light := always(20) // works for 1 ms in 20: 5 % of the card at most
	for at := uint64(0); at < 10_000*ms; at += 20 * ms {
		light.pattern = append(light.pattern, interval{at, at + ms})
	}
	light.kernel = 500 * us
	for _, test := range []struct {
		name  string
		loads []load
		want  []float64 // percent, of burst-share
	}{
		{"1 of 6, single", []load{some(50, 6, 1), always(50)}, []float64{50, 50}},
		{"1 of 40, single", []load{some(30, 40, 1), always(70)}, []float64{30, 70}},
		{"40 of 40, single", []load{some(50, 40, 40), always(50)}, []float64{49, 49}},
		{"1 of 6, 6 of 6", []load{some(50, 6, 1), some(50, 6, 6)}, []float64{50, 50}},
		{"2 of 6, 3 of 6", []load{some(25, 6, 2), some(75, 6, 3)}, []float64{25, 75}},
		{"1 of 6, 5 of 8, single", []load{some(20, 6, 1), some(30, 8, 5), always(50)}, []float64{20, 30, 50}},
		{"2 of 6, 3 of 6, light", []load{some(40, 6, 2), some(40, 6, 3), light}, []float64{-1, -1, -1}},
		{"1 of 6, single, light", []load{some(40, 6, 1), always(40), light}, []float64{47, 47, -1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCard(t, share.BurstShare, test.loads...)
			c.infer(share.BurstShare, 2500*time.Millisecond)
			for i, want := range test.want {
				low, high := c.worst(i, 1200*time.Millisecond, time.Second)
				if want >= 0 && (low < want-1.5 || high > want+1.5) {
					t.Errorf("tenant %d had %.2f to %.2f %%, want %v", i, low, high, want)
				}
				if core := float64(test.loads[i].Core); test.loads[i].pattern == nil && low < core-1-c.waste() {
					t.Errorf("tenant %d had %.2f %%, its core is %v", i, low, core)
				}
				t.Logf("tenant %d: %.2f to %.2f %%, %.2f active groups", i, low, high, c.loads[i].Active)
			}
		})
	}
}

// TestMoreGroupsStartToWork lets 39 idle groups of a tenant wake.
func TestMoreGroupsStartToWork(t *testing.T) {
	c := newCard(t, share.BurstShare, some(50, 40, 1), always(50))
	c.infer(share.BurstShare, time.Second)
	c.loads[0].busy = 40
	c.infer(share.BurstShare, 1200*time.Millisecond)
	if got := c.share(1, time.Second); got < 47 {
		t.Errorf("the other had %.2f %% from 200 ms after it on", got)
	}
}

// TestInferredNumbersAreWithinBounds takes any use, possible or not.
func TestInferredNumbersAreWithinBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		_, tenants, plan := drawPlan(t)
		var used []uint64
		for range tenants {
			used = append(used, rapid.Uint64Range(0, 1<<40).Draw(t, "used"))
		}
		for i, got := range plan.Infer(tenants, used, time.Duration(rapid.Int64Range(1, 1<<40).Draw(t, "period"))) {
			if !(got >= 1 && got <= max(1, float64(tenants[i].Groups))) {
				t.Errorf("%v of %d groups are active", got, tenants[i].Groups)
			}
			if got != busyGroups(tenants[i]) && tenants[i].Groups < 2 {
				t.Errorf("a tenant of %d groups went from %v to %v", tenants[i].Groups, fmt.Sprint(tenants[i].Active), got)
			}
		}
	})
}
