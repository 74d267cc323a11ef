package mediator

import (
	"fmt"

	"github.com/qgpu-project/qgpu/internal/nvabi"
	"github.com/qgpu-project/qgpu/internal/seccomp"
	"golang.org/x/sys/unix"
)

// maxOpaque bounds the parameters of a control whose size is not published.
const maxOpaque = 64 << 10

// params are the parameters of a control being answered.
type params struct {
	message
	buffers [4]message // behind the control's pointers, nil where the tenant gave none
}

// control answers NV_ESC_RM_CONTROL by the table of controls.
func (c *call) control() seccomp.Answer {
	cmd := c.arg.u32(controlCmd)
	abi, known := c.m.abi.Controls[cmd]
	rule, allowed := c.m.controls[cmd]
	if !known || !allowed {
		if c.name = abi.Name; !known {
			c.name = fmt.Sprintf("control %#x", cmd)
		}
		return c.refuse(statusNotSupported)
	}
	c.name = abi.Name
	if c.arg.u32(controlFlags) != 0 {
		return c.refuse(statusInvalidArgument) // see alloc
	}
	if rule.fixed {
		if rule.status != statusOK {
			return c.refuse(rule.status)
		}
		return c.pretend(statusOK)
	}
	p := &c.params
	status, errno := c.controlParams(p, &abi)
	if errno != 0 {
		return fail(errno)
	}
	if status != statusOK {
		return c.pretend(status)
	}
	if rule.check != nil {
		if status := rule.check(c, p); status != statusOK {
			return c.refuse(status)
		}
	}
	if rule.instead != nil {
		if status := rule.instead(c, p); status != statusOK {
			return c.refuse(status)
		}
		c.arg.setU32(c.status, statusOK)
		return c.finish(0)
	}
	errno = c.execute()
	if rule.show != nil && c.ok(errno) {
		rule.show(c, p)
	}
	return c.finish(errno)
}

// controlParams copies a control's parameters and the buffers they point to. Where the
// driver would refuse them, the status says how.
func (c *call) controlParams(p *params, abi *nvabi.RMControl) (status uint32, errno unix.Errno) {
	*p = params{}
	addr, size := c.arg.u64(controlPtr), c.arg.u32(controlSize)
	switch {
	case abi.Opaque && size > maxOpaque, !abi.Opaque && size != abi.Size:
		return statusInvalidParameters, 0
	case size == 0:
		return statusOK, c.point(c.arg, controlPtr, nil)
	case addr == 0:
		return statusInvalidPointer, 0
	}
	if p.message, errno = c.read(addr, int(size)); errno != 0 {
		return 0, errno
	}
	if errno = c.point(c.arg, controlPtr, p.message); errno != 0 {
		return 0, errno
	}
	if abi.FD != nvabi.None {
		if _, _, _, errno := c.translate(p.message, abi.FD, false); errno != 0 {
			return statusInvalidArgument, 0
		}
	}
	if len(abi.Pointers) > len(p.buffers) {
		return statusNotSupported, 0
	}
	for i, ptr := range abi.Pointers {
		if p.buffers[i], status, errno = c.buffer(p.message, ptr); status != statusOK || errno != 0 {
			return status, errno
		}
	}
	return statusOK, 0
}

// buffer copies the buffer behind a pointer in b.
func (c *call) buffer(b message, ptr nvabi.Pointer) (buf message, status uint32, errno unix.Errno) {
	addr := b.u64(ptr.Offset)
	n := uint64(1)
	if ptr.Count != nvabi.None {
		n = uint64(b.u32(ptr.Count))
		if n > uint64(ptr.Max) {
			return nil, statusInvalidArgument, 0
		}
		if ptr.Square {
			n *= n
		}
	}
	size := n * uint64(ptr.Elem)
	if addr == 0 || size == 0 {
		// The driver follows none, and must not be able to.
		return nil, statusOK, c.point(b, ptr.Offset, nil)
	}
	if size > arenaSize/4 {
		return nil, statusInvalidArgument, 0
	}
	if buf, errno = c.segment(addr, int(size), ptr.In, ptr.Out); errno != 0 {
		return nil, 0, errno
	}
	return buf, statusOK, c.point(b, ptr.Offset, buf)
}
