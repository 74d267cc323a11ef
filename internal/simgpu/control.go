package simgpu

import (
	"encoding/binary"
	"maps"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/nvgpu"

	"github.com/qgpu-project/qgpu/internal/nvabi"
)

// control is how a command of RM_CONTROL is answered. The driver's lock is held;
// params has the size that the ABI says, or any size if the layout is closed.
type control func(*controlCall) status

// controlCall is one RM_CONTROL.
type controlCall struct {
	d       *Driver
	caller  Caller
	pid     int
	client  *client
	object  *object
	card    *card // of the object; nil for a client
	cmd     uint32
	params  []byte
	buffers [][]byte // behind the pointers in params, in the ABI's order; nil for null
	file    *FileID  // behind the descriptor in params, if it has one
}

// maxParams bounds the parameters of a control, in bytes, as the driver does.
const maxParams = 1 << 20

// allControls joins the tables of the families.
func allControls() map[uint32]control {
	all := map[uint32]control{}
	for _, family := range []map[uint32]control{
		clientControls(), systemControls(), deviceControls(), gpuControls(), processControls(),
		memoryControls(), graphicsControls(), busControls(), clockControls(), powerControls(), channelControls(),
		scheduleControls(),
	} {
		maps.Copy(all, family)
	}
	return all
}

// targets says which kind of object takes the controls of a class, by the upper
// half of the command. What is not listed is taken by objects of that very class.
var targets = map[uint32]nvabi.Kind{
	0x0000: nvabi.KindRoot,
	0x0080: nvabi.KindDevice,
	0x2080: nvabi.KindSubdevice,
	0xa06c: nvabi.KindGroup,
	0xa06f: nvabi.KindChannel,
	0x906f: nvabi.KindChannel,
	0xc36f: nvabi.KindChannel,
	0xc56f: nvabi.KindChannel,
	0x90f1: nvabi.KindAddressSpace,
	0x83de: nvabi.KindDebugger,
	0x9067: nvabi.KindContextShare,
}

// takes reports whether the object has the controls of the command's class.
func (o *object) takes(cmd uint32) bool {
	class := cmd >> 16
	if kind, listed := targets[class]; listed {
		return o.kind == kind
	}
	return o.class == class
}

// rmControl is NV_ESC_RM_CONTROL.
func (c *frontendCall) rmControl() error {
	p, _ := view[nvgpu.NVOS54_PARAMETERS](c.arg)
	call := &controlCall{d: c.d, caller: c.caller, pid: c.pid, cmd: p.Cmd}
	abi, s := c.d.admit(call, p)
	if s != ok {
		p.Status = uint32(s)
		return nil
	}
	call.params = newBytes(int(p.ParamsSize))
	if len(call.params) > 0 {
		if err := c.caller.ReadMemory(call.params, uint64(p.Params)); err != nil {
			p.Status = uint32(errInvalidAddress)
			return nil
		}
	}
	if s := c.readBuffers(call, abi); s != ok {
		p.Status = uint32(s)
		return nil
	}
	if abi.FD != nvabi.None && abi.FD+4 <= len(call.params) {
		if id, found := c.fileOf(int32(binary.NativeEndian.Uint32(call.params[abi.FD:]))); found {
			call.file = &id
		}
	}
	p.Status = uint32(c.runControl(call, p))
	c.d.trace("control", abi.Name, p.Cmd, status(p.Status), "object", hexNumber(p.HObject.Val))
	return c.writeResults(call, abi, uint64(p.Params))
}

// admit checks what can be checked of a control before its parameters are read.
func (d *Driver) admit(call *controlCall, p *nvgpu.NVOS54_PARAMETERS) (nvabi.RMControl, status) {
	abi, known := d.abi.Controls[p.Cmd]
	if !known {
		abi = nvabi.RMControl{Cmd: p.Cmd, Opaque: true, FD: nvabi.None}
	}
	switch {
	case !may(call.caller, abi.Privilege):
		return abi, errInsufficientPermissions
	case d.controls[p.Cmd] == nil:
		d.reportUnknown("control", p.Cmd, "name", abi.Name, "size", p.ParamsSize)
		return abi, errNotSupported
	case p.Flags != 0:
		return abi, errInvalidArgument
	case abi.Opaque && p.ParamsSize > maxParams:
		return abi, errInvalidParamStruct
	case !abi.Opaque && p.ParamsSize != abi.Size:
		return abi, errInvalidParamStruct
	case p.ParamsSize > 0 && p.Params == 0:
		return abi, errInvalidAddress
	}
	return abi, ok
}

func (c *frontendCall) runControl(call *controlCall, p *nvgpu.NVOS54_PARAMETERS) status {
	d := c.d
	d.lock()
	defer d.mu.Unlock()
	client, s := d.clientOn(c.file, p.HClient.Val)
	if s != ok {
		return s
	}
	call.client = client
	call.object = client.objects[p.HObject.Val]
	if call.object == nil {
		return errInvalidObjectHandle
	}
	if !call.object.takes(call.cmd) {
		return errNotSupported
	}
	call.card = call.object.card
	if call.card.isLost() {
		return errGPUIsLost
	}
	return d.controls[call.cmd](call)
}

// readBuffers reads what the pointers in the parameters point to.
func (c *frontendCall) readBuffers(call *controlCall, abi nvabi.RMControl) status {
	call.buffers = make([][]byte, len(abi.Pointers))
	total := 0
	for i, ptr := range abi.Pointers {
		n, s := bufferSize(call.params, ptr)
		if s != ok {
			return s
		}
		addr := binary.NativeEndian.Uint64(call.params[ptr.Offset:])
		if addr == 0 || n == 0 {
			continue
		}
		if total += n; total > maxParams {
			return errInvalidArgument
		}
		call.buffers[i] = newBytes(n)
		if ptr.In {
			if err := c.caller.ReadMemory(call.buffers[i], addr); err != nil {
				return errInvalidAddress
			}
		}
	}
	return ok
}

// bufferSize is the size in bytes of the buffer behind a pointer.
func bufferSize(params []byte, ptr nvabi.Pointer) (int, status) {
	if ptr.Offset+8 > len(params) || ptr.Count != nvabi.None && ptr.Count+4 > len(params) {
		return 0, errInvalidParamStruct
	}
	count := uint64(1)
	if ptr.Count != nvabi.None {
		count = uint64(binary.NativeEndian.Uint32(params[ptr.Count:]))
		if count > uint64(ptr.Max) {
			return 0, errInvalidArgument
		}
		if ptr.Square {
			count *= count
		}
	}
	n := count * uint64(ptr.Elem)
	if n > maxParams {
		return 0, errInvalidArgument
	}
	return int(n), ok
}

// writeResults gives parameters and buffers back, whatever the status, as the
// driver does.
func (c *frontendCall) writeResults(call *controlCall, abi nvabi.RMControl, addr uint64) error {
	for i, ptr := range abi.Pointers {
		if !ptr.Out || call.buffers[i] == nil {
			continue
		}
		at := binary.NativeEndian.Uint64(call.params[ptr.Offset:])
		if err := c.caller.WriteMemory(call.buffers[i], at); err != nil {
			return unix.EFAULT
		}
	}
	if len(call.params) > 0 {
		if err := c.caller.WriteMemory(call.params, addr); err != nil {
			return unix.EFAULT
		}
	}
	return nil
}

// answer adapts a function of the parameters as structure T to a control.
func answer[T any](f func(*controlCall, *T) status) control {
	return func(c *controlCall) status {
		p, enough := view[T](c.params)
		if !enough {
			return errInvalidParamStruct
		}
		return f(c, p)
	}
}

// accept is for controls that say or ask nothing that matters here; their
// parameters come back as they were.
func accept(*controlCall) status { return ok }

// zeros is for controls whose honest answer is nothing at all.
func zeros(c *controlCall) status {
	clear(c.params)
	return ok
}

// info is an element of the lists of numbers that many controls fill in
// (NVXXXX_CTRL_XXX_INFO).
type info struct{ Index, Data uint32 }

// fill answers every element of a list.
func fill(list []info, of func(index uint32) uint32) {
	for i := range list {
		list[i].Data = of(list[i].Index)
	}
}

// listV2 answers a control whose parameters are a count and a list.
func listV2(of func(c *controlCall, index uint32) uint32) control {
	return func(c *controlCall) status {
		n, enough := view[uint32](c.params)
		if !enough {
			return errInvalidParamStruct
		}
		list, fits := viewList[info](c.params[4:], int(*n))
		if !fits {
			return errInvalidArgument
		}
		fill(list, func(i uint32) uint32 { return of(c, i) })
		return ok
	}
}

// listV1 answers a control whose parameters are a count and a pointer to a list.
func listV1(of func(c *controlCall, index uint32) uint32) control {
	return func(c *controlCall) status {
		if len(c.buffers) == 0 {
			return errInvalidParamStruct
		}
		list, _ := viewList[info](c.buffers[0], len(c.buffers[0])/8)
		fill(list, func(i uint32) uint32 { return of(c, i) })
		return ok
	}
}
