package main

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/nvgpu"

	"github.com/qgpu-project/qgpu/internal/nvabi"
)

const mib = 1 << 20

// block is an argument of a call.
type block []byte

func (b block) u32(off int) uint32        { return binary.LittleEndian.Uint32(b[off:]) }
func (b block) u64(off int) uint64        { return binary.LittleEndian.Uint64(b[off:]) }
func (b block) set32(off int, v uint32)   { binary.LittleEndian.PutUint32(b[off:], v) }
func (b block) set64(off int, v uint64)   { binary.LittleEndian.PutUint64(b[off:], v) }
func (b block) address() uint64           { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }
func (b block) pointTo(off int, to block) { b.set64(off, to.address()) }
func number(nr uint8, size int) uint64    { return 3<<30 | uint64(size)<<16 | 'F'<<8 | uint64(nr) }
func rawIoctl(fd int, cmd, arg uint64) unix.Errno {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(cmd), uintptr(arg))
	return errno
}

// outcome is how a call ended: at the kernel, then at RM.
type outcome struct {
	errno  unix.Errno
	status uint32
}

func (o outcome) ok() bool { return o == outcome{} }

func (o outcome) String() string {
	if o.errno != 0 {
		return o.errno.Error()
	}
	return fmt.Sprintf("status %#x", o.status)
}

// err is nil or says that what failed.
func (o outcome) err(what string) error {
	if o.ok() {
		return nil
	}
	return fmt.Errorf("%s: %v", what, o)
}

// call makes an ioctl of a frontend file whose argument has the driver's status at
// statusAt, or none if that is negative. inner is what the argument points to.
func call(fd int, nr uint8, arg block, statusAt int, inner ...block) outcome {
	errno := rawIoctl(fd, number(nr, len(arg)), arg.address())
	runtime.KeepAlive(inner)
	if errno != 0 || statusAt < 0 {
		return outcome{errno: errno}
	}
	return outcome{status: arg.u32(statusAt)}
}

// client is an RM client with a device and a subdevice of the tenant's card.
type client struct {
	abi       *nvabi.ABI
	ctl, card int // files
	root      uint32
	next      uint32 // handle
}

// Handles of every client's device and subdevice.
const (
	device    = 0xd0000001
	subdevice = 0xd0000002
)

func openFile(path string) (int, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", path, err)
	}
	return fd, nil
}

// newClient opens the tenant's card, which is the first, and makes a client.
func newClient() (*client, error) {
	ctl, err := openFile("/dev/nvidiactl")
	if err != nil {
		return nil, err
	}
	version := make(block, 72)
	version.set32(nvabi.APIVersionCmd, nvabi.APIVersionCmdQuery)
	if o := call(ctl, nvabi.EscCheckVersionStr, version, -1); !o.ok() {
		return nil, o.err("ask for the version")
	}
	text := version[nvabi.APIVersionString:]
	for i, c := range text {
		if c == 0 {
			text = text[:i]
			break
		}
	}
	v, err := nvabi.ParseVersion(string(text))
	if err != nil {
		return nil, err
	}
	abi, err := nvabi.For(v)
	if err != nil {
		return nil, err
	}
	card, err := openFile("/dev/nvidia0")
	if err != nil {
		return nil, err
	}
	return clientOn(abi, ctl, card)
}

// clientOn makes a client of an open control file.
func clientOn(abi *nvabi.ABI, ctl, card int) (*client, error) {
	c := &client{abi: abi, ctl: ctl, card: card, next: 0xd0000100}
	root := make(block, nvabi.NVOS21Size)
	root.set32(nvabi.NVOS64Class, nvgpu.NV01_ROOT_CLIENT)
	if o := call(ctl, nvabi.EscRMAlloc, root, 28); !o.ok() {
		return nil, o.err("make a client")
	}
	c.root = root.u32(nvabi.NVOS64New)
	if o := c.alloc(c.root, nvgpu.NV01_DEVICE_0, device, c.params(nvgpu.NV01_DEVICE_0)); !o.ok() {
		return nil, o.err("make a device")
	}
	return c, c.alloc(device, nvgpu.NV20_SUBDEVICE_0, subdevice, c.params(nvgpu.NV20_SUBDEVICE_0)).err("make a subdevice")
}

// params are empty parameters of a class.
func (c *client) params(class uint32) block { return make(block, c.abi.Classes[class].Size) }

// allocArg is the argument of an NV_ESC_RM_ALLOC.
func (c *client) allocArg(parent, class, handle uint32, params block) block {
	arg := make(block, nvabi.NVOS21Size)
	arg.set32(nvabi.NVOS64Root, c.root)
	arg.set32(nvabi.NVOS64Parent, parent)
	arg.set32(nvabi.NVOS64New, handle)
	arg.set32(nvabi.NVOS64Class, class)
	if len(params) > 0 {
		arg.pointTo(nvabi.NVOS64Params, params)
		arg.set32(nvabi.NVOS21ParamLen, uint32(len(params)))
	}
	return arg
}

func (c *client) alloc(parent, class, handle uint32, params block) outcome {
	return call(c.ctl, nvabi.EscRMAlloc, c.allocArg(parent, class, handle, params), 28, params)
}

func (c *client) memoryParams(size uint64) block {
	p := c.params(nvgpu.NV01_MEMORY_LOCAL_USER)
	p.set64(nvabi.MemorySize, size)
	return p
}

// take takes memory of the card.
func (c *client) take(size uint64) (handle uint32, o outcome) {
	c.next++
	return c.next, c.alloc(device, nvgpu.NV01_MEMORY_LOCAL_USER, c.next, c.memoryParams(size))
}

func (c *client) free(handle uint32) outcome { return c.freeOf(c.root, handle) }

func (c *client) freeOf(root, handle uint32) outcome {
	arg := make(block, 16)
	arg.set32(nvabi.NVOS00Root, root)
	arg.set32(nvabi.NVOS00Old, handle)
	return call(c.ctl, nvabi.EscRMFree, arg, 12)
}

// controlArg is the argument of an NV_ESC_RM_CONTROL.
func (c *client) controlArg(object, cmd uint32, params block) block {
	arg := make(block, 32)
	arg.set32(nvabi.NVOS54Client, c.root)
	arg.set32(nvabi.NVOS54Object, object)
	arg.set32(nvabi.NVOS54Cmd, cmd)
	if len(params) > 0 {
		arg.pointTo(nvabi.NVOS54Params, params)
		arg.set32(nvabi.NVOS54ParamLen, uint32(len(params)))
	}
	return arg
}

func (c *client) control(object, cmd uint32, params block) outcome {
	return call(c.ctl, nvabi.EscRMControl, c.controlArg(object, cmd, params), 28, params)
}

// controlParams are empty parameters of a control.
func (c *client) controlParams(cmd uint32) block { return make(block, c.abi.Controls[cmd].Size) }

func (c *client) duplicate(handle, source, object uint32) outcome {
	arg := make(block, 28)
	arg.set32(nvabi.NVOS55Client, c.root)
	arg.set32(nvabi.NVOS55Parent, device)
	arg.set32(nvabi.NVOS55Object, handle)
	arg.set32(nvabi.NVOS55ClientSrc, source)
	arg.set32(nvabi.NVOS55ObjectSrc, object)
	return call(c.ctl, nvabi.EscRMDupObject, arg, 24)
}

// newUVM opens and initializes a UVM file.
func newUVM() (int, error) {
	fd, err := openFile("/dev/nvidia-uvm")
	if err != nil {
		return -1, err
	}
	const initialize = 0x30000001
	return fd, uvm(fd, initialize, make(block, 16), 8).err("initialize UVM")
}

func uvm(fd int, cmd uint64, arg block, statusAt int) outcome {
	if errno := rawIoctl(fd, cmd, arg.address()); errno != 0 {
		return outcome{errno: errno}
	}
	return outcome{status: arg.u32(statusAt)}
}

// newGroup makes a channel group.
func (c *client) newGroup(handle uint32) outcome {
	p := c.params(nvgpu.KEPLER_CHANNEL_GROUP_A)
	p.set32(nvabi.GroupEngineType, 1) // graphics and compute
	return c.alloc(device, nvgpu.KEPLER_CHANNEL_GROUP_A, handle, p)
}

// timeslice is a group's, as the driver has it, in µs.
func (c *client) timeslice(group uint32) (uint64, outcome) {
	p := make(block, 8)
	o := c.control(group, nvgpu.NVA06C_CTRL_CMD_GET_TIMESLICE, p)
	return p.u64(0), o
}
