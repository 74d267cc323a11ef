package simgpu

import (
	"gvisor.dev/gvisor/pkg/abi/nvgpu"

	"github.com/qgpu-project/qgpu/internal/nvabi"
	"github.com/qgpu-project/qgpu/internal/simgpu/gpumem"
)

// Functions of NV_ESC_RM_VID_HEAP_CONTROL (NVOS32_FUNCTION_*).
const (
	heapAllocSize = nvgpu.NVOS32_FUNCTION_ALLOC_SIZE
	heapFree      = 3
	heapInfo      = 5
)

// Classes that VID_HEAP_CONTROL allocates.
const (
	classVideoMemory   = 0x0040 // NV01_MEMORY_LOCAL_USER
	classSystemMemory  = 0x003e // NV01_MEMORY_SYSTEM
	classVirtualMemory = 0x50a0 // NV50_MEMORY_VIRTUAL
	classPinnedMemory  = 0x0071 // NV01_MEMORY_SYSTEM_OS_DESCRIPTOR
)

// heapData is where the function's own part of NVOS32_PARAMETERS begins.
const heapData = 40

// rmVidHeapControl is the older way to allocate memory, which driver 535's CUDA
// uses; it maps onto the memory classes.
func (c *frontendCall) rmVidHeapControl() error {
	p, _ := view[nvgpu.NVOS32_PARAMETERS](c.arg)
	c.d.lock()
	defer c.d.mu.Unlock()
	client, s := c.d.clientOn(c.file, p.HRoot.Val)
	if s == ok {
		s = c.heapFunction(client, p)
	}
	p.Status = uint32(s)
	return nil
}

func (c *frontendCall) heapFunction(client *client, p *nvgpu.NVOS32_PARAMETERS) status {
	parent := client.objects[p.HObjectParent.Val]
	if parent == nil {
		return errInvalidObjectParent
	}
	if parent.card.isLost() && p.Function != heapFree {
		return errGPUIsLost
	}
	switch p.Function {
	case heapAllocSize:
		a, _ := viewAt[nvgpu.NVOS32AllocSize](c.arg, heapData)
		s := c.heapAllocate(client, parent, p.HVASpace.Val, a)
		reportHeap(p, parent.card)
		return s
	case heapFree:
		free, _ := viewAt[struct{ Owner, Memory uint32 }](c.arg, heapData)
		o := client.objects[free.Memory]
		if o == nil || !isMemory(o.kind) {
			return errInvalidObjectHandle
		}
		c.d.freeObject(o)
		return ok
	case heapInfo:
		reportHeap(p, parent.card)
		return ok
	}
	c.d.reportUnknown("VID_HEAP_CONTROL function", p.Function)
	return errNotSupported
}

func reportHeap(p *nvgpu.NVOS32_PARAMETERS, card *card) {
	if card != nil {
		p.Total, p.Free = card.fb.heap(), card.fb.free()
	}
}

func isMemory(k nvabi.Kind) bool {
	switch k {
	case nvabi.KindVideoMemory, nvabi.KindSystemMemory, nvabi.KindVirtualMemory, nvabi.KindPinnedMemory:
		return true
	}
	return false
}

// heapAllocate is ALLOC_SIZE.
func (c *frontendCall) heapAllocate(client *client, parent *object, space uint32, a *nvgpu.NVOS32AllocSize) status {
	video := a.Attr>>attrLocationShift&attrLocationMask == locationVideo
	id := uint32(classSystemMemory)
	switch {
	case a.Flags&allocFlagVirtual != 0:
		id = classVirtualMemory
	case video:
		id = classVideoMemory
	}
	o, s := client.newObject(parent, a.HMemory.Val, c.d.class(id))
	if s != ok {
		return s
	}
	if id == classVirtualMemory {
		s = c.heapReserve(o, space, a)
	} else {
		s = c.heapTake(o, video, a)
	}
	if s != ok {
		c.d.freeObject(o)
		return s
	}
	a.HMemory.Val = o.handle
	return ok
}

func (c *frontendCall) heapTake(o *object, video bool, a *nvgpu.NVOS32AllocSize) status {
	size, fits := roundedSize(a.Size, a.Attr)
	if !fits {
		return errInvalidArgument
	}
	m, s := c.d.newMemory(o, size, video)
	if s == ok {
		a.Size, a.Offset, a.Limit = m.size, m.offset, m.size-1
	}
	return s
}

func (c *frontendCall) heapReserve(o *object, space uint32, a *nvgpu.NVOS32AllocSize) status {
	want := virtualWant{space: space, size: a.Size, align: a.Alignment}
	if a.Flags&allocFlagFixed != 0 {
		want.fixed, want.at = true, a.Offset
	}
	r, s := c.d.reserveAddresses(o, want)
	if s == ok {
		a.Size, a.Offset, a.Limit = r.size, r.base, r.size-1
	}
	return s
}

// class is the class with the id, which every driver version has.
func (d *Driver) class(id uint32) nvabi.RMClass {
	if c, known := d.abi.Classes[id]; known {
		return c
	}
	kinds := map[uint32]nvabi.Kind{
		classVideoMemory:   nvabi.KindVideoMemory,
		classSystemMemory:  nvabi.KindSystemMemory,
		classVirtualMemory: nvabi.KindVirtualMemory,
		classPinnedMemory:  nvabi.KindPinnedMemory,
	}
	return nvabi.RMClass{ID: id, Kind: kinds[id]}
}

// rmAllocMemory is NV_ESC_RM_ALLOC_MEMORY, with which a process pins its own pages.
func (c *frontendCall) rmAllocMemory() error { return c.pin(c.arg, c.pid) }

// pinFor is IoctlPinFor: rmAllocMemory on behalf of another process.
func (c *frontendCall) pinFor() error {
	p, _ := view[PinFor](c.arg)
	inner := newBytes(56)
	if err := c.caller.ReadMemory(inner, p.Arg); err != nil {
		return err
	}
	if err := c.pin(inner, int(p.PID)); err != nil {
		return err
	}
	return c.caller.WriteMemory(inner, p.Arg)
}

func (c *frontendCall) pin(arg []byte, pid int) error {
	w, _ := view[nvgpu.IoctlNVOS02ParametersWithFD](arg)
	p := &w.Params
	if p.HClass != classPinnedMemory {
		p.Status = uint32(errInvalidClass)
		return nil
	}
	if p.Limit >= maxAllocation || uint64(p.PMemory)%gpumem.PageSize != 0 {
		p.Status = uint32(errInvalidArgument)
		return nil
	}
	size := (p.Limit + gpumem.PageSize) &^ (gpumem.PageSize - 1)
	pages, err := gpumem.NewUserPages(pid, uint64(p.PMemory), size)
	if err != nil {
		p.Status = uint32(errInvalidAddress)
		return nil
	}
	c.d.lock()
	defer c.d.mu.Unlock()
	s := c.pinned(p, &memory{bytes: pages, close: pages.Close, size: size, refs: 1})
	if s != ok {
		pages.Close()
	}
	p.Status = uint32(s)
	return nil
}

func (c *frontendCall) pinned(p *nvgpu.NVOS02_PARAMETERS, m *memory) status {
	client, s := c.d.clientOn(c.file, p.HRoot.Val)
	if s != ok {
		return s
	}
	parent := client.objects[p.HObjectParent.Val]
	if parent == nil {
		return errInvalidObjectParent
	}
	o, s := client.newObject(parent, p.HObjectNew.Val, c.d.class(classPinnedMemory))
	if s != ok {
		return s
	}
	o.hold(m)
	p.HObjectNew.Val = o.handle
	return ok
}
