package main

import (
	"unsafe"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/nvgpu"

	"github.com/qgpu-project/qgpu/internal/nvabi"
)

// Controls of time, from the driver's headers (ctrla06c.h, ctrla06fgpfifo.h, ctrl2080fifo.h).
const (
	groupInterleave   = 0xa06c0107
	groupRealtime     = 0xa06c0110
	channelInterleave = 0xa06f0109
	restartRunlist    = 0xa06f0111
	stopChannel       = 0xa06f0112
	disableChannels   = 0x2080110b
	runlistPolicy     = 0x20801115
)

// disableChannels takes a channel or group of any client off its runlist.
func (c *client) disableChannels(of, object uint32) outcome {
	p := c.controlParams(disableChannels)
	p[0] = 1
	p.set32(4, 1)
	p.set32(24, of)
	p.set32(24+4*64, object)
	return c.control(subdevice, disableChannels, p)
}

// schedule tries to change how the card's time is shared, by its own group and those
// of other tenants.
func schedule(r *report, _ []string) error {
	c, err := newClient()
	if err != nil {
		return err
	}
	const group = 0xd0000010
	if o := c.newGroup(group); !o.ok() {
		return o.err("make a group")
	}
	before, o := c.timeslice(group)
	if !o.ok() {
		return o.err("read the time slice")
	}
	slice := make(block, 8)
	for us := uint64(1); us < 1<<20; us *= 2 {
		slice.set64(0, us)
		// libcuda sets one, so it must seem to work.
		o := c.control(group, nvgpu.NVA06C_CTRL_CMD_SET_TIMESLICE, slice)
		r.allowed(o.ok(), "SET_TIMESLICE: %v", o)
		now, _ := c.timeslice(group)
		r.forbidden(now != before, "the time slice became %d µs", now)
	}
	for level := uint32(0); level < 4; level++ {
		for cmd, object := range map[uint32]uint32{groupInterleave: group, channelInterleave: group} {
			p := c.controlParams(cmd)
			p.set32(0, level)
			c.control(object, cmd, p) // a fake: whether it seems to work does not matter
		}
		for _, cmd := range []uint32{groupRealtime, restartRunlist, stopChannel, runlistPolicy, disableChannels} {
			size := c.abi.Controls[cmd].Size
			for _, object := range []uint32{group, subdevice, device, c.root} {
				o := c.control(object, cmd, make(block, size))
				r.forbidden(o.ok(), "control %#x was executed", cmd)
			}
		}
	}
	r.forbidden(c.disableChannels(c.root, group).ok(), "disabled channels")
	for guessed := uint32(firstClient); guessed < firstClient+0x40; guessed++ {
		if guessed == c.root {
			continue
		}
		r.forbidden(c.disableChannels(guessed, group).ok(), "disabled channels of client %#x", guessed)
		as := *c
		as.root = guessed
		r.forbidden(as.control(group, nvgpu.NVA06C_CTRL_CMD_PREEMPT, c.controlParams(nvgpu.NVA06C_CTRL_CMD_PREEMPT)).ok(), "preempted a group of client %#x", guessed)
	}
	return nil
}

// exports tries to make memory outlive or leave its client.
func exports(r *report, _ []string) error {
	c, err := newClient()
	if err != nil {
		return err
	}
	r.Held = 16 * mib
	memory, o := c.take(r.Held)
	if !o.ok() {
		return o.err("take memory")
	}
	size := int(c.abi.Frontend[nvabi.EscExportToDMABufFD][0].Size)
	for _, file := range []int{c.ctl, c.card} {
		arg := make(block, size)
		arg.set32(0, ^uint32(0))
		arg.set32(4, c.root)
		arg.set32(8, 1)
		arg.set64(24, little)
		arg.set32(c.abi.Layout.DMABufHandles, memory)
		status := c.abi.Frontend[nvabi.EscExportToDMABufFD][0].Status
		r.forbidden(call(file, nvabi.EscExportToDMABufFD, arg, status).ok(), "exported to a dma-buf")
	}
	// Fabric and multicast memory and their imports, memory exported to another node,
	// third-party peers, shared user data.
	for _, class := range []uint32{0xf8, 0xf9, 0xfb, 0xfd, 0xe0, 0xf1, 0x503c, 0xde, 0x900e, 0x3f, 0x71, 0x05} {
		for _, parent := range []uint32{c.root, device, subdevice} {
			o := c.alloc(parent, class, 0xd0009000, make(block, 512))
			r.forbidden(o.ok(), "made an object of class %#x", class)
		}
	}
	// libcuda makes a BINAPI object; its commands, which are the driver's internal ones,
	// stay closed.
	const binapi, handle = 0x2081, 0xd0009001
	c.alloc(subdevice, binapi, handle, make(block, 512))
	for cmd := uint32(0x20810101); cmd < 0x20810111; cmd++ {
		r.forbidden(c.control(handle, cmd, make(block, 16)).ok(), "BINAPI command %#x was executed", cmd)
	}
	const exportObject, importObject = 0x3d05, 0x3d06
	for _, cmd := range []uint32{exportObject, importObject} {
		for fd := range 8 {
			p := c.controlParams(cmd)
			p.set32(int(max(c.abi.Controls[cmd].FD, 0)), uint32(fd+3))
			o := c.control(c.root, cmd, p)
			r.forbidden(o.ok(), "control %#x was executed", cmd)
		}
	}
	return nil
}

// unknown makes calls that no table has. All are refused, and counted by name.
func unknown(r *report, _ []string) error {
	c, err := newClient()
	if err != nil {
		return err
	}
	uvmFile, err := newUVM()
	if err != nil {
		return err
	}
	for i := range uint32(16) {
		r.forbidden(c.control(subdevice, 0x2080ff00+i, make(block, 16)).ok(), "control %#x", 0x2080ff00+i)
		r.forbidden(c.alloc(device, 0xabc0+i, 0xd000a000+i, make(block, 64)).ok(), "class %#x", 0xabc0+i)
		r.forbidden(rawIoctl(c.ctl, number(nvabi.EscRMAlloc, int(100+i)), make(block, 512).address()) == 0, "RM_ALLOC of %d bytes", 100+i)
		r.forbidden(rawIoctl(uvmFile, uint64(200+i), make(block, 512).address()) == 0, "UVM command %d", 200+i)
	}
	for _, nr := range []uint8{nvabi.EscXferCmd, nvabi.EscSetNUMAStatus, nvabi.EscRMI2CAccess, nvabi.EscRMIdleChannels,
		nvabi.EscQueryDeviceIntr, nvabi.EscStatusCode, nvabi.EscRMAccessRegistry, nvabi.EscRMAllocObject} {
		for _, f := range c.abi.Frontend[nr] {
			arg := make(block, f.Size)
			arg.set32(0, c.root)
			for _, file := range []int{c.ctl, c.card} {
				r.forbidden(rawIoctl(file, number(nr, int(f.Size)), arg.address()) == 0, "%s was executed", f.Name)
			}
		}
	}
	return nil
}

// filters tries to get around or in front of the tenant's filter.
func filters(r *report, _ []string) error {
	params := make(block, 120) // struct io_uring_params
	for range 64 {
		_, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 8, uintptr(params.address()), 0)
		r.forbidden(errno != unix.ENOSYS, "io_uring_setup answered %v", errno)
		_, _, errno = unix.Syscall6(unix.SYS_IO_URING_ENTER, 0, 0, 0, 0, 0, 0)
		r.forbidden(errno != unix.ENOSYS, "io_uring_enter answered %v", errno)
		_, _, errno = unix.Syscall6(unix.SYS_IO_URING_REGISTER, 0, 0, 0, 0, 0, 0)
		r.forbidden(errno != unix.ENOSYS, "io_uring_register answered %v", errno)
	}
	allow := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}}
	prog := unix.SockFprog{Len: 1, Filter: &allow[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	for _, more := range []uintptr{0, unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, unix.SECCOMP_FILTER_FLAG_TSYNC | unix.SECCOMP_FILTER_FLAG_TSYNC_ESRCH, 1 << 32} {
		_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER|more, uintptr(unsafe.Pointer(&prog)))
		r.forbidden(errno != unix.EBUSY, "a listener of the tenant's own: %v", errno)
	}
	// A filter without a listener only restricts, and is allowed.
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog)))
	r.allowed(errno == 0, "a filter without a listener: %v", errno)
	c, err := newClient()
	if err != nil {
		return err
	}
	_, o := c.take(much)
	r.forbidden(o.ok(), "took %d bytes behind a filter of its own", much)
	_, o = c.take(little)
	r.allowed(o.ok(), "take memory behind a filter of its own: %v", o)
	r.Held = little
	return nil
}
