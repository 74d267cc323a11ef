package simgpu

import (
	"bytes"
	"encoding/binary"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/nvgpu"

	"github.com/qgpu-project/qgpu/internal/nvabi"
)

// IoctlPinFor is the number of an ioctl that only the simulated driver has: it
// pins pages of another process than the caller's. A mediator, whose calls are
// not its tenant's, uses it in place of NV_ESC_RM_ALLOC_MEMORY of class 0x71. The
// argument is a PinFor.
const IoctlPinFor = 0xfa

// PinFor is the argument of IoctlPinFor.
type PinFor struct {
	PID      uint32 // whose pages they are
	_        uint32
	Arg      uint64 // address of the NV_ESC_RM_ALLOC_MEMORY argument
	Reserved uint64
}

// frontendCall is an ioctl on a control or card file. Handlers change arg in
// place; it is written back whatever they answer, unless they fail with an errno.
type frontendCall struct {
	d      *Driver
	caller Caller
	pid    int
	file   *file
	nr     uint8
	arg    []byte
}

// frontendHandler answers one kind of ioctl. It takes the driver's lock itself, and
// reads and writes the caller's memory while it does not hold it. The error is nil
// or a unix.Errno.
type frontendHandler func(*frontendCall) error

func frontendHandlers() map[uint8]frontendHandler {
	return map[uint8]frontendHandler{
		nvgpu.NV_ESC_CARD_INFO:          (*frontendCall).cardInfo,
		nvgpu.NV_ESC_REGISTER_FD:        (*frontendCall).registerFD,
		nvgpu.NV_ESC_ALLOC_OS_EVENT:     (*frontendCall).allocOSEvent,
		nvgpu.NV_ESC_FREE_OS_EVENT:      (*frontendCall).freeOSEvent,
		nvgpu.NV_ESC_CHECK_VERSION_STR:  (*frontendCall).checkVersion,
		nvgpu.NV_ESC_ATTACH_GPUS_TO_FD:  (*frontendCall).attachGPUs,
		nvgpu.NV_ESC_SYS_PARAMS:         (*frontendCall).sysParams,
		nvgpu.NV_ESC_NUMA_INFO:          (*frontendCall).numaInfo,
		nvgpu.NV_ESC_WAIT_OPEN_COMPLETE: (*frontendCall).waitOpenComplete,

		nvgpu.NV_ESC_RM_ALLOC:            (*frontendCall).rmAlloc,
		nvgpu.NV_ESC_RM_FREE:             (*frontendCall).rmFree,
		nvgpu.NV_ESC_RM_CONTROL:          (*frontendCall).rmControl,
		nvgpu.NV_ESC_RM_DUP_OBJECT:       (*frontendCall).rmDupObject,
		nvgpu.NV_ESC_RM_SHARE:            (*frontendCall).rmShare,
		nvgpu.NV_ESC_RM_ALLOC_MEMORY:     (*frontendCall).rmAllocMemory,
		nvgpu.NV_ESC_RM_VID_HEAP_CONTROL: (*frontendCall).rmVidHeapControl,
		nvgpu.NV_ESC_RM_MAP_MEMORY:       (*frontendCall).rmMapMemory,
		nvgpu.NV_ESC_RM_UNMAP_MEMORY:     (*frontendCall).rmUnmapMemory,
		nvgpu.NV_ESC_RM_MAP_MEMORY_DMA:   (*frontendCall).rmMapMemoryDMA,
		nvgpu.NV_ESC_RM_UNMAP_MEMORY_DMA: (*frontendCall).rmUnmapMemoryDMA,
		nvgpu.NV_ESC_RM_IDLE_CHANNELS:    (*frontendCall).rmIdleChannels,

		nvgpu.NV_ESC_RM_UPDATE_DEVICE_MAPPING_INFO: (*frontendCall).rmUpdateMapping,
		IoctlPinFor: (*frontendCall).pinFor,
	}
}

// frontendIoctl answers an ioctl on a control or card file. As in the real
// module, only the number and the size in cmd matter.
func (d *Driver) frontendIoctl(c Caller, pid int, f *file, cmd uint32, arg uint64) error {
	nr, size := uint8(cmd), cmd>>16&0x3fff
	handle := d.frontend[nr]
	if handle == nil || !d.takes(f, nr, size) {
		d.reportUnknown("ioctl", uint32(nr), "size", size)
		return unix.EINVAL
	}
	call := &frontendCall{d: d, caller: c, pid: pid, file: f, nr: nr, arg: newBytes(int(size))}
	if err := c.ReadMemory(call.arg, arg); err != nil {
		return unix.EFAULT
	}
	before := bytes.Clone(call.arg)
	err := handle(call)
	d.trace("ioctl", d.ioctlName(nr), uint32(nr), call.status(), "error", err)
	if err != nil || bytes.Equal(call.arg, before) {
		return err // a write of what is there already would only cost time
	}
	if err := c.WriteMemory(call.arg, arg); err != nil {
		return unix.EFAULT
	}
	return nil
}

// status is what the argument says now.
func (c *frontendCall) status() status {
	for _, e := range c.d.abi.Frontend[c.nr] {
		if int(e.Size) == len(c.arg) && e.Status >= 0 && e.Status+4 <= len(c.arg) {
			return status(binary.NativeEndian.Uint32(c.arg[e.Status:]))
		}
	}
	return ok
}

// takes reports whether the ioctl exists with this size and on this kind of file.
func (d *Driver) takes(f *file, nr uint8, size uint32) bool {
	if nr == IoctlPinFor {
		return size == uint32(binary.Size(PinFor{}))
	}
	on := nvabi.Control
	if f.node.Kind == NodeCard {
		on = nvabi.Card
	}
	for _, e := range d.abi.Frontend[nr] {
		fits := size == e.Size
		if e.Array {
			fits = e.Size > 0 && size > 0 && size%e.Size == 0
		}
		if fits {
			// Events are made on whichever file carries them.
			return e.On&on != 0 || nr == nvgpu.NV_ESC_RM_ALLOC
		}
	}
	return false
}

func (d *Driver) ioctlName(nr uint8) string {
	if e := d.abi.Frontend[nr]; len(e) > 0 {
		return e[0].Name
	}
	return "PinFor"
}

func (d *Driver) reportUnknown(what string, number uint32, attrs ...any) {
	if d.unknown.allow(what + string(binary.NativeEndian.AppendUint32(nil, number))) {
		d.log.Info("the simulated driver does not have this "+what, append([]any{"number", hexNumber(number)}, attrs...)...)
	}
}

// fileOf is the driver's file behind one of the caller's descriptors. The driver's
// lock must not be held.
func (c *frontendCall) fileOf(fd int32) (FileID, bool) {
	if fd < 0 {
		return FileID{}, false
	}
	id, err := c.caller.FileOf(fd)
	return id, err == nil
}

func (c *frontendCall) cardInfo() error {
	clear(c.arg)
	list, _ := viewList[nvgpu.IoctlCardInfo](c.arg, len(c.arg)/72)
	if len(list) < len(c.d.cards) {
		return unix.EINVAL
	}
	for i, card := range c.d.cards {
		reg, regSize := card.registers()
		fb, fbSize := card.bar1()
		list[i] = nvgpu.IoctlCardInfo{
			Valid: 1,
			PCIInfo: nvgpu.PCIInfo{
				Bus: card.bus, VendorID: pciVendor, DeviceID: card.model.Device,
			},
			GPUID:         card.gpuID,
			InterruptLine: uint16(16 + i),
			RegAddress:    reg, RegSize: regSize,
			FBAddress: fb, FBSize: fbSize,
			MinorNumber: uint32(card.minor),
		}
	}
	return nil
}

// registerFD links the file to a control file: RM clients of that file can then
// be used through this one.
func (c *frontendCall) registerFD() error {
	p, _ := view[nvgpu.IoctlRegisterFD](c.arg)
	id, found := c.fileOf(p.CtlFD)
	if !found {
		return unix.EINVAL
	}
	c.d.lock()
	defer c.d.mu.Unlock()
	ctl := c.d.files[id]
	switch {
	case c.file.control != nil, c.file.gone, c.file.links > 0:
		return unix.EINVAL
	case ctl == nil || ctl.node.Kind != NodeControl || ctl == c.file || ctl.control != nil:
		return unix.EINVAL
	}
	c.file.control = ctl
	ctl.links++
	return nil
}

func (c *frontendCall) checkVersion() error {
	const strict, recognized = 0, 1
	p, _ := view[nvgpu.RMAPIVersion](c.arg)
	have := c.d.abi.Version.String()
	p.Reply = 0
	if p.Cmd != strict || cString(p.VersionString[:]) == have {
		p.Reply = recognized
	}
	putString(p.VersionString[:], have)
	if p.Reply != recognized {
		return unix.EINVAL
	}
	return nil
}

func (c *frontendCall) sysParams() error {
	p, _ := view[nvgpu.IoctlSysParams](c.arg)
	p.MemblockSize = 0 // no memory hot-plug
	return nil
}

// numaInfo says that a card's memory is no NUMA node of the machine, as on all
// cards behind PCI Express.
func (c *frontendCall) numaInfo() error {
	clear(c.arg)
	nid, _ := view[int32](c.arg)
	*nid = -1
	return nil
}

func (c *frontendCall) waitOpenComplete() error {
	clear(c.arg)
	return nil
}

func (c *frontendCall) attachGPUs() error {
	ids, _ := viewList[uint32](c.arg, len(c.arg)/4)
	for _, id := range ids {
		if id != 0 && c.d.cardByGPU(id) == nil {
			return unix.EINVAL
		}
	}
	return nil
}
