package runlist

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

const ms = 1_000_000

var testCosts = Costs{Switch: 5_000, Preempt: 10_000}

// busy keeps every channel supplied with jobs of a fixed length.
type busy struct {
	r       *Runlist
	lengths map[*Channel]uint64
}

func (b *busy) run(to uint64) {
	for b.r.Now() < to {
		if j := b.r.Step(to); j != nil {
			b.r.Submit(j.channel, b.lengths[j.channel], nil)
		}
	}
}

func newBusy(r *Runlist) *busy { return &busy{r: r, lengths: make(map[*Channel]uint64)} }

// add makes a group with one channel that always has work.
func (b *busy) add(us, length uint64) (*Group, *Channel) {
	g := b.r.Add(nil)
	g.SetTimeslice(us)
	c := b.r.AddChannel(g)
	b.r.Schedule(c)
	b.lengths[c] = length
	b.r.Submit(c, length, nil)
	return g, c
}

// TestSharesFollowSlices has every group always busy: each gets its slice in every
// rotation, whatever its kernels are and in whatever order the groups came.
func TestSharesFollowSlices(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := newBusy(New(0, testCosts, nil))
		n := rapid.IntRange(2, 8).Draw(t, "groups")
		var groups []*Group
		rotation := uint64(0)
		for i := range n {
			us := rapid.Uint64Range(50, 20_000).Draw(t, fmt.Sprint("slice ", i))
			length := rapid.Uint64Range(10_000, 50*ms).Draw(t, fmt.Sprint("kernel ", i))
			g, _ := b.add(us, length)
			groups = append(groups, g)
			rotation += us*1000 + testCosts.Switch + testCosts.Preempt
		}
		end := 20 * rotation
		b.run(end)
		sum := b.r.Switched() + b.r.Idle()
		for _, g := range groups {
			sum += g.Used()
			// Each group is given its slice at least once a rotation, and the last may be cut.
			if low := 19 * g.slice; g.Used() < low {
				t.Errorf("a group with a slice of %d ns had %d ns, want %d at least", g.slice, g.Used(), low)
			}
		}
		if sum != end || b.r.Idle() != 0 {
			t.Errorf("%d ns of %d are accounted for, %d of them idle", sum, end, b.r.Idle())
		}
		ratio := func(g *Group) float64 { return float64(g.Used()) / float64(g.slice) }
		for _, g := range groups[1:] {
			if d := ratio(g) - ratio(groups[0]); d > 1 || d < -1 {
				t.Errorf("groups had %.2f and %.2f slices", ratio(groups[0]), ratio(g))
			}
		}
	})
}

// script is a random history of a runlist.
type script struct {
	costs  Costs
	groups []uint64 // slices in us
	jobs   []scriptJob
}

type scriptJob struct{ at, group, length uint64 }

func drawScript(t *rapid.T) script {
	s := script{costs: Costs{
		Switch:  rapid.Uint64Range(0, 20_000).Draw(t, "switch"),
		Preempt: rapid.Uint64Range(0, 20_000).Draw(t, "preempt"),
		Quantum: rapid.Uint64Range(0, 100_000).Draw(t, "quantum"),
	}}
	s.groups = rapid.SliceOfN(rapid.Uint64Range(1, 3000), 1, 6).Draw(t, "slices")
	n := rapid.IntRange(0, 40).Draw(t, "jobs")
	for range n {
		s.jobs = append(s.jobs, scriptJob{
			at:     rapid.Uint64Range(0, 20*ms).Draw(t, "at"),
			group:  rapid.Uint64Range(0, uint64(len(s.groups)-1)).Draw(t, "group"),
			length: rapid.Uint64Range(1, 5*ms).Draw(t, "length"),
		})
	}
	slices.SortStableFunc(s.jobs, func(a, b scriptJob) int { return int(a.at) - int(b.at) })
	return s
}

// play runs the script, stopping at the given times too, and returns when which job
// was done.
func (s script) play(stops []uint64) (done []string, r *Runlist, groups []*Group) {
	r = New(0, s.costs, nil)
	var channels []*Channel
	for _, us := range s.groups {
		g := r.Add(nil)
		g.SetTimeslice(us)
		c := r.AddChannel(g)
		r.Schedule(c)
		groups, channels = append(groups, g), append(channels, c)
	}
	step := func(to uint64) {
		for {
			j := r.Step(to)
			if j == nil {
				return
			}
			done = append(done, fmt.Sprint(r.Now(), " ", j.Tag))
		}
	}
	stops = slices.Clone(stops)
	slices.Sort(stops)
	for i, j := range s.jobs {
		for len(stops) > 0 && stops[0] < j.at {
			step(stops[0])
			stops = stops[1:]
		}
		step(j.at)
		r.Submit(channels[j.group], j.length, i)
	}
	for _, stop := range stops {
		if stop > r.Now() {
			step(stop)
		}
	}
	step(1000 * ms)
	return done, r, groups
}

// TestEveryNanosecondIsAccountedFor also shows that all work is done and none twice.
func TestEveryNanosecondIsAccountedFor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawScript(t)
		done, r, groups := s.play(nil)
		if len(done) != len(s.jobs) {
			t.Fatalf("%d of %d jobs are done", len(done), len(s.jobs))
		}
		sum := r.Idle() + r.Switched()
		for i, g := range groups {
			want := uint64(0)
			for _, j := range s.jobs {
				if j.group == uint64(i) {
					want += j.length
				}
			}
			if g.Used() != want {
				t.Errorf("group %d used %d ns, its jobs are %d ns", i, g.Used(), want)
			}
			sum += g.Used()
		}
		if sum != r.Now() {
			t.Errorf("%d ns of %d are accounted for", sum, r.Now())
		}
	})
}

// TestStopsChangeNothing: what happens does not depend on when the clock is read.
func TestStopsChangeNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawScript(t)
		stops := rapid.SliceOfN(rapid.Uint64Range(0, 60*ms), 0, 60).Draw(t, "stops")
		want, _, _ := s.play(nil)
		if got, _, _ := s.play(stops); !slices.Equal(got, want) {
			t.Errorf("with stops the jobs end thus:\n%v\nwithout:\n%v", got, want)
		}
	})
}

// TestNextIsNeverLate: nothing is done before the time that Next announces.
func TestNextIsNeverLate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawScript(t)
		_, r, groups := s.play(nil)
		for i, g := range groups {
			r.Submit(g.channels[0], uint64(i+1)*ms, i)
		}
		for r.Next() != Never {
			next := r.Next()
			if next <= r.Now() {
				t.Fatalf("the next event at %d is not after %d", next, r.Now())
			}
			if j := r.Step(next - 1); j != nil {
				t.Fatalf("a job is done at %d, before %d", r.Now(), next)
			}
			r.Step(next)
		}
	})
}

// TestNobodyStarves: a group with work waits for the others' slices and switches, and
// no longer.
func TestNobodyStarves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		costs := testCosts
		costs.Quantum = rapid.Uint64Range(0, 200_000).Draw(t, "quantum")
		last := map[*Group]uint64{}
		worst := map[*Group]uint64{}
		r := New(0, costs, func(g *Group, from, to uint64) {
			worst[g] = max(worst[g], from-last[g])
			last[g] = to
		})
		b := newBusy(r)
		bound := uint64(0)
		for range rapid.IntRange(1, 8).Draw(t, "groups") {
			us := rapid.Uint64Range(10, 5000).Draw(t, "slice")
			b.add(us, rapid.Uint64Range(1000, 100*ms).Draw(t, "kernel"))
			bound += us*1000 + costs.Switch + costs.Preempt + costs.Quantum
		}
		b.run(20 * bound)
		for g, w := range worst {
			if w > bound {
				t.Errorf("a group with a slice of %d ns waited %d ns, more than %d", g.slice, w, bound)
			}
		}
		if len(worst) != len(r.groups) {
			t.Errorf("%d of %d groups ran", len(worst), len(r.groups))
		}
	})
}

func TestSliceIsInertUntilRestart(t *testing.T) {
	b := newBusy(New(0, Costs{}, nil))
	first, _ := b.add(1000, 10*ms)
	second, _ := b.add(1000, 10*ms)
	share := func() float64 {
		before := [2]uint64{first.Used(), second.Used()}
		b.run(b.r.Now() + 400*ms)
		return float64(first.Used()-before[0]) / float64(second.Used()-before[1])
	}
	first.SetTimeslice(3000)
	if s := share(); s < 0.95 || s > 1.05 {
		t.Errorf("the ratio is %.2f before the restart, want 1", s)
	}
	if first.Timeslice() != 3000 {
		t.Errorf("the stored slice reads %d", first.Timeslice())
	}
	b.r.Restart()
	if s := share(); s < 2.9 || s > 3.1 {
		t.Errorf("the ratio is %.2f after the restart, want 3", s)
	}
}

func TestFirstScheduleCommitsTheSlice(t *testing.T) {
	r := New(0, Costs{}, nil)
	g := r.Add(nil)
	g.SetTimeslice(3000)
	c := r.AddChannel(g)
	if g.slice != DefaultTimeslice*1000 {
		t.Errorf("slice is %d before the group is on the runlist", g.slice)
	}
	r.Schedule(c)
	g.SetTimeslice(5000)
	r.Schedule(c)
	if g.slice != 3000*1000 {
		t.Errorf("slice is %d, want the one of the first schedule", g.slice)
	}
}

func TestDisabledChannelRunsUntilRestart(t *testing.T) {
	b := newBusy(New(0, Costs{}, nil))
	gated, c := b.add(1000, 100*ms)
	other, _ := b.add(1000, 100*ms)
	used := func(g *Group) uint64 {
		before := g.Used()
		b.run(b.r.Now() + 50*ms)
		return g.Used() - before
	}
	c.Disable(true)
	if u := used(gated); u != 25*ms {
		t.Errorf("had %d ns of 50 ms before the restart, want half", u)
	}
	b.r.Restart()
	before := other.Used()
	if u := used(gated); u != 0 {
		t.Errorf("had %d ns after the restart", u)
	}
	if u := other.Used() - before; u != 50*ms {
		t.Errorf("the other had %d ns of 50 ms", u)
	}
	c.Disable(false)
	b.r.Restart()
	if u := used(gated); u != 25*ms {
		t.Errorf("had %d ns of 50 ms when enabled again, want half", u)
	}
}

func TestInterruptedKernelCosts(t *testing.T) {
	b := newBusy(New(0, testCosts, nil))
	b.add(1000, 100*ms)
	b.add(1000, 100*ms)
	b.run(0 + 5_000 + 1*ms + 15_000 + 1*ms)
	if got := b.r.Switched(); got != 20_000 {
		t.Errorf("%d ns are lost after two slices, want 20000", got)
	}
}

func TestQuantum(t *testing.T) {
	b := newBusy(New(0, Costs{Quantum: 300_000}, nil))
	first, _ := b.add(1000, 100*ms)
	b.add(1000, 100*ms)
	b.run(1900_000)
	if first.Used() != 1200_000 {
		t.Errorf("the first had %d ns before it was interrupted, want 1.2 ms", first.Used())
	}
}

func TestRemoveTakesWorkAlong(t *testing.T) {
	b := newBusy(New(0, testCosts, nil))
	first, _ := b.add(1000, 100*ms)
	second, _ := b.add(1000, 100*ms)
	b.run(500_000)
	b.r.Remove(first)
	b.r.Remove(first)
	before := second.Used()
	b.run(20 * ms)
	if got := second.Used() - before; got != 20*ms-500_000-testCosts.Switch {
		t.Errorf("the second had %d ns after the first had gone", got)
	}
	b.r.Remove(second)
	if b.r.Next() != Never {
		t.Error("there is work without groups")
	}
}

// TestPool compares the engines' ends with a plain simulation.
func TestPool(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 4).Draw(t, "engines")
		p := NewPool(n)
		free := make([]uint64, n)
		var want []uint64
		now := uint64(0)
		for i, length := range rapid.SliceOfN(rapid.Uint64Range(1, 1000), 1, 30).Draw(t, "lengths") {
			now += rapid.Uint64Range(0, 300).Draw(t, "gap")
			slices.Sort(free)
			free[0] = max(free[0], now) + length
			want = append(want, free[0])
			p.Submit(now, length, i)
		}
		var tags []int
		last := uint64(0)
		for p.Next() != Never {
			next := p.Next()
			tag := p.Pop().(int)
			if next != want[tag] || next < last {
				t.Errorf("transfer %d ends at %d, want %d, after %d", tag, next, want[tag], last)
			}
			last = next
			tags = append(tags, tag)
		}
		slices.Sort(tags)
		if len(slices.Compact(tags)) != len(want) {
			t.Errorf("%d of %d transfers ended", len(tags), len(want))
		}
	})
}
