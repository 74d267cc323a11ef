package simgpu

import (
	"fmt"
	"slices"

	"gvisor.dev/gvisor/pkg/abi/nvgpu"

	"github.com/qgpu-project/qgpu/internal/nvabi"
	"github.com/qgpu-project/qgpu/internal/simgpu/engine"
	"github.com/qgpu-project/qgpu/internal/simgpu/gpumem"
)

// addressSpace is a GPU address space as RM has it. UVM brings its own bytes' map
// to it (REGISTER_GPU_VASPACE): from then on what UVM maps is what channels see.
type addressSpace struct {
	object *object // nil for a device's default space
	space  *gpumem.Space
	uvm    *uvmSpace // that registered it, or nil
	next   uint64    // where the next reservation of addresses begins
}

func newAddressSpace() *addressSpace {
	return &addressSpace{space: gpumem.NewSpace(), next: 2 * mib}
}

// stop ends the channels that run in the address space for good.
func (as *addressSpace) stop() {
	if as.object == nil {
		return
	}
	for o := range as.object.dependants {
		if ch, is := o.body.(*channel); is {
			ch.engine.Close()
		}
	}
}

// addressSpace is FERMI_VASPACE_A.
func (a *allocation) addressSpace() status {
	if a.object.parent.kind != nvabi.KindDevice {
		return errInvalidObjectParent
	}
	release, s := a.charge(a.object.card, a.object.card.model.VASpaceCost)
	if s != ok {
		return s
	}
	if p, given := view[nvgpu.NV_VASPACE_ALLOCATION_PARAMETERS](a.params); given {
		if p.BigPageSize == 0 {
			p.BigPageSize = 64 * kib
		}
		if p.VASize == 0 {
			p.VASize = vaLimit + 1
		}
	}
	as := newAddressSpace()
	as.object = a.object
	a.object.body = as
	a.object.release = func() {
		as.detachUVM()
		release()
	}
	return ok
}

// charge takes memory that an object costs the driver itself.
func (a *allocation) charge(c *card, n uint64) (release func(), s status) {
	if !c.fb.take(n) {
		return nil, errNoMemory
	}
	return func() { c.fb.give(n) }, ok
}

// spaceOf is the address space with the handle, or with handle 0 the one that
// o's device has by default.
func (d *Driver) spaceOf(o *object, handle uint32) (*addressSpace, status) {
	if handle != 0 {
		_, as, is := find[*addressSpace](o.client, handle)
		if !is {
			return nil, errInvalidObjectHandle
		}
		return as, ok
	}
	device := o
	for device != nil && device.kind != nvabi.KindDevice {
		device = device.parent
	}
	if device == nil {
		return nil, errInvalidObjectParent
	}
	if device.body == nil {
		device.body = newAddressSpace()
	}
	return device.body.(*addressSpace), ok
}

// group is a channel group (TSG).
type group struct {
	engine   *engine.Group
	space    uint32 // handle of the address space, or 0
	copy     bool   // on a copy engine
	channels map[*channel]bool
}

// Engine types (NV2080_ENGINE_TYPE_*).
const (
	engineGraphics  = 1
	engineCopyFirst = 9
	engineCopyLast  = 18
	engineSoftware  = 0x22
)

func isCopyEngine(t uint32) bool { return t >= engineCopyFirst && t <= engineCopyLast }

// group is KEPLER_CHANNEL_GROUP_A.
func (a *allocation) group() status {
	p, given := view[nvgpu.NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS](a.params)
	switch {
	case !given:
		return errInvalidArgument
	case a.object.parent.kind != nvabi.KindDevice:
		return errInvalidObjectParent
	}
	g, s := a.newGroup(p.HVASpace.Val, p.EngineType)
	if s != ok {
		return s
	}
	if p.HVASpace.Val != 0 {
		a.object.dependOn(a.object.client.objects[p.HVASpace.Val])
	}
	a.object.body = g
	return ok
}

// newGroup makes a group and has the object release it.
func (a *allocation) newGroup(space, engineType uint32) (*group, status) {
	if _, s := a.d.spaceOf(a.object, space); s != ok {
		return nil, s
	}
	card := a.object.card
	g := &group{space: space, copy: isCopyEngine(engineType), channels: map[*channel]bool{}}
	release := func() {}
	if !g.copy {
		var s status
		if release, s = a.charge(card, card.model.GroupCost); s != ok {
			return nil, s
		}
	}
	g.engine = card.engine.NewGroup(a.object.client.pid)
	a.object.release = func() {
		g.engine.Close()
		release()
	}
	return g, ok
}

// contextShare is FERMI_CONTEXT_SHARE_A, a subcontext: an address space for some
// of a group's channels.
type contextShare struct{ space uint32 }

func (a *allocation) contextShare() status {
	p, given := view[nvgpu.NV_CTXSHARE_ALLOCATION_PARAMETERS](a.params)
	if !given {
		return errInvalidArgument
	}
	g, is := a.object.parent.body.(*group)
	if !is {
		return errInvalidObjectParent
	}
	if _, s := a.d.spaceOf(a.object, p.HVASpace.Val); s != ok {
		return s
	}
	a.object.dependOn(a.object.client.objects[p.HVASpace.Val])
	a.object.body = &contextShare{space: p.HVASpace.Val}
	p.SubctxID = uint32(len(g.channels))
	return ok
}

// channel is a GPFIFO channel.
type channel struct {
	engine     *engine.Channel
	group      *group
	id         uint32 // hardware channel id, as reported
	engineType uint32
	userd      *gpumem.Shared // the driver's own, when the client brings none
}

func (c *channel) mappable() *gpumem.Shared { return c.userd }

// userdSize is the part of USERD that a client submits through.
const userdSize = 512

// channel makes a GPFIFO channel in the group that is its parent, or in one of
// its own.
func (a *allocation) channel() status {
	p, given := view[nvgpu.NV_CHANNEL_ALLOC_PARAMS](a.params)
	if !given || p.GPFIFOEntries == 0 || p.GPFIFOEntries > 1<<20 || p.GPFIFOEntries&(p.GPFIFOEntries-1) != 0 {
		return errInvalidArgument
	}
	if !a.cardHasClass() {
		return errInvalidClass
	}
	g, own, s := a.channelGroup(p)
	if s != ok {
		return s
	}
	space, s := a.channelSpace(p, g)
	if s == ok {
		s = a.newChannel(p, g, space)
	}
	if s != ok {
		own()
	}
	return s
}

// channelGroup is the group of a channel; own closes it if it is the channel's.
func (a *allocation) channelGroup(p *nvgpu.NV_CHANNEL_ALLOC_PARAMS) (g *group, own func(), s status) {
	if g, is := a.object.parent.body.(*group); is {
		return g, func() {}, ok
	}
	if a.object.parent.kind != nvabi.KindDevice {
		return nil, nil, errInvalidObjectParent
	}
	if g, s = a.newGroup(p.HVASpace.Val, p.EngineType); s != ok {
		return nil, nil, s
	}
	own = a.object.release
	a.object.release = nil
	return g, own, ok
}

// channelSpace is the address space that a channel runs in: its subcontext's, its
// own, or its group's.
func (a *allocation) channelSpace(p *nvgpu.NV_CHANNEL_ALLOC_PARAMS, g *group) (*addressSpace, status) {
	handle := g.space
	if h := p.HContextShare.Val; h != 0 {
		o, cs, is := find[*contextShare](a.object.client, h)
		if !is {
			return nil, errInvalidObjectHandle
		}
		a.object.dependOn(o)
		handle = cs.space
	} else if p.HVASpace.Val != 0 {
		handle = p.HVASpace.Val
	}
	if handle != 0 {
		a.object.dependOn(a.object.client.objects[handle])
	}
	return a.d.spaceOf(a.object, handle)
}

func (a *allocation) newChannel(p *nvgpu.NV_CHANNEL_ALLOC_PARAMS, g *group, as *addressSpace) status {
	card := a.object.card
	uncharge, s := a.charge(card, card.model.ChannelCost)
	if s != ok {
		return s
	}
	ch := &channel{group: g, engineType: p.EngineType}
	userd, release, s := a.userd(p, ch)
	if s != ok {
		uncharge()
		return s
	}
	events := a.d.events.of(a.object.client, card)
	ec, err := card.engine.NewChannel(engine.ChannelConfig{
		Group: g.engine, Space: as.space,
		GPFIFO: p.GPFIFOOffset, Entries: p.GPFIFOEntries,
		USERD: userd, Release: release,
		Interrupt: events.signal,
		Fault: func(err error) {
			a.d.log.Warn("a channel stopped", "card", card.minor, "process", a.object.client.pid, "error", err)
			events.signal()
		},
	})
	if err != nil {
		release()
		uncharge()
		a.d.log.Warn("a channel could not be made", "error", err)
		return errInsufficientResources
	}
	ch.engine, ch.id = ec, ec.Token()
	g.channels[ch] = true
	p.CID = ch.id
	ownGroup := a.object.parent.body != any(g)
	a.object.body = ch
	a.object.release = func() {
		delete(g.channels, ch)
		ec.Close()
		if ownGroup {
			g.engine.Close()
			if !g.copy {
				card.fb.give(card.model.GroupCost)
			}
		}
		uncharge()
	}
	return ok
}

// userd is the memory through which the channel's client submits work: its own,
// kept until release, or else the driver's, which the client maps as the channel.
func (a *allocation) userd(p *nvgpu.NV_CHANNEL_ALLOC_PARAMS, ch *channel) (window []byte, release func(), s status) {
	shared, offset := (*gpumem.Shared)(nil), uint64(0)
	if h := p.HUserdMemory[0].Val; h != 0 {
		_, m, is := find[*memory](a.object.client, h)
		if !is || m.shared == nil {
			return nil, nil, errInvalidObjectHandle
		}
		shared, offset = m.shared, p.UserdOffset[0]
	} else {
		own, err := gpumem.NewShared("nvidia-userd", gpumem.PageSize)
		if err != nil {
			return nil, nil, errNoMemory
		}
		defer own.Close() // lives on by the hold below
		shared, ch.userd = own, own
	}
	release, err := shared.Hold()
	if err != nil {
		return nil, nil, errInvalidObjectHandle
	}
	if offset%userdSize != 0 {
		release()
		return nil, nil, errInvalidOffset
	}
	if window = shared.Window(offset, userdSize); window == nil {
		release()
		return nil, nil, errInvalidOffset
	}
	return window, release, ok
}

// engineObject is a compute, copy or graphics object, which exists on a channel.
func (a *allocation) engineObject() status {
	ch, is := a.object.parent.body.(*channel)
	if !is {
		return errInvalidObjectParent
	}
	if !a.cardHasClass() {
		return errInvalidClass
	}
	a.object.body = &engineObject{channel: ch}
	return ok
}

// cardHasClass reports whether the object's card has its class, which for what
// runs on the card depends on the architecture.
func (a *allocation) cardHasClass() bool {
	return a.object.card != nil && slices.Contains(a.object.card.model.Classes, a.object.class)
}

// engineObject is an object on a channel.
type engineObject struct{ channel *channel }

// usermode is the page whose doorbell tells the card of submitted work. The
// engine watches USERD itself, so that a ring need not be seen.
type usermode struct{ page *gpumem.Shared }

func (u *usermode) mappable() *gpumem.Shared { return u.page }

func (a *allocation) usermode() status {
	if a.object.card == nil {
		return errInvalidObjectParent
	}
	if !a.cardHasClass() {
		return errInvalidClass
	}
	page, err := gpumem.NewShared("nvidia-usermode", 64*kib)
	if err != nil {
		return errNoMemory
	}
	a.object.body = &usermode{page: page}
	a.object.release = func() { _ = page.Close() }
	return ok
}

func hexNumber(n uint32) string { return fmt.Sprintf("%#x", n) }
