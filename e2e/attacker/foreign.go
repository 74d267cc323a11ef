package main

import (
	"fmt"
	"net"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/nvgpu"

	"github.com/qgpu-project/qgpu/internal/nvabi"
)

// firstClient is the lowest handle that the driver gives to a client.
const firstClient = 0xc1d00000

// guess tries what can be done with an RM client on all handles that a client of
// another tenant may have. Its argument is the object of memory to try them on.
func guess(r *report, args []string) error {
	object := uint64(0xd0000101)
	if len(args) > 0 {
		var err error
		if object, err = strconv.ParseUint(args[0], 0, 32); err != nil {
			return err
		}
	}
	c, err := newClient()
	if err != nil {
		return err
	}
	uvmFile, err := newUVM()
	if err != nil {
		return err
	}
	for guessed := uint32(firstClient); guessed < firstClient+0x100; guessed++ {
		if guessed == c.root {
			continue
		}
		for what, o := range c.tryClient(guessed, uint32(object), uvmFile) {
			r.forbidden(o.ok(), "%s of client %#x", what, guessed)
		}
	}
	r.allowed(c.free(c.root).ok(), "free the own client")
	return nil
}

// tryClient makes calls that name a client of somebody else.
func (c *client) tryClient(guessed, object uint32, uvmFile int) map[string]outcome {
	as := *c
	as.root = guessed
	return map[string]outcome{
		"control":              as.control(guessed, nvgpu.NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS, c.controlParams(nvgpu.NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS)),
		"control of a card":    as.control(subdevice, nvgpu.NV2080_CTRL_CMD_GPU_GET_NAME_STRING, c.controlParams(nvgpu.NV2080_CTRL_CMD_GPU_GET_NAME_STRING)),
		"free of memory":       c.freeOf(guessed, object),
		"free":                 c.freeOf(guessed, guessed),
		"allocation":           as.alloc(device, nvgpu.NV01_MEMORY_LOCAL_USER, 0xd0008001, c.memoryParams(little)),
		"duplicate from":       c.duplicate(0xd0008002, guessed, object),
		"duplicate to":         as.duplicate(0xd0008003, c.root, device),
		"mapping":              as.mapMemory(object),
		"sharing":              as.share(object),
		"event file":           as.eventFile(),
		"event":                c.foreignEvent(guessed),
		"device":               c.foreignDevice(guessed),
		"debugger":             c.foreignDebugger(guessed),
		"heap":                 as.heap(),
		"host memory":          as.hostMemory(),
		"UVM mapping":          c.uvmMapping(uvmFile, guessed, object),
		"UVM address space":    c.uvmAddressSpace(uvmFile, guessed),
		"UVM channel":          c.uvmChannel(uvmFile, guessed),
		"disabling of a group": c.disableChannels(guessed, 0xd0000010),
	}
}

func (c *client) mapMemory(object uint32) outcome {
	target, err := unix.Open("/dev/nvidiactl", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return outcome{errno: unix.EBADF}
	}
	defer unix.Close(target)
	arg := make(block, 56)
	arg.set32(nvabi.NVOS33Client, c.root)
	arg.set32(nvabi.NVOS33Device, device)
	arg.set32(nvabi.NVOS33Memory, object)
	arg.set64(nvabi.NVOS33Length, 4096)
	arg.set32(48, uint32(target))
	return call(c.ctl, nvabi.EscRMMapMemory, arg, 40)
}

// share would let everybody duplicate an object. The mediator answers "done" for the
// tenant's own clients; of others' it must not.
func (c *client) share(object uint32) outcome {
	arg := make(block, 24)
	arg.set32(nvabi.NVOS57Client, c.root)
	arg.set32(nvabi.NVOS57Object, object)
	arg.set32(nvabi.NVOS57Policy+8, nvabi.ShareTypeAll)
	return call(c.ctl, nvabi.EscRMShare, arg, 20)
}

func (c *client) eventFile() outcome {
	arg := make(block, 16)
	arg.set32(nvabi.OSEventClient, c.root)
	arg.set32(nvabi.OSEventDevice, device)
	arg.set32(nvabi.OSEventFD, uint32(c.card))
	return call(c.card, nvabi.EscAllocOSEvent, arg, 12)
}

func (c *client) foreignEvent(of uint32) outcome {
	p := c.params(nvgpu.NV01_EVENT_OS_EVENT)
	p.set32(nvabi.EventParentClient, of)
	p.set32(nvabi.EventSource, of)
	p.set32(nvabi.EventClass, nvgpu.NV01_EVENT_OS_EVENT)
	p.set64(nvabi.EventData, uint64(c.ctl))
	return c.alloc(device, nvgpu.NV01_EVENT_OS_EVENT, 0xd0008004, p)
}

func (c *client) foreignDevice(of uint32) outcome {
	p := c.params(nvgpu.NV01_DEVICE_0)
	p.set32(nvabi.DeviceClientShare, of)
	return c.alloc(c.root, nvgpu.NV01_DEVICE_0, 0xd0008005, p)
}

func (c *client) foreignDebugger(of uint32) outcome {
	p := c.params(nvgpu.GT200_DEBUGGER)
	p.set32(nvabi.DebuggerAppClient, of)
	p.set32(nvabi.DebuggerObject, 0xd0000011)
	return c.alloc(device, nvgpu.GT200_DEBUGGER, 0xd0008006, p)
}

func (c *client) heap() outcome {
	arg := make(block, 184)
	arg.set32(nvabi.NVOS32Root, c.root)
	arg.set32(nvabi.NVOS32Parent, device)
	arg.set32(nvabi.NVOS32Function, nvabi.VidHeapAllocSize)
	arg.set32(nvabi.NVOS32AllocMemory, 0xd0008007)
	arg.set64(nvabi.NVOS32AllocSize, little)
	return call(c.ctl, nvabi.EscRMVidHeapControl, arg, 20)
}

func (c *client) hostMemory() outcome {
	arg := make(block, 56)
	arg.set32(nvabi.NVOS02Root, c.root)
	arg.set32(nvabi.NVOS02Parent, device)
	arg.set32(nvabi.NVOS02New, 0xd0008008)
	arg.set32(nvabi.NVOS02Class, nvgpu.NV01_MEMORY_SYSTEM)
	arg.set64(nvabi.NVOS02Limit, 4095)
	arg.set32(48, ^uint32(0))
	return call(c.card, nvabi.EscRMAllocMemory, arg, 40)
}

func (c *client) uvmMapping(file int, of, object uint32) outcome {
	u := c.abi.UVM[nvgpu.UVM_MAP_EXTERNAL_ALLOCATION]
	l := c.abi.Layout.UVMMapExternal
	arg := make(block, u.Size)
	arg.set64(nvabi.UVMBase, 0x500000000000)
	arg.set64(nvabi.UVMLength, little)
	arg.set32(l.ControlFD, uint32(c.ctl))
	arg.set32(l.Client, of)
	arg.set32(l.Memory, object)
	return uvm(file, nvgpu.UVM_MAP_EXTERNAL_ALLOCATION, arg, u.Status)
}

func (c *client) uvmAddressSpace(file int, of uint32) outcome {
	arg := make(block, 32)
	arg.set32(nvabi.UVMVASpaceFD, uint32(c.ctl))
	arg.set32(nvabi.UVMVASpaceClient, of)
	return uvm(file, nvgpu.UVM_REGISTER_GPU_VASPACE, arg, 28)
}

func (c *client) uvmChannel(file int, of uint32) outcome {
	arg := make(block, 56)
	arg.set32(nvabi.UVMChannelFD, uint32(c.ctl))
	arg.set32(nvabi.UVMChannelClient, of)
	return uvm(file, nvgpu.UVM_REGISTER_CHANNEL, arg, 48)
}

// descriptors are what one tenant passes to another.
const descriptors = 4

// send takes memory and passes its control, card and UVM files, and a spare one, to whoever listens at the socket that args name.
func send(r *report, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("name the socket")
	}
	c, err := newClient()
	if err != nil {
		return err
	}
	r.Client, r.Held = c.root, 32*mib
	if _, o := c.take(r.Held); !o.ok() {
		return o.err("take memory")
	}
	uvmFile, err := newUVM()
	if err != nil {
		return err
	}
	spare, err := openFile("/dev/nvidiactl")
	if err != nil {
		return err
	}
	conn, err := dial(args[0])
	if err != nil {
		return err
	}
	defer conn.Close()
	rights := unix.UnixRights(c.ctl, c.card, uvmFile, spare)
	_, _, err = conn.WriteMsgUnix([]byte(strconv.FormatUint(uint64(c.root), 10)), rights, nil)
	return err
}

func dial(path string) (*net.UnixConn, error) {
	var last error
	for range 1000 {
		conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
		if err == nil {
			return conn, nil
		}
		last = err
		time.Sleep(10 * time.Millisecond)
	}
	return nil, last
}

// receive listens at a socket for another tenant's files, tries to gain by them, and
// keeps them.
func receive(r *report, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("name the socket")
	}
	own, err := newClient()
	if err != nil {
		return err
	}
	files, root, err := receiveFiles(args[0])
	if err != nil {
		return err
	}
	ctl, card, uvmFile, spare := files[0], files[1], files[2], files[3]
	theirs := *own
	theirs.ctl, theirs.card, theirs.root = ctl, card, root
	for i := range 64 {
		theirs.next++
		_, o := theirs.take(little)
		r.forbidden(o.ok(), "took memory as the other tenant's client")
		for _, fd := range files {
			_, err := clientOn(own.abi, fd, card)
			r.forbidden(err == nil, "made a client on file %d of the other tenant", fd)
		}
		r.forbidden(theirs.freeOf(root, root).ok(), "freed the other tenant's client")
		for what, o := range own.tryClient(root, 0xd0000101, uvmFile) {
			r.forbidden(o.ok(), "%s of the other tenant's client", what)
		}
		// The own client with the other's file, and the other way round.
		crossed := *own
		crossed.ctl, crossed.next = spare, own.next+uint32(1000*(i+1))
		_, o = crossed.take(little)
		r.forbidden(o.ok(), "took memory through the other tenant's file")
		addr := uintptr(0x600000000000)
		_, _, errno := unix.Syscall6(unix.SYS_MMAP, addr, 64*mib, unix.PROT_READ|unix.PROT_WRITE,
			unix.MAP_SHARED|unix.MAP_FIXED_NOREPLACE, uintptr(uvmFile), addr)
		r.forbidden(errno == 0, "mapped managed memory of the other tenant's UVM file")
		register := make(block, 4)
		register.set32(0, uint32(ctl))
		o = call(own.card, nvabi.EscRegisterFD, register, -1)
		r.forbidden(o.ok(), "linked the own card's file to the other tenant's control file")
	}
	return nil
}

func receiveFiles(path string) (files []int, root uint32, err error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, 0, err
	}
	defer l.Close()
	conn, err := l.AcceptUnix()
	if err != nil {
		return nil, 0, err
	}
	defer conn.Close()
	buf, oob := make([]byte, 64), make([]byte, unix.CmsgSpace(4*descriptors))
	n, oobn, _, _, err := conn.ReadMsgUnix(buf, oob)
	if err != nil {
		return nil, 0, err
	}
	client, err := strconv.ParseUint(string(buf[:n]), 10, 32)
	if err != nil {
		return nil, 0, err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil || len(messages) != 1 {
		return nil, 0, fmt.Errorf("%d messages with files came (%v)", len(messages), err)
	}
	files, err = unix.ParseUnixRights(&messages[0])
	if err == nil && len(files) != descriptors {
		err = fmt.Errorf("%d files came instead of %d", len(files), descriptors)
	}
	return files, uint32(client), err
}
