package mediator

import (
	"cmp"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/qgpu-project/qgpu/internal/nvabi"
	"github.com/qgpu-project/qgpu/internal/nvclient"
	"github.com/qgpu-project/qgpu/internal/seccomp"
)

// Order is how the tenant's channel groups on the compute engine of one card are to be
// scheduled, those that exist and those to come.
type Order struct {
	Card int // index in Config.Cards
	// Turn is the time in µs that all groups have together in a rotation: a group's slice
	// is Turn divided by their number, but within Least and Most.
	Turn, Least, Most uint64
	// Gated says that the pacer lets the tenant's channels on the card and keeps them off it
	// by itself. A channel that comes is kept off until the pacer has taken it up.
	Gated bool
	// Afresh has everything set again, whatever was set before.
	Afresh bool
}

// slice is the time slice in µs of each of n groups.
func (o Order) slice(n int) uint64 {
	return min(max(o.Turn/uint64(max(n, 1)), o.Least), o.Most)
}

// Applied is what became of an order. What an order sets is inert until a restart of the
// runlist, for which this process has no right.
type Applied struct {
	Restart bool // something was set that waits for a restart
	// File is a duplicate of a control file of the tenant, which the caller closes, and
	// Channel one of that file's client, for the restart; File is -1 if there is none.
	// Process is the one whose file it is.
	File    int
	Channel nvclient.Channel
	Process int
	// Channels are those that the pacer may gate.
	Channels []nvclient.Channel
}

// MaxChannels bounds the channels that a tenant has on the compute engine of a card, so that
// to gate them takes little time. libcuda makes some a context.
const MaxChannels = 1024

// schedule is what the tenant's pacer wants.
type schedule struct {
	mu      sync.Mutex
	orders  []Order // by card
	ordered []bool
	ready   chan struct{} // closed when every card has an order
	changed func()        // tells that there are other groups or channels now
}

// firstOrder bounds how long the tenant's first channel group waits for an order.
const firstOrder = 10 * time.Second

// Pace has changed called, from then on, whenever an order should be thought over: the
// tenant's groups are others, or channels appeared that its pacer has to take up. Without it
// groups are made as they come. It is called before the tenant's first call.
func (m *Mediator) Pace(changed func()) {
	m.schedule = &schedule{
		orders: make([]Order, len(m.cards)), ordered: make([]bool, len(m.cards)),
		ready: make(chan struct{}), changed: changed,
	}
	m.ledger.regrouped = changed
}

// Groups are the numbers of the tenant's channel groups on the compute engines of its
// cards, in Config's order.
func (m *Mediator) Groups() []int {
	m.ledger.mu.Lock()
	defer m.ledger.mu.Unlock()
	n := make([]int, len(m.cards))
	for o := range m.ledger.groups {
		n[o.card]++
	}
	return n
}

// await waits for the first orders.
func (s *schedule) await() bool {
	select {
	case <-s.ready:
		return true
	case <-time.After(firstOrder):
		return false
	}
}

// isCompute reports whether an engine type (NV2080_ENGINE_TYPE_GR0…7) is the compute
// engine or a part of it.
func isCompute(engine uint32) bool { return engine >= 1 && engine <= 8 }

// allocGroup makes a channel group. One on the compute engine has its slice before the
// tenant can submit to it.
func (c *call) allocGroup(class nvabi.RMClass, params message) seccomp.Answer {
	s := c.m.schedule
	card, ok := c.m.ledger.cardOf(c.arg.u32(0), c.arg.u32(allocParent))
	if s == nil || !ok || params == nil || !isCompute(params.u32(nvabi.GroupEngineType)) {
		return c.allocObject(class, params)
	}
	if !s.await() {
		c.m.log.Error("a channel group is refused: nobody says what its time slice is")
		return c.refuse(statusNoResources)
	}
	s.mu.Lock()
	errno := c.execute()
	if c.ok(errno) {
		o := c.created(class, card)
		o.compute = true
		c.m.ledger.add(o)
		c.m.setFirstSlice(c.fd, o)
	}
	s.mu.Unlock()
	if c.ok(errno) {
		s.changed()
	}
	return c.finish(errno)
}

// setFirstSlice sets the slice of a group that was just made, whose control file is fd.
// The caller holds the schedule's lock.
func (m *Mediator) setFirstSlice(fd int, o newObject) {
	groups, _ := m.ledger.runnables(o.card)
	us := m.schedule.orders[o.card].slice(len(groups))
	if err := nvclient.SetTimeslice(m.driver, fd, o.client, o.handle, us); err != nil {
		m.log.Warn("a new channel group has the driver's time slice until the next order", "error", err)
		return
	}
	for _, g := range groups {
		if g.client == o.client && g.object.handle == o.handle {
			g.object.slice = us
		}
	}
}

// allocChannel makes a channel. One on the compute engine of a tenant that is gated is
// disabled until the pacer has it. It needs a group: the driver would make it one whose slice
// nobody can set, and no program is known to want that.
func (c *call) allocChannel(class nvabi.RMClass, params message) seccomp.Answer {
	s := c.m.schedule
	card, grouped := c.m.ledger.computeGroup(c.arg.u32(0), c.arg.u32(allocParent))
	if s == nil || params == nil {
		return c.allocObject(class, params)
	}
	if !grouped {
		if isCompute(params.u32(nvabi.ChannelEngineType)) && !c.m.ledger.isGroup(c.arg.u32(0), c.arg.u32(allocParent)) {
			return c.refuse(statusInvalidArgument)
		}
		return c.allocObject(class, params)
	}
	s.mu.Lock()
	if _, channels := c.m.ledger.runnables(card); len(channels) >= MaxChannels {
		s.mu.Unlock()
		return c.refuse(statusNoResources)
	}
	errno := c.execute()
	gated := s.orders[card].Gated
	if c.ok(errno) {
		o := c.created(class, card)
		o.compute = true
		c.m.ledger.add(o)
		if gated {
			c.m.shutOff(o)
		}
	}
	s.mu.Unlock()
	if c.ok(errno) && gated {
		s.changed()
	}
	return c.finish(errno)
}

// shutOff disables a channel that was just made.
func (m *Mediator) shutOff(o newObject) {
	if err := m.disable(o.card, true, []nvclient.Channel{{Client: o.client, Handle: o.handle}}); err != nil {
		m.log.Warn("a new channel runs until the next order", "error", err)
		return
	}
	m.ledger.mu.Lock()
	defer m.ledger.mu.Unlock()
	if c, ok := m.ledger.clients[o.client]; ok && c.objects[o.handle] != nil {
		c.objects[o.handle].disabled = true
	}
}

// Apply sets what an order says. Groups whose control file cannot be reached, since the
// process that made it ended and somebody else keeps it, are shut off.
func (m *Mediator) Apply(o Order) (Applied, error) {
	if m.schedule == nil || o.Card < 0 || o.Card >= len(m.cards) {
		return Applied{File: none}, errors.New("an order for a card that the tenant does not have")
	}
	s := m.schedule
	s.mu.Lock()
	defer s.mu.Unlock()
	s.orders[o.Card] = o
	s.ordered[o.Card] = true
	if !slices.Contains(s.ordered, false) {
		select {
		case <-s.ready:
		default:
			close(s.ready)
		}
	}
	groups, channels := m.ledger.runnables(o.Card)
	a := Applied{File: none, Restart: o.Afresh}
	unreachable := make(map[uint32]bool)
	us := o.slice(len(groups))
	for i, g := range groups {
		first := i == 0 || groups[i-1].client != g.client
		if first && !m.setSlices(groups[i:], us, o.Afresh, &a) {
			unreachable[g.client] = true
		}
	}
	if err := m.setGates(o, channels, unreachable, &a); err != nil {
		m.closeFile(&a)
		return Applied{File: none}, err
	}
	if a.File != none {
		a.Channel = channelOf(channels, a.Channel.Client)
	}
	if a.Channel.Handle == 0 {
		m.closeFile(&a)
	}
	return a, nil
}

func (m *Mediator) closeFile(a *Applied) {
	m.close(a.File)
	a.File = none
}

// setSlices sets the slices of the groups of the first one's client, where they differ.
// The first file that is reached becomes the answer's. It is false if none is.
func (m *Mediator) setSlices(groups []runnable, us uint64, afresh bool, a *Applied) bool {
	g := groups[0]
	fd := m.reach(g)
	if fd == none {
		return false
	}
	for _, other := range groups {
		if other.client != g.client || other.object.slice == us && !afresh {
			continue
		}
		if err := nvclient.SetTimeslice(m.driver, fd, g.client, other.object.handle, us); err != nil {
			continue // it was freed meanwhile
		}
		other.object.slice = us
		a.Restart = true
	}
	if a.File == none {
		a.File, a.Channel.Client, a.Process = fd, g.client, g.owner
		return true
	}
	m.close(fd)
	return true
}

// setGates disables the channels of clients that cannot be reached, and enables those that
// were kept off the card, unless the pacer gates them.
func (m *Mediator) setGates(o Order, channels []runnable, unreachable map[uint32]bool, a *Applied) error {
	var enable, disable []nvclient.Channel
	for _, ch := range channels {
		off := unreachable[ch.client]
		if !off {
			a.Channels = append(a.Channels, ch.channel())
		}
		switch {
		case off && (!ch.object.disabled || o.Afresh):
			disable = append(disable, ch.channel())
		case !off && !o.Gated && (ch.object.disabled || o.Afresh):
			enable = append(enable, ch.channel())
		}
	}
	if err := errors.Join(m.disable(o.Card, false, enable), m.disable(o.Card, true, disable)); err != nil {
		return err
	}
	for _, ch := range channels {
		ch.object.disabled = unreachable[ch.client]
	}
	a.Restart = a.Restart || len(enable)+len(disable) > 0
	return nil
}

// disable disables or enables channels by the mediator's own client. A channel that was
// freed meanwhile fails the whole list: then each is named alone.
func (m *Mediator) disable(card int, yes bool, channels []nvclient.Channel) error {
	if len(channels) == 0 {
		return nil
	}
	m.clientMu.Lock()
	defer m.clientMu.Unlock()
	at := slices.IndexFunc(m.client.Cards(), func(c nvclient.Card) bool { return c.Minor == m.cards[card].Minor })
	err := m.client.Disable(at, yes, channels)
	if err == nil || len(channels) == 1 {
		return err
	}
	for i := range channels {
		if err := m.client.Disable(at, yes, channels[i:i+1]); err != nil {
			m.log.Debug("a channel that is gone cannot be disabled", "error", err)
		}
	}
	return nil
}

// runnable is a channel group, or a channel, of the compute engine.
type runnable struct {
	object *object
	client uint32
	owner  int   // process
	file   int32 // the number of the client's control file there
}

func (r runnable) channel() nvclient.Channel {
	return nvclient.Channel{Client: r.client, Handle: r.object.handle}
}

// channelOf is a channel of a client.
func channelOf(channels []runnable, client uint32) nvclient.Channel {
	for _, ch := range channels {
		if ch.client == client {
			return ch.channel()
		}
	}
	return nvclient.Channel{}
}

// runnables are the groups and channels of the compute engine of a card, by client.
func (l *ledger) runnables(card int) (groups, channels []runnable) {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := func(set map[*object]*client) (out []runnable) {
		for o, c := range set {
			if o.card == card {
				out = append(out, runnable{o, c.handle, c.owner, c.file})
			}
		}
		slices.SortFunc(out, func(a, b runnable) int {
			return cmp.Or(cmp.Compare(a.client, b.client), cmp.Compare(a.object.handle, b.object.handle))
		})
		return out
	}
	return list(l.groups), list(l.channels)
}

// computeGroup is the card of a channel group of the compute engine.
func (l *ledger) computeGroup(client, handle uint32) (card int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c, known := l.clients[client]; known {
		if o, known := c.objects[handle]; known {
			_, ok = l.groups[o]
			return o.card, ok
		}
	}
	return 0, false
}

// isGroup reports whether an object was made as a channel group.
func (l *ledger) isGroup(client, handle uint32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	c, ok := l.clients[client]
	if !ok {
		return false
	}
	o, ok := c.objects[handle]
	return ok && o.kind == nvabi.KindGroup && !o.duplicate
}

// enlist and delist keep the record of what is on compute engines.
func (l *ledger) enlist(c *client, o *object) {
	switch o.kind {
	case nvabi.KindGroup:
		l.groups[o] = c
	case nvabi.KindChannel:
		l.channels[o] = c
	}
}

func (l *ledger) delist(o *object) {
	delete(l.channels, o)
	if _, ok := l.groups[o]; ok {
		delete(l.groups, o)
		if l.regrouped != nil {
			l.regrouped()
		}
	}
}

// setFile records where a client's control file is.
func (l *ledger) setFile(handle uint32, fd int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c, ok := l.clients[handle]; ok {
		c.file = fd
	}
}
