package engine

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/qgpu-project/qgpu/internal/simgpu/engine/runlist"
	"github.com/qgpu-project/qgpu/internal/simgpu/gpumem"
)

// Where a client and the card tell each other how far they are, in USERD
// (Nvc46fControl in clc46f.h).
const (
	userdSize = 512
	userdGet  = 0x88
	userdPut  = 0x8c
)

// maxChannels is how many channels a card can have: as many as a runlist has ids.
const maxChannels = 4096

// Channel is a GPFIFO channel: a ring of pushbuffer segments and the card's state of
// executing them.
type Channel struct {
	engine *Engine
	cfg    ChannelConfig
	group  *Group
	space  *gpumem.Space
	token  uint32
	list   *runlist.Channel

	put, get *uint32 // in USERD
	position uint32  // of the next entry of the ring
	started  bool    // an entry is being executed

	reader  reader
	header  header
	host    hostState
	objects [8]*object // by subchannel

	wait      *acquire // what is waited for, or nil
	waitSince uint64   // card time
	waitTold  bool     // the watchdog has spoken of this wait
	task      *task    // what the card does for the channel, or nil
	queued    bool     // in engine.ready
	moving    bool     // in engine.movers
	stalled   bool     // in engine.stalled
	scheduled bool
	closed    bool
	fault     error
	raised    bool // in engine.raised
}

// task is work under way for a channel, which goes on only when it is done.
type task struct {
	move     *transfer // nil if no data moves, or none any more
	elapsed  bool      // its simulated time is over
	releases []release
	intr     bool
	then     func(*Channel) error // what follows at its end; may be nil
}

// NewChannel makes a channel. It executes nothing until Enable(true).
func (e *Engine) NewChannel(cfg ChannelConfig) (*Channel, error) {
	switch {
	case cfg.Group == nil || cfg.Group.engine != e:
		return nil, fmt.Errorf("a channel needs a group of the same card")
	case cfg.Space == nil:
		return nil, fmt.Errorf("a channel needs an address space")
	case cfg.Entries == 0:
		return nil, fmt.Errorf("a channel needs a GPFIFO of at least one entry")
	case len(cfg.USERD) < userdSize:
		return nil, fmt.Errorf("a channel needs %d bytes of USERD, not %d", userdSize, len(cfg.USERD))
	}
	c := &Channel{
		engine: e,
		cfg:    cfg,
		group:  cfg.Group,
		space:  cfg.Space,
		get:    (*uint32)(unsafe.Pointer(&cfg.USERD[userdGet])),
		put:    (*uint32)(unsafe.Pointer(&cfg.USERD[userdPut])),
	}
	if uintptr(unsafe.Pointer(c.get))%4 != 0 {
		return nil, fmt.Errorf("USERD of a channel is not aligned to 4 bytes")
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case c.group.closed || e.closed:
		return nil, fmt.Errorf("the channel's group or card is closed")
	case len(e.channels) >= maxChannels:
		return nil, fmt.Errorf("the card has %d channels, the most it can have", len(e.channels))
	}
	e.tokens++
	c.token = e.tokens
	c.list = e.runlist.AddChannel(c.group.list)
	c.group.channels[c] = struct{}{}
	e.channels = append(e.channels, c)
	e.Kick()
	return c, nil
}

// Token is what a client writes to the doorbell for this channel; it is unique on the
// card.
func (c *Channel) Token() uint32 { return c.token }

// Enable puts the channel on the runlist, or keeps it from beginning anything new;
// what it is doing goes on. The first channel of a group to be enabled commits the
// group's time slice.
func (c *Channel) Enable(on bool) {
	e := c.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	if c.closed {
		return
	}
	c.scheduled = on
	if on {
		e.runlist.Schedule(c.list)
		e.poll.all()
	}
	e.Kick()
}

// Close takes the channel off the card, with whatever it has not finished. An
// interrupt that was already raised may still be delivered.
func (c *Channel) Close() {
	c.engine.mu.Lock()
	release := c.close()
	c.engine.mu.Unlock()
	if release != nil {
		release()
	}
}

// close needs the engine's lock. It returns what is to be called without it.
func (c *Channel) close() (release func()) {
	if c.closed {
		return nil
	}
	c.closed = true
	c.task, c.wait = nil, nil
	c.engine.runlist.RemoveChannel(c.list)
	delete(c.group.channels, c)
	c.engine.forget(c)
	c.put, c.get, c.cfg.USERD = nil, nil, nil
	return c.cfg.Release
}

// runnable tells whether the channel could execute something now.
func (c *Channel) runnable() bool {
	if c.closed || c.fault != nil || c.task != nil || c.wait != nil || c.list.Disabled() {
		return false
	}
	return c.started || c.scheduled && atomic.LoadUint32(c.put) != c.position
}

// run executes at most budget words, and says how many of them it did.
func (c *Channel) run(budget int) int {
	done := 0
	for done < budget && c.runnable() {
		done++
		if err := c.step(); err != nil {
			c.fail(err)
		}
	}
	if c.wait != nil {
		c.reader.forget()
	}
	return done
}

// step executes one word: of the ring, a header or data.
func (c *Channel) step() error {
	if !c.started {
		return c.fetch()
	}
	if c.reader.empty() {
		c.finish()
		return nil
	}
	w, err := c.reader.word(c.space)
	if err != nil {
		return err
	}
	if c.header.count == 0 {
		if c.header, err = decodeHeader(w); err != nil {
			return err
		}
		switch {
		case c.header.end:
			c.finish()
		case c.header.immediate:
			return c.method(c.header.address, c.header.value)
		}
		return nil
	}
	c.header.count--
	address := c.header.address
	if c.header.advance != advanceNone {
		c.header.address = (address + 4) & 0x3fff
	}
	if c.header.advance == advanceOnce {
		c.header.advance = advanceNone
	}
	return c.method(address, w)
}

// fetch begins the next entry of the ring.
func (c *Channel) fetch() error {
	put := atomic.LoadUint32(c.put)
	if put >= c.cfg.Entries {
		return fmt.Errorf("GP_PUT is %d, and the GPFIFO has %d entries", put, c.cfg.Entries)
	}
	var b [8]byte
	at := c.cfg.GPFIFO + uint64(c.position)*8
	if err := c.space.ReadAt(b[:], at); err != nil {
		return fmt.Errorf("fetching entry %d of the GPFIFO: %w", c.position, err)
	}
	entry, err := decodeEntry(le64(b[:]))
	if err != nil {
		return err
	}
	c.reader.start(entry)
	c.header = header{}
	c.started = true
	return nil
}

// finish ends the current entry and tells the client. A channel whose last segment is
// still at work says so at its end only.
func (c *Channel) finish() {
	c.started = false
	c.header = header{}
	c.position = (c.position + 1) % c.cfg.Entries
	atomic.StoreUint32(c.get, c.position)
}

// method executes a method of the host or of the object on the header's subchannel.
func (c *Channel) method(address, value uint32) error {
	if address < hostMethods {
		return c.hostMethod(address, value)
	}
	o := c.objects[c.header.sub]
	if o == nil {
		return fmt.Errorf("method %#04x on subchannel %d, to which no class is bound", address, c.header.sub)
	}
	o.regs[address/4] = value
	if f := o.class.methods[address]; f != nil {
		return f(c, o, value)
	}
	if !o.class.known(address) {
		c.engine.unknown(o.class.name, address, value)
	}
	return nil
}

// acquire waits for a semaphore unless it has been released already.
func (c *Channel) acquire(a acquire) error {
	found, err := a.found(c.space)
	if err != nil {
		return fmt.Errorf("acquiring a semaphore: %w", err)
	}
	if !a.holds(found) {
		c.wait, c.waitSince, c.waitTold = &a, c.engine.runlist.Now(), false
		if !c.stalled {
			c.stalled = true
			c.engine.stalled = append(c.engine.stalled, c)
		}
	}
	return nil
}

// look finds what the channel's client has submitted or released.
func (c *Channel) look() {
	if c.wait != nil {
		c.retry()
		return
	}
	c.engine.wake(c)
}

// retry looks again at the semaphore that is waited for.
func (c *Channel) retry() {
	found, err := c.wait.found(c.space)
	switch {
	case err != nil:
		c.fail(fmt.Errorf("acquiring a semaphore: %w", err))
	case c.wait.holds(found):
		c.wait = nil
		c.engine.wake(c)
	}
}

// release writes a semaphore now.
func (c *Channel) release(r release) error {
	if err := r.perform(c.space, c.engine.runlist.Now()); err != nil {
		return err
	}
	c.engine.released(c.space)
	return nil
}

// interrupt raises the channel's interrupt.
func (c *Channel) interrupt() {
	if !c.raised {
		c.raised = true
		c.engine.raised = append(c.engine.raised, c)
	}
}

// begin makes t the channel's task. The caller sees to it that its time elapses.
func (c *Channel) begin(t *task) error {
	c.task = t
	if t.move == nil {
		return nil
	}
	if err := t.move.step(c.space, c.engine.scratch); err != nil {
		return fmt.Errorf("moving data: %w", err)
	}
	if t.move = t.move.rest(); t.move == nil {
		return nil
	}
	c.moving = true
	c.engine.movers = append(c.engine.movers, c)
	return nil
}

// settle ends the task if its time is over and its data moved.
func (c *Channel) settle() {
	t := c.task
	if t == nil || !t.elapsed || t.move != nil {
		return
	}
	c.task = nil
	c.engine.released(c.space) // by the data that moved, if by nothing else
	for _, r := range t.releases {
		if err := c.release(r); err != nil {
			c.fail(err)
			return
		}
	}
	if t.intr {
		c.interrupt()
	}
	if t.then != nil {
		if err := t.then(c); err != nil {
			c.fail(err)
		}
	}
}

// fail stops the channel for good.
func (c *Channel) fail(err error) {
	if c.fault != nil {
		return
	}
	c.fault = err
	c.task, c.wait = nil, nil
	c.engine.runlist.RemoveJobs(c.list)
	c.engine.watch.faulted(c)
	if c.cfg.Fault != nil {
		c.engine.faults = append(c.engine.faults, c)
	}
}
