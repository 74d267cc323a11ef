package engine

import (
	"runtime"
	"runtime/debug"
	"slices"

	"github.com/qgpu-project/qgpu/internal/simgpu/engine/runlist"
	"github.com/qgpu-project/qgpu/internal/simgpu/gpumem"
)

// Bounds of what one turn of the loop does before the lock is let go.
const (
	wordsPerRun  = 2048    // of one channel, before another's turn
	turnTime     = 500_000 // ns, about
	eventsPerRun = 4096
)

// loop drives the card until it is closed.
func (e *Engine) loop() {
	defer close(e.done)
	// The thread ends with the goroutine, and its timer slack with it.
	runtime.LockOSThread()
	e.bell.precise()
	// A fault in a view of a client's memory becomes a panic, which costs one channel.
	debug.SetPanicOnFault(true)
	for {
		e.mu.Lock()
		if e.closed {
			e.mu.Unlock()
			return
		}
		wait := e.turn()
		raised, faults := e.raised, e.faults
		e.raised, e.faults = nil, nil
		for _, c := range raised {
			c.raised = false
		}
		e.mu.Unlock()
		deliver(raised, faults)
		e.bell.wait(wait)
	}
}

func deliver(raised, faults []*Channel) {
	for _, c := range raised {
		if c.cfg.Interrupt != nil {
			c.cfg.Interrupt()
		}
	}
	for _, c := range faults {
		c.cfg.Fault(c.fault)
	}
}

// turn does what is due, within bounds, and returns how long nothing will be, in ns;
// negative is for good.
func (e *Engine) turn() (wait int64) {
	begin := e.clock.host()
	e.advance(begin)
	e.look(begin)
	e.runReady()
	e.move()
	e.watch.check(e)
	if len(e.ready) > 0 || len(e.movers) > 0 {
		return 0
	}
	now := e.clock.host()
	wait = e.poll.pause(e, begin, now)
	if next := min(e.runlist.Next(), e.copies.Next()); next != runlist.Never {
		until := int64(e.clock.due(next)) - int64(now)
		if wait < 0 || until < wait {
			wait = max(until, 0)
		}
	}
	return wait
}

// advance brings the card's time forward as far as it should be, one event after the
// other, each with all that follows from it at the same time.
func (e *Engine) advance(begin uint64) {
	for range eventsPerRun {
		e.runReady()
		if !e.event() {
			return
		}
		if e.clock.host()-begin > turnTime {
			return
		}
	}
}

// event moves the card's time on to the end of the next piece of work, or to where it
// should be by now; then it returns false.
func (e *Engine) event() bool {
	e.idleUntilNow()
	limit := e.limit()
	if far := e.runlist.Now() + stride; limit == far {
		e.clock.done(far)
	}
	copied := e.copies.Next()
	if j := e.runlist.Step(min(limit, copied)); j != nil {
		e.clock.done(e.runlist.Now())
		e.elapse(j.Tag.(*Channel))
		return true
	}
	if copied > limit {
		return false
	}
	e.clock.done(copied)
	e.elapse(e.copies.Pop().(*Channel))
	return true
}

// elapse ends the simulated time of a channel's task, and lets the channel go on at
// once.
func (e *Engine) elapse(c *Channel) {
	if c.closed || c.task == nil {
		return
	}
	c.task.elapsed = true
	e.poll.active(c, e.clock.host())
	e.execute(c, func() {
		c.settle()
		c.run(wordsPerRun)
	})
	e.wake(c)
}

// wake queues a channel that can execute something.
func (e *Engine) wake(c *Channel) {
	if !c.queued && c.runnable() {
		c.queued = true
		e.ready = append(e.ready, c)
	}
}

// runReady gives every queued channel a turn, as far as time allows; the others come
// first the next time.
func (e *Engine) runReady() {
	if len(e.ready) == 0 {
		return
	}
	turn := e.ready
	e.ready = nil
	begin := e.clock.host()
	for i, c := range turn {
		host := e.clock.host()
		if host-begin > turnTime {
			e.ready = append(turn[i:len(turn):len(turn)], e.ready...)
			return
		}
		c.queued = false
		e.poll.active(c, host)
		e.execute(c, func() { c.run(wordsPerRun) })
		e.wake(c)
	}
	if e.ready == nil {
		e.ready = turn[:0]
	}
}

// guard runs f for a channel and turns a panic, such as a fault in a view of memory,
// into the channel's fault.
func (e *Engine) guard(c *Channel, f func()) {
	defer func() {
		if p := recover(); p != nil {
			c.fail(panicError(p))
		}
	}()
	f()
}

// execute runs f for a channel and lets those go on that waited for what it released.
func (e *Engine) execute(c *Channel, f func()) {
	e.guard(c, f)
	if e.touched != nil {
		e.retry(e.touched)
		e.touched = nil
	}
}

// released notes that semaphores in the space may have changed. It is the space of the
// one channel that executes.
func (e *Engine) released(s *gpumem.Space) { e.touched = s }

// retry lets the channels of a space look at their semaphores again.
func (e *Engine) retry(s *gpumem.Space) {
	e.stalled = slices.DeleteFunc(e.stalled, func(c *Channel) bool {
		c.stalled = c.wait != nil
		return !c.stalled
	})
	for _, c := range e.stalled {
		if c.space == s && c.wait != nil {
			e.guard(c, c.retry)
		}
	}
}

// look finds what clients have submitted and released.
func (e *Engine) look(host uint64) {
	for _, c := range e.poll.due(e, host) {
		e.guard(c, c.look)
	}
}

// move moves a chunk of each transfer that is under way, as far as time allows; the
// others come first the next time.
func (e *Engine) move() {
	turn := e.movers
	e.movers = nil
	begin := e.clock.host()
	for i, c := range turn {
		if e.clock.host()-begin > turnTime {
			e.movers = append(turn[i:len(turn):len(turn)], e.movers...)
			return
		}
		if c.closed || c.task == nil || c.task.move == nil {
			c.moving = false
			continue
		}
		e.guard(c, func() { e.moveOne(c) })
		if c.task != nil && c.task.move != nil {
			e.movers = append(e.movers, c)
			continue
		}
		c.moving = false
		e.execute(c, c.settle)
		e.wake(c)
	}
}

func (e *Engine) moveOne(c *Channel) {
	m := c.task.move
	if err := m.step(c.space, e.scratch); err != nil {
		c.fail(err)
		return
	}
	c.task.move = m.rest()
}

// forget takes a closed channel out of every list.
func (e *Engine) forget(c *Channel) {
	is := func(other *Channel) bool { return other == c }
	e.channels = slices.DeleteFunc(e.channels, is)
	e.ready = slices.DeleteFunc(e.ready, is)
	e.movers = slices.DeleteFunc(e.movers, is)
	e.poll.hot = slices.DeleteFunc(e.poll.hot, is)
	e.stalled = slices.DeleteFunc(e.stalled, is)
}
