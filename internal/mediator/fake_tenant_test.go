package mediator

import (
	"sync"
	"testing"

	"github.com/qgpu-project/qgpu/internal/nvabi"
	"github.com/qgpu-project/qgpu/internal/seccomp"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/nvgpu"
)

// fakeTenant is a process of the tenant: its memory and descriptors.
type fakeTenant struct {
	t      testing.TB
	m      *Mediator
	d      *fakeDriver
	procs  *fakeProcesses
	pid    int
	thread int

	mu       sync.Mutex
	memory   []byte
	reads    map[uint64]int
	onRead   func(addr uint64)
	fds      map[int32]*fakeFile
	nextFD   int32
	swapped  uint64
	replaced map[int32]*fakeFile
	id       uint64
	answers  map[uint64]*fakeCall
}

const memoryBase = 0x10000

func newTenant(t testing.TB, m *Mediator, d *fakeDriver, procs *fakeProcesses, pid int) *fakeTenant {
	tn := &fakeTenant{
		t: t, m: m, d: d, procs: procs, pid: pid, thread: pid,
		reads: make(map[uint64]int), fds: make(map[int32]*fakeFile), nextFD: 10,
		replaced: make(map[int32]*fakeFile), answers: make(map[uint64]*fakeCall),
	}
	d.tenant = tn
	procs.start(pid)
	return tn
}

// put copies b to fresh memory and returns its address.
func (t *fakeTenant) put(b []byte) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	addr := memoryBase + uint64(len(t.memory))
	t.memory = append(t.memory, b...)
	for len(t.memory)%16 != 0 {
		t.memory = append(t.memory, 0)
	}
	return addr
}

func (t *fakeTenant) at(addr uint64, n int) message {
	return t.memory[addr-memoryBase : addr-memoryBase+uint64(n)]
}

func (t *fakeTenant) within(addr uint64, n int) bool {
	return addr >= memoryBase && addr-memoryBase <= uint64(len(t.memory)) && uint64(n) <= uint64(len(t.memory))-(addr-memoryBase)
}

// fakeCall is a notification.
type fakeCall struct {
	*fakeTenant
	id   uint64
	tid  int
	nr   int
	args [6]uint64
}

func (c *fakeCall) ID() uint64            { return c.id }
func (c *fakeCall) Thread() int           { return c.tid }
func (c *fakeCall) Process() (int, error) { return c.pid, nil }
func (c *fakeCall) Nr() int               { return c.nr }
func (c *fakeCall) Arg(i int) uint64      { return c.args[i] }

func (c *fakeCall) ReadMemory(p []byte, addr uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reads[addr]++
	if !c.within(addr, len(p)) {
		return unix.EFAULT
	}
	copy(p, c.at(addr, len(p)))
	if c.onRead != nil {
		c.onRead(addr)
	}
	return nil
}

func (c *fakeCall) WriteMemory(p []byte, addr uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.within(addr, len(p)) {
		return unix.EFAULT
	}
	copy(c.at(addr, len(p)), p)
	return nil
}

func (c *fakeCall) ReadString(addr uint64, max int) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.within(addr, 1) {
		return "", unix.EFAULT
	}
	b := c.memory[addr-memoryBase:]
	for i, x := range b[:min(len(b), max)] {
		if x == 0 {
			return string(b[:i]), nil
		}
	}
	return "", unix.ENAMETOOLONG
}

func (c *fakeCall) Dup(fd int32) (int, error) {
	c.mu.Lock()
	f, ok := c.fds[fd]
	c.mu.Unlock()
	if !ok {
		return 0, unix.EBADF
	}
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	return c.d.install(f), nil
}

func (c *fakeCall) Replace(fd int, target int32, cloexec bool) error {
	c.d.mu.Lock()
	f := c.d.fds[fd]
	c.d.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if f == nil {
		return unix.EBADF
	}
	c.fds[target], c.replaced[target] = f, f
	return nil
}

// notify makes a call and returns its answer.
func (t *fakeTenant) notify(nr int, args ...uint64) seccomp.Answer {
	t.mu.Lock()
	t.id++
	c := &fakeCall{fakeTenant: t, id: uint64(t.pid)<<32 | t.id, tid: t.thread, nr: nr}
	t.mu.Unlock()
	copy(c.args[:], args)
	a := t.m.Handle(c)
	if a.Inject != 0 {
		t.d.mu.Lock()
		f := t.d.fds[a.Inject]
		t.d.mu.Unlock()
		t.mu.Lock()
		t.nextFD++
		t.fds[t.nextFD] = f
		a.Value = int64(t.nextFD)
		t.mu.Unlock()
		if err := a.Release.Close(); err != nil {
			t.t.Errorf("release: %v", err)
		}
	}
	return a
}

// open opens a device file, or fails the test.
func (t *fakeTenant) open(path string) int32 {
	t.t.Helper()
	a := t.notify(unix.SYS_OPENAT, uint64(0xffffff9c), t.put(append([]byte(path), 0)), unix.O_RDWR|unix.O_CLOEXEC)
	if a.Errno != 0 || a.Inject == 0 {
		t.t.Fatalf("open %s: %+v", path, a)
	}
	return int32(a.Value)
}

// ioctl makes an ioctl of a number with arg and returns the argument afterwards.
func (t *fakeTenant) ioctl(fd int32, nr uint8, arg []byte) (message, seccomp.Answer) {
	t.t.Helper()
	addr := t.put(arg)
	a := t.notify(unix.SYS_IOCTL, uint64(uint32(fd)), uint64(3<<30|uint32(len(arg))<<16|'F'<<8|uint32(nr)), addr)
	return t.at(addr, len(arg)), a
}

// must is ioctl for a call that is to succeed; status is where the status lies.
func (t *fakeTenant) must(fd int32, nr uint8, arg message, status int) message {
	t.t.Helper()
	out, a := t.ioctl(fd, nr, arg)
	if a.Errno != 0 || a.Continue {
		t.t.Fatalf("ioctl %#x: %+v", nr, a)
	}
	if status >= 0 && out.u32(status) != 0 {
		t.t.Fatalf("ioctl %#x: status %#x", nr, out.u32(status))
	}
	return out
}

// alloc makes an RM object and returns its handle and the status.
func (t *fakeTenant) alloc(fd int32, client, parent, class uint32, params []byte) (handle, status uint32) {
	t.t.Helper()
	arg := make(message, sizeNVOS64)
	arg.setU32(0, client)
	arg.setU32(4, parent)
	arg.setU32(12, class)
	if params != nil {
		arg.setU64(16, t.put(params))
	}
	out, a := t.ioctl(fd, nvabi.EscRMAlloc, arg)
	if a.Errno != 0 {
		t.t.Fatalf("alloc of class %#x: %+v", class, a)
	}
	return out.u32(8), out.u32(40)
}

// context is a client with a device, a subdevice and a channel.
type context struct {
	ctl, uvm                            int32
	client, device, subdevice, channels uint32
}

func (t *fakeTenant) context() context {
	t.t.Helper()
	c := context{ctl: t.open("/dev/nvidiactl"), uvm: t.open("/dev/nvidia-uvm")}
	var status uint32
	check := func() {
		t.t.Helper()
		if status != 0 {
			t.t.Fatalf("context: status %#x", status)
		}
	}
	c.client, status = t.alloc(c.ctl, 0, 0, nvgpu.NV01_ROOT, nil)
	check()
	c.device, status = t.alloc(c.ctl, c.client, c.client, nvgpu.NV01_DEVICE_0, make([]byte, 56))
	check()
	c.subdevice, status = t.alloc(c.ctl, c.client, c.device, nvgpu.NV20_SUBDEVICE_0, make([]byte, 4))
	check()
	c.channels, status = t.alloc(c.ctl, c.client, c.device, nvgpu.TURING_CHANNEL_GPFIFO_A, make([]byte, 360))
	check()
	return c
}

// memory allocates video memory through RM_ALLOC.
func (t *fakeTenant) vidmem(c context, size uint64) (handle, status uint32) {
	t.t.Helper()
	params := make(message, 120)
	params.setU64(memorySize, size)
	return t.alloc(c.ctl, c.client, c.device, nvgpu.NV01_MEMORY_LOCAL_USER, params)
}

// heapMemory allocates video memory through VID_HEAP_CONTROL.
func (t *fakeTenant) heapMemory(c context, size uint64) (handle, status uint32) {
	t.t.Helper()
	arg := make(message, 184)
	arg.setU32(0, c.client)
	arg.setU32(heapParent, c.device)
	arg.setU32(heapFunction, heapAllocSize)
	arg.setU64(heapSize, size)
	out, a := t.ioctl(c.ctl, nvabi.EscRMVidHeapControl, arg)
	if a.Errno != 0 {
		t.t.Fatalf("heap: %+v", a)
	}
	return out.u32(heapHandle), out.u32(20)
}

func (t *fakeTenant) free(c context, handle uint32) {
	t.t.Helper()
	arg := make(message, 16)
	arg.setU32(0, c.client)
	arg.setU32(8, handle)
	t.must(c.ctl, nvabi.EscRMFree, arg, 12)
}

// control calls an RM control and returns parameters and status.
func (t *fakeTenant) control(c context, object, cmd uint32, params []byte) (message, uint32) {
	t.t.Helper()
	addr := t.put(params)
	arg := make(message, 32)
	arg.setU32(0, c.client)
	arg.setU32(4, object)
	arg.setU32(8, cmd)
	arg.setU64(16, addr)
	arg.setU32(24, uint32(len(params)))
	out, a := t.ioctl(c.ctl, nvabi.EscRMControl, arg)
	if a.Errno != 0 {
		t.t.Fatalf("control %#x: %+v", cmd, a)
	}
	if out.u64(16) != addr {
		t.t.Errorf("control %#x: the tenant's pointer became %#x", cmd, out.u64(16))
	}
	return t.at(addr, len(params)), out.u32(28)
}
