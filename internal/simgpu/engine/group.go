package engine

import "github.com/qgpu-project/qgpu/internal/simgpu/engine/runlist"

// Group is a channel group (TSG): its channels take turns on the graphics and compute
// engine as one.
type Group struct {
	engine   *Engine
	owner    Owner
	list     *runlist.Group
	channels map[*Channel]struct{}
	closed   bool
}

// NewGroup makes a channel group whose work is accounted to owner.
func (e *Engine) NewGroup(owner Owner) *Group {
	e.mu.Lock()
	defer e.mu.Unlock()
	g := &Group{engine: e, owner: owner, channels: make(map[*Channel]struct{})}
	g.list = e.runlist.Add(g)
	e.meter.join(owner)
	return g
}

// SetTimeslice stores the group's time slice, in microseconds. A group that has been
// enabled already obeys it after the next restart of the runlist. Values outside of
// [runlist.MinTimeslice], [runlist.MaxTimeslice] are brought inside.
func (g *Group) SetTimeslice(us uint64) {
	g.engine.mu.Lock()
	defer g.engine.mu.Unlock()
	g.list.SetTimeslice(us)
}

// Timeslice is the time slice last set, obeyed or not, in microseconds.
func (g *Group) Timeslice() uint64 {
	g.engine.mu.Lock()
	defer g.engine.mu.Unlock()
	return g.list.Timeslice()
}

// Preempt ends the group's present slice, if it is running.
func (g *Group) Preempt() {
	g.engine.mu.Lock()
	g.engine.runlist.Preempt(g.list)
	g.engine.mu.Unlock()
	g.engine.Kick()
}

// Close closes the group's channels and takes it off the runlist.
func (g *Group) Close() {
	e := g.engine
	e.mu.Lock()
	if g.closed {
		e.mu.Unlock()
		return
	}
	g.closed = true
	var releases []func()
	for c := range g.channels {
		if release := c.close(); release != nil {
			releases = append(releases, release)
		}
	}
	e.runlist.Remove(g.list)
	e.meter.leave(g.owner)
	e.mu.Unlock()
	for _, release := range releases {
		release()
	}
}

// DisableChannels keeps channels from running, or lets them again, from the next
// restart of the runlist on.
func (e *Engine) DisableChannels(disable bool, channels ...*Channel) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range channels {
		if !c.closed {
			c.list.Disable(disable)
		}
	}
}

// RestartRunlist puts stored time slices and disabled channels into effect and ends
// the running group's slice. It fails now and then with [ErrInvalidState], and has then
// done nothing.
func (e *Engine) RestartRunlist() error {
	e.mu.Lock()
	if e.failures > 0 && e.random.IntN(1000) < e.failures {
		e.mu.Unlock()
		return ErrInvalidState
	}
	e.runlist.Restart()
	e.poll.all()
	e.mu.Unlock()
	e.Kick()
	return nil
}
