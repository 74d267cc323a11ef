package timeshare_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/qgpu-project/qgpu/internal/share"
)

// A mix is a set of tenants with always the same asked cores.
type mix struct {
	name  string
	cores []int
	idle  int // index of a tenant that has no work, or -1
}

func mixes() []mix {
	return []mix{
		{"10:90", []int{10, 90}, -1},
		{"30:70", []int{30, 70}, -1},
		{"25:75", []int{25, 75}, -1},
		{"50:50", []int{50, 50}, -1},
		{"16x5", slices.Repeat([]int{5}, 16), -1},
		{"5:5:10, the second idle", []int{5, 5, 10}, 1},
		{"5:5:10, the third idle", []int{5, 5, 10}, 2},
		{"20:30:50, the third idle", []int{20, 30, 50}, 2},
	}
}

// want is the share in percent that tenant i of m should have.
func (m mix) want(p share.Policy, i int) float64 {
	sum, n := 0, 0
	for k, core := range m.cores {
		if k != m.idle {
			sum += core
			n++
		}
	}
	switch {
	case i == m.idle:
		return 0
	case p == share.BestEffort:
		return 100 / float64(n)
	case p == share.BurstShare:
		return 100 * float64(m.cores[i]) / float64(sum)
	}
	return float64(m.cores[i])
}

// kernels are the lengths of the tenants' kernels, by index, in ns.
var kernels = map[string]func(i int) uint64{
	"equal":   func(int) uint64 { return 3 * ms },
	"unequal": func(i int) uint64 { return [...]uint64{100 * us, 20 * ms}[i%2] },
	"small":   func(int) uint64 { return 37 * us },
}

// TestShares measures what tenants get that always have work, and what the changes cost.
func TestShares(t *testing.T) {
	for _, p := range []share.Policy{share.BestEffort, share.BurstShare, share.FixedShare} {
		for _, m := range mixes() {
			for name, length := range kernels {
				t.Run(fmt.Sprint(p, "/", m.name, "/", name), func(t *testing.T) {
					var loads []load
					for i, core := range m.cores {
						l := always(core)
						l.kernel = length(i)
						if i == m.idle {
							l.pattern = []interval{}
						}
						loads = append(loads, l)
					}
					c := newCard(t, p, loads...)
					c.run(2 * time.Second)
					m.check(t, c, p)
				})
			}
		}
	}
}

func (m mix) check(t *testing.T, c *card, p share.Policy) {
	worst1, worst100 := 0.0, 0.0
	for i, core := range m.cores {
		want := m.want(p, i)
		low, high := c.worst(i, 500*time.Millisecond, time.Second)
		worst1 = max(worst1, want-low, high-want)
		if low < want-1 || high > want+1 {
			t.Errorf("tenant %d had %.2f to %.2f %% over 1 s, want %.2f", i, low, high, want)
		}
		low, high = c.worst(i, 500*time.Millisecond, 100*time.Millisecond)
		worst100 = max(worst100, want-low, high-want)
		if low < want-3.1 || high > want+3.1 {
			t.Errorf("tenant %d had %.2f to %.2f %% over 100 ms, want %.2f", i, low, high, want)
		}
		s := c.plan.Settings[i]
		if turn := float64(s.Turn) / float64(time.Millisecond); p == share.FixedShare {
			if _, high := c.worst(i, 0, 100*time.Millisecond); high > float64(core)+turn {
				t.Errorf("tenant %d had %.2f %% in 100 ms, more than a turn of %v over %d", i, high, s.Turn, core)
			}
		}
	}
	if w := c.waste(); p != share.FixedShare && w > 1 {
		t.Errorf("changes of groups took %.2f %% of the card", w)
	}
	t.Logf("error %.2f over 1 s, %.2f over 100 ms; changes cost %.2f %%; %d restarts a second",
		worst1, worst100, c.waste(), c.restarts/2)
}
