package mediator

import (
	"testing"

	"github.com/qgpu-project/qgpu/internal/nvabi"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/nvgpu"
)

// The tenant changes every piece of memory right after it was read: what was checked
// is what the driver gets, and nothing is read twice.
func TestMemoryIsReadOnce(t *testing.T) {
	m, d, tn := setUp(t, gib)
	c := tn.context()
	params := make(message, 120)
	params.setU64(memorySize, 100*mib)
	inner := tn.put(params)
	arg := make(message, sizeNVOS64)
	arg.setU32(0, c.client)
	arg.setU32(4, c.device)
	arg.setU32(12, nvgpu.NV01_MEMORY_LOCAL_USER)
	arg.setU64(16, inner)
	outer := tn.put(arg)
	tn.reads = make(map[uint64]int)
	tn.onRead = func(addr uint64) {
		switch addr {
		case inner:
			tn.at(inner, 120).setU64(memorySize, 8*gib)
		case outer:
			tn.at(outer, 48).setU64(16, 1)
			tn.at(outer, 48).setU32(12, 0xc2)
		}
	}
	a := tn.notify(unix.SYS_IOCTL, uint64(c.ctl), 3<<30|48<<16|'F'<<8|nvabi.EscRMAlloc, outer)
	tn.onRead = nil
	if a.Errno != 0 {
		t.Fatal(a)
	}
	if tn.reads[inner] != 1 || tn.reads[outer] != 1 {
		t.Errorf("read the parameters %d times, the argument %d times", tn.reads[inner], tn.reads[outer])
	}
	if d.used(0) != 100*mib || used(m) != 100*mib {
		t.Errorf("driver %d, charged %d", d.used(0), used(m))
	}
	if p := tn.at(outer, 48).u64(16); p != inner {
		t.Errorf("the tenant's pointer became %#x", p)
	}
}

func TestForeignClientIsRefused(t *testing.T) {
	_, d, tn := setUp(t, gib)
	c := tn.context()
	d.mu.Lock()
	foreign := uint32(0xc1d99999)
	d.clients[foreign] = map[uint32]*fakeObject{7: {class: nvgpu.NV01_MEMORY_LOCAL_USER}}
	d.mu.Unlock()
	for _, tc := range []struct {
		name   string
		nr     uint8
		size   int
		off    int // of the client
		status int
		set    func(message)
	}{
		{"control", nvabi.EscRMControl, 32, 0, 28, nil},
		{"free", nvabi.EscRMFree, 16, 0, 12, func(a message) { a.setU32(8, foreign) }},
		{"alloc", nvabi.EscRMAlloc, 48, 0, 40, func(a message) { a.setU32(12, nvgpu.NV01_DEVICE_0) }},
		{"old alloc", nvabi.EscRMAlloc, 32, 0, 28, func(a message) { a.setU32(12, nvgpu.NV01_DEVICE_0) }},
		{"heap", nvabi.EscRMVidHeapControl, 184, 0, 20, func(a message) { a.setU32(8, heapAllocSize) }},
		{"map", nvabi.EscRMMapMemory, 56, 0, 40, nil},
		{"unmap", nvabi.EscRMUnmapMemory, 32, 0, 24, nil},
		{"event", nvabi.EscAllocOSEvent, 16, 0, 12, nil},
		{"memory", nvabi.EscRMAllocMemory, 56, 0, 40, func(a message) { a.setU32(12, nvgpu.NV01_MEMORY_SYSTEM) }},
		{"share", nvabi.EscRMShare, 24, 0, 20, nil},
		{"duplicate to", nvabi.EscRMDupObject, 28, 0, 24, func(a message) { a.setU32(12, c.client) }},
		{"duplicate from", nvabi.EscRMDupObject, 28, 12, 24, func(a message) { a.setU32(0, c.client); a.setU32(16, 7) }},
	} {
		arg := make(message, tc.size)
		arg.setU32(tc.off, foreign)
		if tc.set != nil {
			tc.set(arg)
		}
		before := len(d.calls)
		out, a := tn.ioctl(c.ctl, tc.nr, arg)
		if a.Errno != 0 || out.u32(tc.status) != statusInvalidClient {
			t.Errorf("%s: %+v, status %#x", tc.name, a, out.u32(tc.status))
		}
		if len(d.calls) != before {
			t.Errorf("%s: was executed", tc.name)
		}
	}
	for _, tc := range []struct {
		cmd    uint32
		size   int
		off    int
		status int
	}{
		{nvgpu.UVM_REGISTER_GPU_VASPACE, 32, 20, 28},
		{nvgpu.UVM_REGISTER_CHANNEL, 56, 20, 48},
		{nvgpu.UVM_MAP_EXTERNAL_ALLOCATION, 1200, 1188, 1196},
		{nvgpu.UVM_REGISTER_GPU, 40, 28, 36},
	} {
		arg := make(message, tc.size)
		arg.setU32(tc.off, foreign)
		out, errno := tn.uvmCall(c.uvm, tc.cmd, arg)
		if errno != 0 || out.u32(tc.status) != statusInvalidClient {
			t.Errorf("UVM %d: errno %d, status %#x", tc.cmd, errno, out.u32(tc.status))
		}
	}
	// A device that shares with, or a debugger of, a foreign client.
	params := make(message, 56)
	params.setU32(deviceTargetClient, foreign)
	if _, status := tn.alloc(c.ctl, c.client, c.client, nvgpu.NV01_DEVICE_0, params); status != statusInvalidClient {
		t.Errorf("device: status %#x", status)
	}
	params = make(message, 12)
	params.setU32(debuggerAppClient, foreign)
	if _, status := tn.alloc(c.ctl, c.client, c.device, nvgpu.GT200_DEBUGGER, params); status != statusInvalidClient {
		t.Errorf("debugger: status %#x", status)
	}
}

func TestForeignCardDoesNotExist(t *testing.T) {
	_, d, tn := setUp(t, gib)
	c := tn.context()
	open := func(path string) int {
		return tn.notify(unix.SYS_OPEN, tn.put(append([]byte(path), 0)), unix.O_RDWR).Errno
	}
	for _, path := range []string{
		"/dev/nvidia1", "/dev/nvidia01", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset", "/dev/nvidia-caps/nvidia-cap1",
		"/dev/./nvidia1", "/tmp/../dev/nvidia1", "/dev/nvidia", "/dev/nvidia999999999999", "/dev/nvidia-1",
	} {
		if errno := open(path); errno != int(unix.ENOENT) {
			t.Errorf("%s: errno %d", path, errno)
		}
	}
	device := make(message, 56)
	device.setU32(0, 1)
	if _, status := tn.alloc(c.ctl, c.client, c.client, nvgpu.NV01_DEVICE_0, device); status != statusInvalidArgument {
		t.Errorf("device: status %#x", status)
	}
	if _, a := tn.ioctl(c.ctl, nvabi.EscAttachGPUsToFD, le32(fakeGPUID(0), fakeGPUID(1))); a.Errno != int(unix.EINVAL) {
		t.Errorf("attach to file: %+v", a)
	}
	uuid := make(message, 40)
	copy(uuid, "\x5a\x1d\xbe\xef\x11\x22\x43\x44\x85\x66\x77\x88\x99\x00\x00\x01")
	if out, _ := tn.uvmCall(c.uvm, nvgpu.UVM_REGISTER_GPU, uuid); out.u32(36) != statusInvalidArgument {
		t.Errorf("UVM: status %#x", out.u32(36))
	}
	attach := make(message, 132)
	for i := range maxIDs {
		attach.setU32(4*i, nvgpu.NV0000_CTRL_GPU_INVALID_ID)
	}
	attach.setU32(0, fakeGPUID(0))
	attach.setU32(4, fakeGPUID(1))
	for _, tc := range []struct {
		cmd    uint32
		params message
	}{
		{nvgpu.NV0000_CTRL_CMD_GPU_ATTACH_IDS, attach},
		{nvgpu.NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2, append(le32(fakeGPUID(1)), make([]byte, 28)...)},
		{nvgpu.NV0000_CTRL_CMD_GPU_GET_ID_INFO, append(le32(fakeGPUID(1)), make([]byte, 36)...)},
		{nvgpu.NV0000_CTRL_CMD_GPU_GET_PCI_INFO, append(le32(fakeGPUID(1)), make([]byte, 12)...)},
	} {
		if len(tc.params) != int(tn.m.abi.Controls[tc.cmd].Size) {
			tc.params = append(tc.params, make([]byte, 4096)...)[:tn.m.abi.Controls[tc.cmd].Size]
		}
		delete(d.seen, tc.cmd)
		if _, status := tn.control(c, c.client, tc.cmd, tc.params); status != statusInvalidArgument || d.seen[tc.cmd] != nil {
			t.Errorf("control %#x: status %#x", tc.cmd, status)
		}
	}
}

func TestUnknownAndForbiddenCallsAreRefused(t *testing.T) {
	m, d, tn := setUp(t, gib)
	c := tn.context()
	before := len(d.calls)
	for _, tc := range []struct {
		nr   uint8
		size int
	}{
		{nvabi.EscXferCmd, 16}, {nvabi.EscExportToDMABufFD, 2600}, {nvabi.EscRMAllocObject, 20}, {nvabi.EscStatusCode, 12},
		{nvabi.EscRMI2CAccess, 32}, {nvabi.EscRMAccessRegistry, 72}, {nvabi.EscRMMapMemoryDMA, 56}, {nvabi.EscRMIdleChannels, 56},
		{nvabi.EscSetNUMAStatus, 4}, {nvabi.EscRMControl, 40}, {nvabi.EscRMAlloc, 40}, {nvabi.EscCardInfo, 73}, {250, 8}, {nvabi.EscRMFree, 0},
	} {
		if _, a := tn.ioctl(c.ctl, tc.nr, make([]byte, tc.size)); a.Errno != int(unix.EINVAL) {
			t.Errorf("ioctl %#x of %d bytes: %+v", tc.nr, tc.size, a)
		}
	}
	for _, class := range []uint32{
		nvgpu.NV01_EVENT, nvgpu.NV01_MEMORY_LOCAL_PRIVILEGED, nvgpu.NV_MEMORY_FABRIC, nvgpu.NV_MEMORY_MULTICAST_FABRIC, nvgpu.MPS_COMPUTE,
		nvgpu.NV50_THIRD_PARTY_P2P, nvgpu.NV01_MEMORY_SYSTEM_OS_DESCRIPTOR, nvgpu.GF100_PROFILER, 0x81, 0x82, 0x83, 0xc2, 0xdead,
	} {
		if _, status := tn.alloc(c.ctl, c.client, c.device, class, make([]byte, 256)); status != statusInvalidClass {
			t.Errorf("class %#x: status %#x", class, status)
		}
	}
	for cmd, want := range map[uint32]uint32{
		0x12345678: statusNotSupported, nvgpu.NV2080_CTRL_CMD_GPU_EXEC_REG_OPS: statusNotSupported,
		nvgpu.NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS: statusNotSupported, ctrlRestartRunlist: statusNoPermission,
		nvgpu.NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECT_TO_FD: statusNotSupported, 0x20808999: statusNotSupported,
		nvgpu.NVA06C_CTRL_CMD_SET_TIMESLICE: statusOK, ctrlGroupInterleave: statusOK,
		nvgpu.NV0000_CTRL_CMD_CLIENT_SET_INHERITED_SHARE_POLICY: statusOK,
	} {
		if _, status := tn.control(c, c.subdevice, cmd, make([]byte, 8)); status != want {
			t.Errorf("control %#x: status %#x, want %#x", cmd, status, want)
		}
		if d.seen[cmd] != nil {
			t.Errorf("control %#x was executed", cmd)
		}
	}
	for _, cmd := range []uint32{3, 62, 63, 67, 74, 78, 200, 0x30000003} {
		if _, errno := tn.uvmCall(c.uvm, cmd, make(message, 64)); errno != int(unix.EINVAL) {
			t.Errorf("UVM %d: errno %d", cmd, errno)
		}
	}
	if len(d.calls) != before {
		t.Errorf("executed: %v", d.calls[before:])
	}
	refused := m.Stats().Refused
	for _, name := range []string{"NV_ESC_IOCTL_XFER_CMD", "MPS_COMPUTE", "control 0x12345678", "class 0xdead", "UVM command 200", "UVM_TOOLS_READ_PROCESS_MEMORY"} {
		if refused[name] == 0 {
			t.Errorf("%s is not counted: %v", name, refused)
		}
	}
}

func TestFlagsThatChangeTheParametersAreRefused(t *testing.T) {
	_, d, tn := setUp(t, gib)
	c := tn.context()
	before := len(d.calls)
	for _, set := range []func(message){
		func(a message) { a.setU32(allocFlags, 4) },
		func(a message) { a.setU64(allocRights, memoryBase) },
	} {
		arg := make(message, sizeNVOS64)
		arg.setU32(0, c.client)
		arg.setU32(4, c.device)
		arg.setU32(12, nvgpu.NV20_SUBDEVICE_0)
		set(arg)
		if out, _ := tn.ioctl(c.ctl, nvabi.EscRMAlloc, arg); out.u32(40) != statusInvalidArgument {
			t.Errorf("alloc: status %#x", out.u32(40))
		}
	}
	arg := make(message, 32)
	arg.setU32(0, c.client)
	arg.setU32(controlCmd, nvgpu.NV2080_CTRL_CMD_FB_GET_INFO_V2)
	arg.setU32(controlFlags, 4)
	if out, _ := tn.ioctl(c.ctl, nvabi.EscRMControl, arg); out.u32(28) != statusInvalidArgument {
		t.Errorf("control: status %#x", out.u32(28))
	}
	if len(d.calls) != before {
		t.Errorf("executed: %v", d.calls[before:])
	}
}

func TestForeignFilesAndBadMemory(t *testing.T) {
	_, d, tn := setUp(t, gib)
	c := tn.context()
	tn.fds[3] = &fakeFile{ino: 1 << 40, path: "/data"}
	if _, a := tn.ioctl(3, nvabi.EscRMControl, make([]byte, 32)); a.Errno != int(unix.ENOTTY) || a.Continue {
		t.Errorf("a foreign file: %+v", a)
	}
	if _, a := tn.ioctl(99, nvabi.EscRMControl, make([]byte, 32)); a.Errno != int(unix.EBADF) {
		t.Errorf("no file: %+v", a)
	}
	a := tn.notify(unix.SYS_IOCTL, uint64(c.ctl), 3<<30|32<<16|'F'<<8|nvabi.EscRMControl, 0x10)
	if a.Errno != int(unix.EFAULT) || a.Continue {
		t.Errorf("unreadable argument: %+v", a)
	}
	// Descriptors in arguments must be device files, too.
	for _, fd := range []uint32{3, 99} {
		if _, a := tn.ioctl(c.ctl, nvabi.EscRegisterFD, le32(fd)); a.Errno != int(unix.EINVAL) {
			t.Errorf("register descriptor %d: %+v", fd, a)
		}
	}
	open := d.open()
	for range 3 {
		tn.ioctl(c.ctl, nvabi.EscRegisterFD, le32(uint32(c.uvm)))
		tn.ioctl(3, nvabi.EscRMControl, make([]byte, 32))
	}
	if d.open() != open {
		t.Errorf("%d descriptors leaked", d.open()-open)
	}
}

// Sizes that a tenant chooses are bounded by what the driver takes.
func TestHostileSizes(t *testing.T) {
	_, d, tn := setUp(t, gib)
	c := tn.context()
	for _, tc := range []struct {
		name string
		cmd  uint32
		size uint32
		want uint32
	}{
		{"too small", nvgpu.NV2080_CTRL_CMD_FB_GET_INFO_V2, 4, statusInvalidParameters},
		{"too large", nvgpu.NV2080_CTRL_CMD_FB_GET_INFO_V2, 1 << 20, statusInvalidParameters},
		{"huge", nvgpu.NV2080_CTRL_CMD_FB_GET_INFO_V2, 1<<32 - 1, statusInvalidParameters},
		{"closed and huge", 0x20809009, 1<<32 - 1, statusInvalidParameters},
	} {
		arg := make(message, 32)
		arg.setU32(0, c.client)
		arg.setU32(4, c.subdevice)
		arg.setU32(8, tc.cmd)
		arg.setU64(16, memoryBase)
		arg.setU32(24, tc.size)
		if out, a := tn.ioctl(c.ctl, nvabi.EscRMControl, arg); a.Errno != 0 || out.u32(28) != tc.want {
			t.Errorf("%s: %+v, status %#x", tc.name, a, out.u32(28))
		}
	}
	for _, count := range []uint32{1 << 20, 1 << 29, 1<<32 - 1} {
		params := make(message, 16)
		params.setU32(0, count)
		params.setU64(8, memoryBase)
		if _, status := tn.control(c, c.subdevice, nvgpu.NV2080_CTRL_CMD_FB_GET_INFO, params); status != statusInvalidArgument {
			t.Errorf("a list of %d: status %#x", count, status)
		}
	}
	if d.seen[nvgpu.NV2080_CTRL_CMD_FB_GET_INFO] != nil {
		t.Error("executed")
	}
	// A pointer to nothing, with a count, must not reach the driver as it is.
	params := make(message, 16)
	params.setU32(0, 3)
	params.setU64(8, 0x10)
	addr := tn.put(params)
	arg := make(message, 32)
	arg.setU32(0, c.client)
	arg.setU32(4, c.subdevice)
	arg.setU32(8, nvgpu.NV2080_CTRL_CMD_FB_GET_INFO)
	arg.setU64(16, addr)
	arg.setU32(24, 16)
	if _, a := tn.ioctl(c.ctl, nvabi.EscRMControl, arg); a.Errno != int(unix.EFAULT) {
		t.Errorf("unreadable list: %+v", a)
	}
}

// Only number, size and the low 32 bits of a command count.
func TestTypeAndHighBitsDoNotMatter(t *testing.T) {
	_, _, tn := setUp(t, gib)
	c := tn.context()
	for _, cmd := range []uint64{
		3<<30 | 16<<16 | 'X'<<8 | nvabi.EscXferCmd,
		16<<16 | nvabi.EscXferCmd,
		0xdeadbeef<<32 | 3<<30 | 16<<16 | 'F'<<8 | nvabi.EscXferCmd,
	} {
		if a := tn.notify(unix.SYS_IOCTL, uint64(c.ctl), cmd, tn.put(make([]byte, 16))); a.Errno != int(unix.EINVAL) {
			t.Errorf("%#x: %+v", cmd, a)
		}
	}
}
