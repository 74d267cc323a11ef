package simgpu

import (
	"os"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/nvgpu"

	"github.com/qgpu-project/qgpu/internal/simgpu/gpumem"
)

// rmMapMemory is NV_ESC_RM_MAP_MEMORY: it makes the file that the argument names
// stand for the memory object, so that a mmap of it at offset 0 maps the object. A
// file stands for memory once only.
func (c *frontendCall) rmMapMemory() error {
	w, _ := view[nvgpu.IoctlNVOS33ParametersWithFD](c.arg)
	p := &w.Params
	id, found := c.fileOf(w.FD)
	if !found {
		p.Status = uint32(errInvalidArgument)
		return nil
	}
	end, target, s := c.mapObject(p, id)
	p.Status = uint32(s)
	if s != ok {
		return nil
	}
	defer end.Close()
	if err := c.caller.ReplaceFile(w.FD, end); err != nil {
		c.d.lock()
		target.mappings--
		c.d.mu.Unlock()
		return err
	}
	return nil
}

// mapObject checks a mapping and makes the file that will stand for the object.
func (c *frontendCall) mapObject(p *nvgpu.NVOS33_PARAMETERS, id FileID) (*os.File, *object, status) {
	c.d.lock()
	defer c.d.mu.Unlock()
	client, s := c.d.clientOn(c.file, p.HClient.Val)
	if s != ok {
		return nil, nil, s
	}
	if client.pid != c.pid {
		return nil, nil, errInvalidClient
	}
	f := c.d.files[id]
	if f == nil || f.mapped || f.event != nil || f.uvm != nil || f.node.Kind > NodeCard {
		return nil, nil, errInvalidArgument
	}
	o, body, is := find[mapper](client, p.HMemory.Val)
	if !is || body.mappable() == nil {
		return nil, nil, errInvalidObjectHandle
	}
	shared := body.mappable()
	if p.Length == 0 || p.Offset > shared.Size() || p.Length > shared.Size()-p.Offset {
		return nil, nil, errInvalidLimit
	}
	if p.Offset != 0 {
		// The file is the whole object, and clients map it from its beginning.
		return nil, nil, errNotSupported
	}
	end, err := dupFile(shared)
	if err != nil {
		return nil, nil, errInsufficientResources
	}
	f.mapped = true
	o.mappings++
	if m, is := body.(*memory); is {
		p.PLinearAddress = nvgpu.P64(m.offset)
	}
	return end, o, ok
}

// dupFile duplicates a memory object's descriptor, so that the object may go while
// the file is handed over.
func dupFile(s *gpumem.Shared) (*os.File, error) {
	fd, err := unix.FcntlInt(s.File().Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "nvidia"), nil
}

func (c *frontendCall) rmUnmapMemory() error {
	p, _ := view[nvgpu.NVOS34_PARAMETERS](c.arg)
	c.d.lock()
	defer c.d.mu.Unlock()
	client, s := c.d.clientOn(c.file, p.HClient.Val)
	if s != ok {
		p.Status = uint32(s)
		return nil
	}
	o := client.objects[p.HMemory.Val]
	switch {
	case o == nil:
		s = errInvalidObjectHandle
	case o.mappings == 0 || client.pid != c.pid:
		s = errObjectNotFound
	default:
		o.mappings--
	}
	p.Status = uint32(s)
	return nil
}

// rmIdleChannels waits for channels to be idle in the real driver. Clients use it
// on the way to freeing channels, which here stop at once.
func (c *frontendCall) rmIdleChannels() error {
	p, _ := view[nvgpu.NVOS30_PARAMETERS](c.arg)
	c.d.lock()
	defer c.d.mu.Unlock()
	_, s := c.d.clientOn(c.file, p.Client.Val)
	p.Status = uint32(s)
	return nil
}

// rmUpdateMapping is told that a mapping moved within the process, which matters
// to nothing here.
func (c *frontendCall) rmUpdateMapping() error {
	p, _ := view[nvgpu.NVOS56_PARAMETERS](c.arg)
	c.d.lock()
	defer c.d.mu.Unlock()
	_, s := c.d.clientOn(c.file, p.HClient.Val)
	p.Status = uint32(s)
	return nil
}

const dmaFlagFixedOffset = 1 << 15 // NVOS46_FLAGS_DMA_OFFSET_FIXED

// rmMapMemoryDMA maps a memory object into an allocation of GPU addresses.
func (c *frontendCall) rmMapMemoryDMA() error {
	p, _ := view[nvgpu.NVOS46_PARAMETERS](c.arg)
	c.d.lock()
	defer c.d.mu.Unlock()
	client, s := c.d.clientOn(c.file, p.Client.Val)
	if s == ok {
		s = mapDMA(client, p)
	}
	p.Status = uint32(s)
	return nil
}

func mapDMA(client *client, p *nvgpu.NVOS46_PARAMETERS) status {
	_, m, is := find[*memory](client, p.Memory.Val)
	if !is {
		return errInvalidObjectHandle
	}
	_, r, is := find[*virtualRange](client, p.Dma.Val)
	if !is {
		return errInvalidObjectHandle
	}
	if p.Length == 0 || p.Offset > m.size || p.Length > m.size-p.Offset || p.Length > r.size {
		return errInvalidLimit
	}
	if p.Flags&dmaFlagFixedOffset == 0 {
		p.DmaOffset = r.base
	}
	if p.DmaOffset < r.base || p.DmaOffset-r.base > r.size-p.Length {
		return errInvalidOffset
	}
	if err := r.space.space.Map(p.DmaOffset, p.Length, m.bytes, p.Offset); err != nil {
		return errInvalidOffset
	}
	r.mapped(p.DmaOffset, p.Length)
	return ok
}

// mapped remembers the length of a mapping for its unmapping.
func (r *virtualRange) mapped(va, n uint64) {
	if r.lengths == nil {
		r.lengths = map[uint64]uint64{}
	}
	r.lengths[va] = n
}

func (c *frontendCall) rmUnmapMemoryDMA() error {
	p, _ := view[nvgpu.NVOS47_PARAMETERS](c.arg)
	c.d.lock()
	defer c.d.mu.Unlock()
	client, s := c.d.clientOn(c.file, p.Client.Val)
	if s == ok {
		s = unmapDMA(client, p.Dma.Val, p.DmaOffset)
	}
	// The status lies behind a size that later drivers put before it.
	c.setStatus(s)
	return nil
}

func unmapDMA(client *client, dma uint32, va uint64) status {
	_, r, is := find[*virtualRange](client, dma)
	if !is {
		return errInvalidObjectHandle
	}
	n, mapped := r.lengths[va]
	if !mapped {
		return errInvalidOffset
	}
	r.space.space.Unmap(va, n)
	delete(r.lengths, va)
	return ok
}

// setStatus stores a status where the version's layout has it.
func (c *frontendCall) setStatus(s status) {
	for _, e := range c.d.abi.Frontend[c.nr] {
		if int(e.Size) == len(c.arg) && e.Status >= 0 && e.Status+4 <= len(c.arg) {
			putUint32(c.arg[e.Status:], uint32(s))
		}
	}
}
