package simgpu

import (
	"gvisor.dev/gvisor/pkg/abi/nvgpu"

	"github.com/qgpu-project/qgpu/internal/simgpu/gpumem"
)

// memory is a memory object's bytes. Duplicates of an object share one memory,
// which lives as long as the last of them.
type memory struct {
	bytes  gpumem.Memory
	shared *gpumem.Shared // bytes, when clients can map them; else nil
	close  func() error
	size   uint64  // as allocated: rounded up to pages
	offset uint64  // physical, as reported
	card   *card   // whose framebuffer it takes; nil for memory of the host
	refs   int     // objects that are this memory
	owner  *client // that allocated it
}

// A mapper is the body of an object that MAP_MEMORY accepts.
type mapper interface{ mappable() *gpumem.Shared }

func (m *memory) mappable() *gpumem.Shared { return m.shared }

func (m *memory) drop() {
	if m.refs--; m.refs > 0 {
		return
	}
	if m.card != nil {
		m.card.fb.give(m.size)
	}
	_ = m.close()
}

// Attributes of NV_MEMORY_ALLOCATION_PARAMS and NVOS32 ALLOC_SIZE (nvos.h).
const (
	attrPageSizeShift = 23
	attrPageSize4K    = 1
	attrPageSizeBig   = 2
	attrPageSizeHuge  = 3

	attrLocationShift = nvgpu.NVOS32_ATTR_LOCATION_SHIFT
	attrLocationMask  = nvgpu.NVOS32_ATTR_LOCATION_MASK
	locationVideo     = nvgpu.NVOS32_ATTR_LOCATION_VIDMEM

	allocFlagVirtual = nvgpu.NVOS32_ALLOC_FLAGS_VIRTUAL
	allocFlagFixed   = 0x00000010 // FIXED_ADDRESS_ALLOCATE
)

// maxAllocation bounds one allocation of host memory or address space, in bytes.
const maxAllocation = 1 << 44

// roundedSize is the size that the driver gives to an allocation: whole pages of
// the kind that attr asks for, big ones by default.
func roundedSize(size uint64, attr uint32) (uint64, bool) {
	page := uint64(64 * kib)
	switch attr >> attrPageSizeShift & 3 {
	case attrPageSize4K:
		page = 4 * kib
	case attrPageSizeHuge:
		page = 2 * mib
	}
	if size == 0 || size > maxAllocation {
		return 0, false
	}
	return (size + page - 1) &^ (page - 1), true
}

// newMemory gives an object memory of size bytes, of its card or of the host.
func (d *Driver) newMemory(o *object, size uint64, video bool) (*memory, status) {
	m := &memory{size: size, refs: 1, owner: o.client}
	if video {
		if o.card == nil {
			return nil, errInvalidObjectParent
		}
		if !o.card.fb.take(size) {
			return nil, errNoMemory
		}
		m.card = o.card
		m.offset = o.card.place(size)
	}
	shared, err := gpumem.NewShared(memoryName(video), size)
	if err != nil {
		d.log.Error("memory for a client", "error", err)
		if video {
			o.card.fb.give(size)
		}
		return nil, errNoMemory
	}
	m.bytes, m.shared, m.close = shared, shared, shared.Close
	o.hold(m)
	return m, ok
}

func memoryName(video bool) string {
	if video {
		return "nvidia-video-memory"
	}
	return "nvidia-system-memory"
}

// hold makes the memory, of which the object now has one reference, its body.
func (o *object) hold(m *memory) {
	o.body = m
	o.release = m.drop
}

// place chooses a physical offset for size bytes. Offsets are only reported, so
// they may repeat once all have been given out.
func (c *card) place(size uint64) uint64 {
	const align = 2 * mib
	at := c.nextOffset
	c.nextOffset += (size + align - 1) &^ (align - 1)
	if c.nextOffset >= c.model.Memory {
		c.nextOffset = 0
	}
	return at
}

func (a *allocation) videoMemory() status {
	p, given := view[nvgpu.NV_MEMORY_ALLOCATION_PARAMS](a.params)
	if !given {
		return errInvalidArgument
	}
	if p.Attr>>attrLocationShift&attrLocationMask != locationVideo || p.Flags&allocFlagVirtual != 0 {
		return errInvalidArgument
	}
	return a.allocateMemory(p, true)
}

func (a *allocation) systemMemory() status {
	p, given := view[nvgpu.NV_MEMORY_ALLOCATION_PARAMS](a.params)
	if !given {
		return errInvalidArgument
	}
	return a.allocateMemory(p, false)
}

func (a *allocation) allocateMemory(p *nvgpu.NV_MEMORY_ALLOCATION_PARAMS, video bool) status {
	size, fits := roundedSize(p.Size, p.Attr)
	if !fits {
		return errInvalidArgument
	}
	m, s := a.d.newMemory(a.object, size, video)
	if s != ok {
		return s
	}
	p.Size, p.Offset, p.Limit = m.size, m.offset, m.size-1
	return ok
}

// virtualRange is an allocation of GPU addresses.
type virtualRange struct {
	space   *addressSpace
	base    uint64
	size    uint64
	lengths map[uint64]uint64 // of the mappings made in it, by address
}

func (r *virtualRange) unmapAll() {
	for va, n := range r.lengths {
		r.space.space.Unmap(va, n)
	}
}

func (a *allocation) virtualMemory() status {
	if p, is := view[nvgpu.NV_MEMORY_ALLOCATION_PARAMS](a.params); is {
		want := virtualWant{space: p.HVASpace.Val, size: p.Size, align: p.Alignment}
		if p.Flags&allocFlagFixed != 0 {
			want.fixed, want.at = true, p.Offset
		}
		r, s := a.d.reserveAddresses(a.object, want)
		if s == ok {
			p.Size, p.Offset, p.Limit = r.size, r.base, r.size-1
		}
		return s
	}
	p, given := view[nvgpu.NV_MEMORY_VIRTUAL_ALLOCATION_PARAMS](a.params)
	if !given {
		return errInvalidArgument
	}
	space, s := a.d.spaceOf(a.object, p.HVASpace.Val)
	if s != ok {
		return s
	}
	if p.Limit == 0 {
		p.Limit = vaLimit
	}
	if p.Limit < p.Offset {
		return errInvalidLimit
	}
	r := &virtualRange{space: space, base: p.Offset, size: p.Limit - p.Offset}
	a.object.body = r
	a.object.release = r.unmapAll
	return ok
}

// virtualWant is what is asked of an allocation of addresses.
type virtualWant struct {
	space       uint32 // handle of the address space; 0 is the device's own
	size, align uint64
	fixed       bool
	at          uint64
}

// vaLimit is the highest GPU address.
const vaLimit = 1<<49 - 1

func (d *Driver) reserveAddresses(o *object, want virtualWant) (*virtualRange, status) {
	size, fits := roundedSize(want.size, attrPageSize4K<<attrPageSizeShift)
	if !fits {
		return nil, errInvalidArgument
	}
	space, s := d.spaceOf(o, want.space)
	if s != ok {
		return nil, s
	}
	at := want.at
	if !want.fixed {
		align := max(want.align, 64*kib)
		if align&(align-1) != 0 || align > vaLimit/2 {
			return nil, errInvalidArgument
		}
		at = (space.next + align - 1) &^ (align - 1)
	}
	if at > vaLimit || size > vaLimit-at {
		return nil, errNoMemory
	}
	if !want.fixed {
		space.next = at + size
	}
	r := &virtualRange{space: space, base: at, size: size}
	o.body = r
	o.release = r.unmapAll
	return r, ok
}
