package simgpu

import (
	"encoding/binary"

	"gvisor.dev/gvisor/pkg/abi/nvgpu"

	"github.com/qgpu-project/qgpu/internal/simgpu/gpumem"
)

// registerGPU makes a card see the address space: what the process maps of the
// UVM file, at its own addresses, and what is mapped for it.
func (c *uvmCall) registerGPU(p *nvgpu.UVM_REGISTER_GPU_PARAMS) status {
	card := c.d.cardByUUID(p.GPUUUID)
	switch {
	case card == nil:
		return errGPUUUIDNotFound
	case !c.d.cardOpenIn(c.pid, card):
		return errInsufficientPermissions
	}
	p.NumaEnabled, p.NumaNodeID = 0, -1
	if c.space.cards[card] != nil {
		return ok
	}
	uc := &uvmCard{space: gpumem.NewSpace()}
	uc.space.SetManaged(c.file.space)
	c.space.cards[card] = uc
	return ok
}

func (c *uvmCall) unregisterGPU(p *nvgpu.UVM_UNREGISTER_GPU_PARAMS) status {
	uc, s := c.card(p.GPUUUID)
	if s != ok {
		return s
	}
	if uc.as != nil {
		uc.as.detachUVM()
	}
	uc.space.SetManaged(nil)
	uc.space.Clear()
	delete(c.space.cards, c.d.cardByUUID(p.GPUUUID))
	return ok
}

// rmClient is an RM client that a UVM command names. UVM does not look at the
// descriptor that comes with it; what protects a client is that only its own
// process may have its objects duplicated, which is how UVM takes hold of them.
func (c *uvmCall) rmClient(handle uint32) (*client, status) {
	client := c.d.clients[handle]
	switch {
	case client == nil:
		return nil, errInvalidObjectHandle
	case client.pid != c.pid && client.sharing != shareAll:
		return nil, errInsufficientPermissions
	}
	return client, ok
}

// registerVASpace makes an RM address space stand for the UVM address space on a
// card: channels that run in the one see the other.
func (c *uvmCall) registerVASpace(p *nvgpu.UVM_REGISTER_GPU_VASPACE_PARAMS) status {
	uc, s := c.card(p.GPUUUID)
	if s != ok {
		return s
	}
	client, s := c.rmClient(p.HClient.Val)
	if s != ok {
		return s
	}
	o, as, is := find[*addressSpace](client, p.HVASpace.Val)
	switch {
	case !is || o.card != c.d.cardByUUID(p.GPUUUID):
		return errInvalidObjectHandle
	case uc.as != nil || as.uvm != nil:
		return errInvalidDevice
	}
	uc.as, as.uvm, as.space = as, c.space, uc.space
	return ok
}

func (c *uvmCall) unregisterVASpace(p *nvgpu.UVM_UNREGISTER_GPU_VASPACE_PARAMS) status {
	uc, s := c.card(p.GPUUUID)
	switch {
	case s != ok:
		return s
	case uc.as == nil:
		return errInvalidDevice
	}
	uc.as.detachUVM()
	return ok
}

// registerChannel is told of a channel, and of addresses for its contexts, which
// the engine does not need.
func (c *uvmCall) registerChannel(p *nvgpu.UVM_REGISTER_CHANNEL_PARAMS) status {
	if _, s := c.card(p.GPUUUID); s != ok {
		return s
	}
	client, s := c.rmClient(p.HClient.Val)
	if s != ok {
		return s
	}
	if _, _, is := find[*channel](client, p.HChannel.Val); !is {
		return errInvalidObjectHandle
	}
	return ok
}

// validRange reports whether a range is made of pages within the address space.
func validRange(base, length uint64) bool {
	return base%gpumem.PageSize == 0 && length%gpumem.PageSize == 0 &&
		length > 0 && base < vaLimit && length <= vaLimit-base
}

func (c *uvmCall) createExternalRange(p *nvgpu.UVM_CREATE_EXTERNAL_RANGE_PARAMS) status {
	return c.addRange(p.Base, p.Length)
}

// dynamicParallelism sets addresses aside for what kernels launch themselves.
func (c *uvmCall) dynamicParallelism(p *nvgpu.UVM_MAP_DYNAMIC_PARALLELISM_REGION_PARAMS) status {
	if _, s := c.card(p.GPUUUID); s != ok {
		return s
	}
	return c.addRange(p.Base, p.Length)
}

func (c *uvmCall) addRange(base, length uint64) status {
	switch {
	case !validRange(base, length):
		return errInvalidAddress
	case c.space.ranges[base] != 0:
		return errUVMAddressInUse
	case len(c.space.ranges) >= maxRanges:
		return errNoMemory
	}
	c.space.ranges[base] = length
	return ok
}

// Layout of UVM_MAP_EXTERNAL_ALLOCATION and UVM_ALLOC_SEMAPHORE_POOL: base,
// length, for the first an offset, then a list of attributes per card, as long as
// the version says, and its count.
const (
	externalHead  = 24
	poolHead      = 16
	externalTail  = 24 // count, descriptor, client, memory, status
	poolTail      = 16 // count, status
	attributeSize = 36 // of which the first 16 bytes are the card's UUID
)

// eachCard calls f for every card in the list of attributes.
func (c *uvmCall) eachCard(head, tail int, f func(*uvmCard) status) status {
	room := (len(c.arg) - head - tail) / attributeSize
	count := binary.NativeEndian.Uint64(c.arg[head+room*attributeSize:])
	if count > uint64(room) {
		return errInvalidArgument
	}
	for i := range int(count) {
		uc, s := c.card([16]byte(c.arg[head+i*attributeSize:]))
		if s != ok {
			return s
		}
		if s := f(uc); s != ok {
			return s
		}
	}
	return ok
}

// mapExternal maps an RM memory object for cards, at an address that a client
// chose.
func (c *uvmCall) mapExternal() status {
	base := binary.NativeEndian.Uint64(c.arg)
	length := binary.NativeEndian.Uint64(c.arg[8:])
	offset := binary.NativeEndian.Uint64(c.arg[16:])
	tail := c.arg[len(c.arg)-externalTail:]
	client, s := c.rmClient(binary.NativeEndian.Uint32(tail[12:]))
	if s != ok {
		return s
	}
	_, m, is := find[*memory](client, binary.NativeEndian.Uint32(tail[16:]))
	switch {
	case !is:
		return errInvalidObjectHandle
	case !validRange(base, length) || !c.inRange(base, length):
		return errInvalidAddress
	case offset > m.size || length > m.size-offset:
		return errInvalidOffset
	}
	return c.eachCard(externalHead, externalTail, func(uc *uvmCard) status {
		if err := uc.space.Map(base, length, m.bytes, offset); err != nil {
			return errInvalidAddress
		}
		return ok
	})
}

// inRange reports whether the addresses lie in one external range.
func (c *uvmCall) inRange(base, length uint64) bool {
	if n := c.space.ranges[base]; n >= length {
		return true
	}
	for b, n := range c.space.ranges {
		if base >= b && base-b < n && length <= n-(base-b) {
			return true
		}
	}
	return false
}

func (c *uvmCall) unmapExternal(p *nvgpu.UVM_UNMAP_EXTERNAL_PARAMS) status {
	uc, s := c.card(p.GPUUUID)
	if s != ok {
		return s
	}
	if !validRange(p.Base, p.Length) {
		return errInvalidAddress
	}
	uc.space.Unmap(p.Base, p.Length)
	return ok
}

// free ends an external range or a semaphore pool with all that is mapped in it.
// Any other range is managed memory, which lives as long as the process maps it.
func (c *uvmCall) free(p *nvgpu.UVM_FREE_PARAMS) status {
	n := c.space.ranges[p.Base]
	if n == 0 {
		return errInvalidAddress
	}
	delete(c.space.ranges, p.Base)
	for _, uc := range c.space.cards {
		uc.space.Unmap(p.Base, n)
	}
	return ok
}

// semaphorePool makes memory of the UVM file, which the process has mapped at
// base, a pool of semaphores; the cards see it as they see managed memory.
func (c *uvmCall) semaphorePool() status {
	base := binary.NativeEndian.Uint64(c.arg)
	length := binary.NativeEndian.Uint64(c.arg[8:])
	if s := c.eachCard(poolHead, poolTail, func(*uvmCard) status { return ok }); s != ok {
		return s
	}
	return c.addRange(base, length)
}
