package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"unsafe"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/nvgpu"

	"github.com/qgpu-project/qgpu/internal/nvabi"
)

func readFile(path string) (string, error) {
	b, err := os.ReadFile(path)
	return string(b), err
}

// numbers takes memory by all the ioctl numbers that mean the same to the driver: it
// looks at the low byte and the size, and at the low 32 bits only.
func numbers(r *report, _ []string) error {
	c, err := newClient()
	if err != nil {
		return err
	}
	for i := range 2048 {
		cmd := number(nvabi.EscRMAlloc, nvabi.NVOS21Size)
		switch i % 3 {
		case 0: // the type
			cmd = cmd&^0xff00 | uint64(i/8)<<8
		case 1: // the direction
			cmd = cmd&^(3<<30) | uint64(i/3%4)<<30
		case 2: // the high half
			cmd |= uint64(rand.Uint32()) << 32
		}
		o := c.takeBy(cmd, much)
		r.forbidden(o.ok(), "took %d bytes by ioctl %#x", much, cmd)
		o = c.takeBy(cmd, little)
		r.allowed(o.ok(), "ioctl %#x: %v", cmd, o)
		if !o.ok() {
			continue
		}
		if r.Held < 64*mib {
			r.Held += little // for the ledger to be compared
			continue
		}
		r.allowed(c.free(c.next).ok(), "free")
	}
	return r.wrapped(c)
}

func (c *client) takeBy(cmd uint64, size uint64) outcome {
	c.next++
	params := c.memoryParams(size)
	arg := c.allocArg(device, nvgpu.NV01_MEMORY_LOCAL_USER, c.next, params)
	if errno := rawIoctl(c.ctl, cmd, arg.address()); errno != 0 {
		return outcome{errno: errno}
	}
	if arg.u32(28) == 0 && params.u64(nvabi.MemoryLimit)+1 != size {
		return outcome{status: ^uint32(0)} // nothing was done
	}
	return outcome{status: arg.u32(28)}
}

// wrapped takes memory by NV_ESC_IOCTL_XFER_CMD, which names another ioctl and where
// its argument lies.
func (r *report) wrapped(c *client) error {
	for i := range 256 {
		c.next++
		params := c.memoryParams(little)
		inner := c.allocArg(device, nvgpu.NV01_MEMORY_LOCAL_USER, c.next, params)
		arg := make(block, 16)
		arg.set32(nvabi.XferCmd, nvabi.EscRMAlloc)
		arg.set32(nvabi.XferSize, uint32(len(inner)))
		arg.pointTo(nvabi.XferPtr, inner)
		cmd := number(nvabi.EscXferCmd, len(arg))&^0xff00 | uint64(i)<<8
		errno := rawIoctl(c.ctl, cmd, arg.address())
		r.forbidden(errno == 0, "XFER_CMD %#x was executed with status %#x", cmd, inner.u32(28))
	}
	return nil
}

// int80 makes a system call by the i386 convention.
func int80(nr, a, b, c uint32) int32

// System calls of i386.
const (
	i386Open  = 5
	i386Ioctl = 54
)

// x32 marks a system call of the x32 convention.
const x32 = 0x40000000

// conventions takes memory by system calls of other conventions than x86-64's.
func conventions(r *report, _ []string) error {
	c, err := newClient()
	if err != nil {
		return err
	}
	low, err := lowMemory()
	if err != nil {
		return err
	}
	for range 256 {
		c.next++
		params, arg := block(low[1024:1024+len(c.memoryParams(0))]), block(low[:nvabi.NVOS21Size])
		copy(params, c.memoryParams(little))
		copy(arg, c.allocArg(device, nvgpu.NV01_MEMORY_LOCAL_USER, c.next, params))
		cmd := number(nvabi.EscRMAlloc, nvabi.NVOS21Size)
		for _, nr := range []uintptr{unix.SYS_IOCTL | x32, 514 | x32} { // x32 has an ioctl of its own
			_, _, errno := unix.Syscall(nr, uintptr(c.ctl), uintptr(cmd), uintptr(arg.address()))
			r.forbidden(errno != unix.ENOSYS, "x32 ioctl %d answered %v", nr&^x32, errno)
		}
		result, available := tryInt80(i386Ioctl, uint32(c.ctl), uint32(cmd), uint32(arg.address()))
		if !available {
			r.Tries += 2
			r.NoI386 = true
			continue
		}
		r.forbidden(result != -int32(unix.ENOSYS), "i386 ioctl answered %d", result)
		copy(low[2048:], "/dev/nvidiactl\x00")
		result, _ = tryInt80(i386Open, uint32(block(low[2048:]).address()), unix.O_RDWR, 0)
		r.forbidden(result != -int32(unix.ENOSYS), "i386 open answered %d", result)
	}
	return nil
}

// lowMemory is a page whose address fits in 32 bits.
func lowMemory() ([]byte, error) {
	addr, _, errno := unix.Syscall6(unix.SYS_MMAP, 0, 4096, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_32BIT, ^uintptr(0), 0)
	if errno != 0 {
		return nil, fmt.Errorf("map low memory: %w", errno)
	}
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&addr)), 4096), nil
}

// tryInt80 is int80, where the kernel has it; elsewhere the instruction faults.
func tryInt80(nr, a, b, c uint32) (result int32, available bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if recover() != nil {
			available = false
		}
	}()
	return int80(nr, a, b, c), true
}
