package mediator

import (
	"unsafe"

	"github.com/qgpu-project/qgpu/internal/nvabi"
	"github.com/qgpu-project/qgpu/internal/seccomp"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/nvgpu"
)

// charge reserves memory of a card for the call, after looking for memory that came
// back unnoticed if there is no room.
func (c *call) charge(card int, bytes uint64) bool {
	l := c.m.ledger
	if l.reserve(card, bytes) {
		return true
	}
	if quota, _ := l.balance(card); bytes > quota {
		return false // never
	}
	c.m.reconcile(c.n.Thread())
	return l.reserve(card, bytes)
}

// takeMemory executes a call that takes size bytes of a card's memory for a new object.
// described reads from the results the object and how many bytes the driver took,
// which it rounds up to pages of up to 512 MiB.
func (c *call) takeMemory(card int, size uint64, described func() (newObject, uint64)) seccomp.Answer {
	if size == 0 {
		return c.refuse(statusInvalidArgument)
	}
	if !c.charge(card, size) {
		return c.refuse(statusNoMemory)
	}
	open := true
	defer func() {
		if open { // refused, or a panic
			c.m.ledger.cancel(card, size)
		}
	}()
	errno := c.execute()
	if !c.ok(errno) {
		return c.finish(errno)
	}
	o, taken := described()
	open = false
	if !c.m.ledger.settle(card, size, max(size, taken), o) {
		c.giveBack(o)
		return c.refuse(statusNoMemory)
	}
	return c.finish(0)
}

// giveBack frees an object at the driver that turned out larger than the quota allows.
func (c *call) giveBack(o newObject) {
	arg := c.arena.take(16) // NVOS00_PARAMETERS
	if arg == nil {
		return
	}
	clear(arg)
	arg.setU32(0, o.client)
	arg.setU32(4, o.parent)
	arg.setU32(freeObject, o.handle)
	cmd := uint32(3<<30 | 16<<16 | 'F'<<8 | nvabi.EscRMFree)
	if err := c.m.driver.Ioctl(c.fd, cmd, unsafe.Pointer(&arg[0])); err != nil {
		c.m.log.Error("memory over the quota could not be freed", "client", o.client, "handle", o.handle, "error", err)
	}
}

// heapControl answers NV_ESC_RM_VID_HEAP_CONTROL, the older way to take memory.
func (c *call) heapControl() seccomp.Answer {
	client := c.arg.u32(0)
	switch c.arg.u32(heapFunction) {
	case heapAllocSize:
		return c.heapAlloc(client)
	case heapFreeSize:
		return c.freeing(client, c.arg.u32(heapHandle))
	case heapInfo:
		errno := c.execute()
		if card, ok := c.m.ledger.cardOf(client, c.arg.u32(heapParent)); ok && errno == 0 {
			c.showHeap(card)
		}
		return c.finish(errno)
	}
	return c.refuse(statusNotSupported)
}

func (c *call) heapAlloc(client uint32) seccomp.Answer {
	parent := c.arg.u32(heapParent)
	card, ok := c.m.ledger.cardOf(client, parent)
	if !ok {
		return c.refuse(statusNotFound)
	}
	if c.m.ledger.full() {
		return c.refuse(statusNoResources)
	}
	flags, attr := c.arg.u32(heapFlags), c.arg.u32(heapAttr)
	o := newObject{client: client, parent: parent, card: card}
	switch {
	case flags&flagVirtual != 0:
		o.class, o.kind = nvgpu.NV50_MEMORY_VIRTUAL, nvabi.KindVirtualMemory
	case attr>>locationAt&3 == locationHost:
		o.class, o.kind = nvgpu.NV01_MEMORY_SYSTEM, nvabi.KindSystemMemory
	default:
		o.class, o.kind = nvgpu.NV01_MEMORY_LOCAL_USER, nvabi.KindVideoMemory
		answer := c.takeMemory(card, c.arg.u64(heapSize), func() (newObject, uint64) {
			o.handle = c.arg.u32(heapHandle)
			c.showHeap(card)
			return o, c.arg.u64(heapSize)
		})
		return answer
	}
	errno := c.execute()
	if c.ok(errno) {
		o.handle = c.arg.u32(heapHandle)
		c.m.ledger.add(o)
		c.showHeap(card)
	}
	return c.finish(errno)
}

// showHeap replaces the size of the card's heap, where the driver told it, by the
// tenant's share.
func (c *call) showHeap(card int) {
	if c.arg.u64(heapTotal) == 0 && c.arg.u64(heapFree) == 0 {
		return
	}
	quota, used := c.m.ledger.balance(card)
	c.arg.setU64(heapTotal, quota)
	c.arg.setU64(heapFree, quota-min(used, quota))
}

// free answers NV_ESC_RM_FREE.
func (c *call) free() seccomp.Answer {
	return c.freeing(c.arg.u32(0), c.arg.u32(freeObject))
}

// freeing executes a call that frees an object and, with it, all beneath it.
func (c *call) freeing(client, handle uint32) seccomp.Answer {
	l := c.m.ledger
	l.begin()
	defer l.end()
	errno := c.execute()
	if c.ok(errno) {
		l.free(client, handle)
	}
	return c.finish(errno)
}

// duplicate answers NV_ESC_RM_DUP_OBJECT. The duplicate keeps the memory alive, and is
// not charged again.
func (c *call) duplicate() seccomp.Answer {
	if c.m.ledger.full() {
		return c.refuse(statusNoResources)
	}
	l := c.m.ledger
	l.begin()
	defer l.end()
	errno := c.execute()
	if c.ok(errno) {
		l.duplicate(c.arg.u32(0), c.arg.u32(dupParent), c.arg.u32(dupObject), c.arg.u32(dupClientSrc), c.arg.u32(dupObjectSrc))
	}
	return c.finish(errno)
}

// ioctlPinFor is the simulated driver's ioctl for pinned memory: u32 process, u32 0,
// u64 address of the argument in the caller's memory, u64 0.
const (
	ioctlPinFor = 3<<30 | pinForSize<<16 | 'F'<<8 | 0xFA
	pinForSize  = 24
)

// allocMemory answers NV_ESC_RM_ALLOC_MEMORY. Its other classes give an unprivileged
// caller no memory but tell the card's size.
func (c *call) allocMemory() seccomp.Answer {
	class := c.arg.u32(allocMemoryClass)
	if c.m.ledger.full() {
		return c.refuse(statusNoResources)
	}
	switch class {
	case nvgpu.NV01_MEMORY_SYSTEM:
		return c.allocSystemMemory()
	case nvgpu.NV01_MEMORY_SYSTEM_OS_DESCRIPTOR:
		if !c.m.simulated {
			return letThrough()
		}
		return c.pinFor()
	}
	return c.refuse(statusInvalidClass)
}

func (c *call) allocSystemMemory() seccomp.Answer {
	target := int32(c.arg.u32(allocMemoryFD))
	dup, before, d, errno := c.translate(c.arg, allocMemoryFD, false)
	if errno != 0 {
		return c.reject(errno)
	}
	errno = c.execute()
	if c.ok(errno) {
		c.recordMemory(nvabi.KindSystemMemory)
		if dup != none && c.m.simulated {
			if errno := c.replaced(dup, target, before, d); errno != 0 {
				return fail(errno)
			}
		}
	}
	return c.finish(errno)
}

// pinFor tells the simulated driver to pin pages of the tenant.
func (c *call) pinFor() seccomp.Answer {
	pid, err := c.n.Process()
	if err != nil {
		return fail(unix.ESRCH)
	}
	if _, _, _, errno := c.translate(c.arg, allocMemoryFD, false); errno != 0 {
		return c.reject(errno)
	}
	pin := c.arena.take(pinForSize)
	if pin == nil {
		return fail(unix.ENOMEM)
	}
	clear(pin)
	pin.setU32(0, uint32(pid))
	pin.setU64(8, c.arg.address())
	c.executed = true
	c.m.executed.Add(1)
	if err := c.m.driver.Ioctl(c.fd, ioctlPinFor, unsafe.Pointer(&pin[0])); err != nil {
		return c.finish(errnoOf(err))
	}
	if c.ok(0) {
		c.recordMemory(nvabi.KindPinnedMemory)
	}
	return c.finish(0)
}

func (c *call) recordMemory(kind nvabi.Kind) {
	client, parent := c.arg.u32(0), c.arg.u32(allocMemoryParent)
	card, ok := c.m.ledger.cardOf(client, parent)
	if !ok {
		card = noCard
	}
	c.m.ledger.add(newObject{
		client: client, parent: parent, handle: c.arg.u32(allocMemoryHandle),
		class: c.arg.u32(allocMemoryClass), kind: kind, card: card,
	})
}
