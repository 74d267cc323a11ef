// Package runlist divides the time of a card's graphics and compute engine among
// channel groups as the hardware's runlist does: groups in rotation, a time slice
// each, the idle passed over, a running kernel interrupted when its group's slice is
// over. It is a state machine on a clock of its own, in nanoseconds, without
// goroutines, locks or the host's time: what it does follows from what it is told.
//
// What time slices do on real cards was seen on GPUs driven by 575 and 610 drivers: a
// slice is stored at once and obeyed after a restart of the runlist; shares follow
// groups × slice; disabled channels go on until a restart evicts them.
package runlist

import (
	"math"
	"slices"
)

// DefaultTimeslice is the slice of a new group in microseconds: 128 << 3, the default
// of NVIDIA's driver since GV100 (kernel_fifo_gv100.c).
const DefaultTimeslice = 128 << 3

// Limits of a group's slice in microseconds; what lies outside is brought inside.
const (
	MinTimeslice = 1
	MaxTimeslice = 10_000_000
)

// Never is the time of an event that will not come.
const Never = math.MaxUint64

// Costs are the times that the engine loses by changing groups, in nanoseconds.
type Costs struct {
	Switch  uint64 // to another group's context
	Preempt uint64 // on top, if a kernel is interrupted
	// Quantum is the granularity of interruption: a kernel stops only after whole
	// multiples of it. 0 and 1 mean anywhere.
	Quantum uint64
}

// A Runlist is the schedule of one engine.
type Runlist struct {
	costs    Costs
	now      uint64
	groups   []*Group // in the order of rotation
	running  *Group   // the group that has the engine; nil when idle
	loaded   *Group   // the group whose context the engine holds
	position int      // index in groups after which rotation goes on, while running is nil
	loss     uint64   // ns of context switch still to pay before running's work goes on
	left     uint64   // ns of slice that running still has
	overrun  bool     // running is past its slice, on the way to the next quantum

	account  func(g *Group, from, to uint64)
	switched uint64
	idle     uint64
}

// New returns an empty runlist at time now. Account, if not nil, is told each interval
// in which a group's work ran, in order.
func New(now uint64, costs Costs, account func(g *Group, from, to uint64)) *Runlist {
	return &Runlist{costs: costs, now: now, position: -1, account: account}
}

// Now is the runlist's time.
func (r *Runlist) Now() uint64 { return r.now }

// Switched is the time spent on context switches so far.
func (r *Runlist) Switched() uint64 { return r.switched }

// Idle is the time in which no group had work.
func (r *Runlist) Idle() uint64 { return r.idle }

// A Group is a channel group's place on the runlist.
type Group struct {
	Tag any // the creator's own

	slice  uint64 // ns, obeyed now
	stored uint64 // ns, obeyed after the next restart
	listed bool

	channels []*Channel
	jobs     []*Job // in order of submission
	used     uint64
}

// Used is the engine time that the group's work has had, in nanoseconds.
func (g *Group) Used() uint64 { return g.used }

// Timeslice is the slice last set, obeyed or not, in microseconds.
func (g *Group) Timeslice() uint64 { return g.stored / 1000 }

// Pending is the number of jobs submitted and not done.
func (g *Group) Pending() int { return len(g.jobs) }

// SetTimeslice stores a new slice. A group that was never scheduled gets it when it
// first is; another obeys it after the next [Runlist.Restart].
func (g *Group) SetTimeslice(us uint64) {
	g.stored = min(max(us, MinTimeslice), MaxTimeslice) * 1000
}

// Add puts a new group at the end of the rotation.
func (r *Runlist) Add(tag any) *Group {
	g := &Group{Tag: tag, slice: DefaultTimeslice * 1000, stored: DefaultTimeslice * 1000}
	r.groups = append(r.groups, g)
	return g
}

// Remove takes a group and all its work off the runlist.
func (r *Runlist) Remove(g *Group) {
	g.jobs = nil
	i := r.index(g)
	if i < 0 {
		return
	}
	r.groups = slices.Delete(r.groups, i, i+1)
	if r.running == g {
		r.running, r.position, r.loss = nil, i-1, 0
	} else if r.running == nil && r.position >= i {
		r.position--
	}
	if r.loaded == g {
		r.loaded = nil
	}
}

// A Channel is a source of work within a group.
type Channel struct {
	group    *Group
	disabled bool // obeyed now
	stored   bool // obeyed after the next restart
}

// AddChannel makes a channel of g.
func (r *Runlist) AddChannel(g *Group) *Channel {
	c := &Channel{group: g}
	g.channels = append(g.channels, c)
	return c
}

// RemoveChannel takes a channel and its work away.
func (r *Runlist) RemoveChannel(c *Channel) {
	r.RemoveJobs(c)
	g := c.group
	g.channels = slices.DeleteFunc(g.channels, func(other *Channel) bool { return other == c })
}

// Schedule commits the slice of c's group if this is the first of its channels to be
// put on the runlist.
func (r *Runlist) Schedule(c *Channel) {
	if !c.group.listed {
		c.group.listed, c.group.slice = true, c.group.stored
	}
}

// Disable keeps the channel's work off the engine, or lets it on again, from the next
// restart on.
func (c *Channel) Disable(yes bool) { c.stored = yes }

// Disabled tells whether the channel's work is kept off the engine now.
func (c *Channel) Disabled() bool { return c.disabled }

// Restart makes every stored slice and every channel's stored state the obeyed one,
// and takes the engine from the running group, whose slice ends here.
func (r *Runlist) Restart() {
	for _, g := range r.groups {
		g.slice = g.stored
		for _, c := range g.channels {
			c.disabled = c.stored
		}
	}
	r.Preempt(r.running)
}

// Preempt ends the slice of g if it is running.
func (r *Runlist) Preempt(g *Group) {
	if g != nil && g == r.running && r.loss == 0 {
		r.left, r.overrun = 0, true
	}
}

// A Job is a piece of engine time that a channel asks for: one kernel.
type Job struct {
	Tag any // the submitter's own

	channel *Channel
	left    uint64 // ns
	ran     uint64 // ns
}

// Submit queues length ns of work, at least one, behind the group's other work.
func (r *Runlist) Submit(c *Channel, length uint64, tag any) *Job {
	j := &Job{Tag: tag, channel: c, left: max(length, 1)}
	c.group.jobs = append(c.group.jobs, j)
	return j
}

// Cancel takes back a job that is not done.
func (r *Runlist) Cancel(j *Job) {
	g := j.channel.group
	if i := slices.Index(g.jobs, j); i >= 0 {
		g.jobs = slices.Delete(g.jobs, i, i+1)
	}
}

// next is the first job of g whose channel may use the engine.
func (g *Group) next() *Job {
	for _, j := range g.jobs {
		if !j.channel.disabled {
			return j
		}
	}
	return nil
}

// RemoveJobs takes a channel's work away and leaves the channel.
func (r *Runlist) RemoveJobs(c *Channel) {
	c.group.jobs = slices.DeleteFunc(c.group.jobs, func(j *Job) bool { return j.channel == c })
}
