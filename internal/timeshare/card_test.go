package timeshare_test

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/qgpu-project/qgpu/internal/share"
	"github.com/qgpu-project/qgpu/internal/simgpu/engine/runlist"
	"github.com/qgpu-project/qgpu/internal/timeshare"
)

const (
	us = 1_000
	ms = 1_000_000
)

// testCosts are the simulated card's defaults: a change of groups that interrupts a
// kernel costs 10 µs.
var testCosts = runlist.Costs{Switch: 5 * us, Preempt: 5 * us}

// latency is the time from the moment at which a window shuts to that at which the card
// obeys, in ns.
const latency = 50 * us

// A load is what a simulated tenant does.
type load struct {
	timeshare.Tenant
	kernel  uint64 // ns
	pattern []interval
}

// An interval is a time in which a tenant has work, in ns.
type interval struct{ from, to uint64 }

func always(core int) load {
	return load{Tenant: timeshare.Tenant{Core: core, Groups: 1}, kernel: 3 * ms}
}

func (l load) working(at uint64) bool {
	if l.pattern == nil {
		return true
	}
	for _, i := range l.pattern {
		if i.from <= at && at < i.to {
			return true
		}
	}
	return false
}

// card runs loads under a plan on the simulated runlist, with an actuator whose
// restarts take effect late and fail now and then.
type card struct {
	t       *testing.T
	list    *runlist.Runlist
	limits  timeshare.Limits
	plan    timeshare.Plan
	windows []timeshare.Window
	loads   []load
	shut    []bool
	next    []uint64 // when each window opens or shuts next
	used    []uint64 // ns of each tenant
	groups  [][]*runlist.Group
	chans   [][]*runlist.Channel
	log     [][]uint64 // use at each multiple of 100 µs
	random  *rand.Rand

	restartAt uint64 // when a restart takes effect; Never if none is due
	restarts  int
}

type ownerOf struct{ tenant, group int }

func newCard(t *testing.T, p share.Policy, loads ...load) *card {
	t.Helper()
	c := &card{t: t, limits: timeshare.DefaultLimits(), loads: loads, restartAt: timeshare.Never, random: rand.New(rand.NewPCG(1, 2))}
	n := len(loads)
	c.used, c.shut, c.next = make([]uint64, n), make([]bool, n), make([]uint64, n)
	c.groups, c.chans, c.log = make([][]*runlist.Group, n), make([][]*runlist.Channel, n), make([][]uint64, n)
	c.list = runlist.New(0, testCosts, func(g *runlist.Group, from, to uint64) {
		c.used[g.Tag.(ownerOf).tenant] += to - from
	})
	for i := range c.loads {
		c.loads[i].ID = strconv.Itoa(i)
		for g := range c.loads[i].Groups {
			group := c.list.Add(ownerOf{i, g})
			c.groups[i] = append(c.groups[i], group)
			c.chans[i] = append(c.chans[i], c.list.AddChannel(group))
		}
	}
	c.replan(p)
	for i := range c.loads {
		for _, ch := range c.chans[i] {
			c.list.Schedule(ch)
		}
	}
	return c
}

func (c *card) tenants() []timeshare.Tenant {
	var out []timeshare.Tenant
	for _, l := range c.loads {
		out = append(out, l.Tenant)
	}
	return out
}

// replan makes a plan and sets its slices, which a restart has to put into effect.
func (c *card) replan(p share.Policy) {
	c.t.Helper()
	plan, err := timeshare.New(p, c.limits, c.tenants())
	if err != nil {
		c.t.Fatal(err)
	}
	c.plan, c.windows = plan, plan.Windows()
	for i, s := range plan.Settings {
		for _, g := range c.groups[i] {
			g.SetTimeslice(s.Slice)
		}
		c.next[i] = 0
	}
}

// feed gives two kernels to each group that should have work.
func (c *card) feed(now uint64) {
	for i, l := range c.loads {
		if !l.working(now) {
			continue
		}
		for g, group := range c.groups[i] {
			for group.Pending() < 2 {
				c.list.Submit(c.chans[i][g], l.kernel, nil)
			}
		}
	}
}

// actuate opens and shuts the windows that are due and restarts the runlist if that is due.
func (c *card) actuate(now uint64) {
	if now >= c.restartAt {
		c.restartAt = timeshare.Never
		if c.random.IntN(100) < 27 {
			c.restartAt = now + 20*us
		} else {
			c.list.Restart()
			c.restarts++
		}
	}
	for i, w := range c.windows {
		if now < c.next[i] {
			continue
		}
		var open bool
		open, c.next[i] = w.At(now)
		if open != c.shut[i] {
			continue
		}
		c.shut[i] = !open
		for _, ch := range c.chans[i] {
			ch.Disable(!open)
		}
		c.restartAt = min(c.restartAt, now+latency)
	}
}

// run lets the card go on for d.
func (c *card) run(d time.Duration) {
	const tick = 100 * us
	for end := c.list.Now() + uint64(d); c.list.Now() < end; {
		now := c.list.Now()
		c.actuate(now)
		c.feed(now)
		to := min(end, (now/tick+1)*tick, c.restartAt)
		for _, next := range c.next {
			to = min(to, max(next, now+1))
		}
		c.list.Step(max(to, now+1))
		for i := range c.used {
			if uint64(len(c.log[i])+1)*tick <= c.list.Now() {
				c.log[i] = append(c.log[i], c.used[i])
			}
		}
	}
}

// share is tenant i's part of the card, in percent, in the last d.
func (c *card) share(i int, d time.Duration) float64 {
	l := c.log[i]
	n := int(d / (100 * time.Microsecond))
	return 100 * float64(l[len(l)-1]-l[len(l)-1-n]) / float64(d)
}

// worst is the most and the least that tenant i had in any window of length d after
// time from, in percent.
func (c *card) worst(i int, from, d time.Duration) (least, most float64) {
	l := c.log[i][from/(100*time.Microsecond):]
	n := int(d / (100 * time.Microsecond))
	least = 100
	for k := n; k < len(l); k++ {
		s := 100 * float64(l[k]-l[k-n]) / float64(d)
		least, most = min(least, s), max(most, s)
	}
	return least, most
}

// waste is the part of the card's time that changes of groups cost, in percent.
func (c *card) waste() float64 {
	return 100 * float64(c.list.Switched()) / float64(c.list.Now())
}
