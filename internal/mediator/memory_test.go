package mediator

import (
	"testing"

	"github.com/qgpu-project/qgpu/internal/nvabi"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/nvgpu"
)

// paths are the ways to take video memory.
var paths = map[string]func(*fakeTenant, context, uint64) (uint32, uint32){
	"RM_ALLOC":         (*fakeTenant).vidmem,
	"VID_HEAP_CONTROL": (*fakeTenant).heapMemory,
}

func TestQuotaHoldsOnEveryPath(t *testing.T) {
	for name, alloc := range paths {
		t.Run(name, func(t *testing.T) {
			m, d, tn := setUp(t, 1*gib)
			c := tn.context()
			h, status := alloc(tn, c, 600*mib)
			if status != 0 || used(m) != 600*mib {
				t.Fatalf("within the quota: status %#x, used %d", status, used(m))
			}
			calls := len(d.calls)
			if _, status := alloc(tn, c, 500*mib); status != statusNoMemory {
				t.Errorf("over the quota: status %#x", status)
			}
			// Comparing with the driver may ask it, but nothing was allocated.
			if d.used(0) != 600*mib {
				t.Errorf("the driver holds %d after a refusal, %d calls", d.used(0), len(d.calls)-calls)
			}
			if _, status := alloc(tn, c, 424*mib); status != 0 || used(m) != gib {
				t.Errorf("up to the quota: status %#x, used %d", status, used(m))
			}
			tn.free(c, h)
			if used(m) != 424*mib {
				t.Errorf("after freeing: used %d", used(m))
			}
			tn.free(c, c.device)
			if used(m) != 0 {
				t.Errorf("after freeing the device: used %d", used(m))
			}
		})
	}
}

func TestRefusedByDriverIsNotCharged(t *testing.T) {
	for name, alloc := range paths {
		t.Run(name, func(t *testing.T) {
			m, d, tn := setUp(t, gib)
			c := tn.context()
			d.failAlloc = 0x1a
			if _, status := alloc(tn, c, 100*mib); status != 0x1a || used(m) != 0 {
				t.Errorf("status %#x, used %d", status, used(m))
			}
		})
	}
}

func TestRoundingBeyondQuotaIsGivenBack(t *testing.T) {
	for name, alloc := range paths {
		t.Run(name, func(t *testing.T) {
			m, d, tn := setUp(t, 3*mib)
			d.round = 2 * mib
			c := tn.context()
			if _, status := alloc(tn, c, 1*mib); status != 0 || used(m) != 2*mib {
				t.Fatalf("first: status %#x, used %d", status, used(m))
			}
			if _, status := alloc(tn, c, 1*mib); status != statusNoMemory {
				t.Errorf("status %#x", status)
			}
			if used(m) != 2*mib || d.used(0) != 2*mib {
				t.Errorf("used %d, driver %d", used(m), d.used(0))
			}
		})
	}
}

// Pages of 512 MiB must not be had for the price of a byte.
func TestHugeRoundingIsCharged(t *testing.T) {
	for name, alloc := range paths {
		t.Run(name, func(t *testing.T) {
			m, d, tn := setUp(t, gib)
			d.round = 512 * mib
			c := tn.context()
			for i, want := range []uint32{0, 0, statusNoMemory} {
				if _, status := alloc(tn, c, 1); status != want {
					t.Errorf("allocation %d: status %#x", i, status)
				}
			}
			if used(m) != gib || d.used(0) != gib {
				t.Errorf("used %d, driver %d", used(m), d.used(0))
			}
		})
	}
}

func TestHostAndVirtualMemoryIsNotCharged(t *testing.T) {
	m, _, tn := setUp(t, gib)
	c := tn.context()
	for _, set := range []func(message){
		func(a message) { a.setU32(heapFlags, flagVirtual) },
		func(a message) { a.setU32(heapAttr, locationHost<<locationAt) },
	} {
		arg := make(message, 184)
		arg.setU32(0, c.client)
		arg.setU32(heapParent, c.device)
		arg.setU32(heapFunction, heapAllocSize)
		arg.setU64(heapSize, 8*gib)
		set(arg)
		tn.must(c.ctl, nvabi.EscRMVidHeapControl, arg, 20)
	}
	if used(m) != 0 {
		t.Errorf("used %d", used(m))
	}
}

func TestDuplicateKeepsMemory(t *testing.T) {
	m, _, tn := setUp(t, gib)
	a, b := tn.context(), tn.context()
	h, _ := tn.vidmem(a, 100*mib)
	arg := make(message, 28)
	arg.setU32(0, b.client)
	arg.setU32(4, b.device)
	arg.setU32(dupClientSrc, a.client)
	arg.setU32(dupObjectSrc, h)
	dup := tn.must(b.ctl, nvabi.EscRMDupObject, arg, 24).u32(dupObject)
	if used(m) != 100*mib {
		t.Errorf("with a duplicate: used %d", used(m))
	}
	tn.free(a, a.client)
	if used(m) != 100*mib {
		t.Errorf("after the original's client: used %d", used(m))
	}
	tn.free(b, dup)
	if used(m) != 0 {
		t.Errorf("after the duplicate: used %d", used(m))
	}
}

// uvmCall makes a UVM call with an argument.
func (t *fakeTenant) uvmCall(fd int32, cmd uint32, arg message) (message, int) {
	t.t.Helper()
	addr := t.put(arg)
	a := t.notify(unix.SYS_IOCTL, uint64(fd), uint64(cmd), addr)
	return t.at(addr, len(arg)), a.Errno
}

func TestMappingInUVMKeepsMemory(t *testing.T) {
	m, _, tn := setUp(t, gib)
	c := tn.context()
	h, _ := tn.vidmem(c, 100*mib)
	r := make(message, 24)
	r.setU64(0, 0x7f00_0000_0000)
	r.setU64(8, 100*mib)
	if _, errno := tn.uvmCall(c.uvm, nvgpu.UVM_CREATE_EXTERNAL_RANGE, r); errno != 0 {
		t.Fatal(errno)
	}
	arg := make(message, 1200)
	copy(arg, r[:16])
	arg.setU32(1184, uint32(c.ctl))
	arg.setU32(1188, c.client)
	arg.setU32(1192, h)
	out, errno := tn.uvmCall(c.uvm, nvgpu.UVM_MAP_EXTERNAL_ALLOCATION, arg)
	if errno != 0 || out.u32(1196) != 0 || out.u32(1184) != uint32(c.ctl) {
		t.Fatalf("map: errno %d, status %#x, descriptor %d", errno, out.u32(1196), out.u32(1184))
	}
	tn.free(c, h)
	if used(m) != 100*mib {
		t.Errorf("while UVM maps it: used %d", used(m))
	}
	if _, errno := tn.uvmCall(c.uvm, nvgpu.UVM_FREE, r); errno != 0 {
		t.Fatal(errno)
	}
	if used(m) != 0 {
		t.Errorf("after UVM freed it: used %d", used(m))
	}
}

// mapped makes a mapping of an allocation in UVM.
func (t *fakeTenant) mapped(c context, base, size uint64) (handle uint32) {
	t.t.Helper()
	handle, status := t.vidmem(c, size)
	if status != 0 {
		t.t.Fatalf("status %#x", status)
	}
	r := make(message, 24)
	r.setU64(0, base)
	r.setU64(8, size)
	t.uvmCall(c.uvm, nvgpu.UVM_CREATE_EXTERNAL_RANGE, r)
	arg := make(message, 1200)
	copy(arg, r[:16])
	arg.setU32(1184, uint32(c.ctl))
	arg.setU32(1188, c.client)
	arg.setU32(1192, handle)
	if out, errno := t.uvmCall(c.uvm, nvgpu.UVM_MAP_EXTERNAL_ALLOCATION, arg); errno != 0 || out.u32(1196) != 0 {
		t.t.Fatalf("map: errno %d, status %#x", errno, out.u32(1196))
	}
	return handle
}

// A process leaves its UVM file with another one and ends. What it mapped is freed by the
// mediator, since no call would tell when the file is closed.
func TestMappingsEndWithTheirProcess(t *testing.T) {
	m, d, tn := setUp(t, gib)
	c := tn.context()
	open := d.open()
	h := tn.mapped(c, 0x7f00_0000_0000, 100*mib)
	tn.mapped(c, 0x7f10_0000_0000, 100*mib)
	if n := d.open() - open; n != 1 {
		t.Errorf("the mediator holds %d descriptors of one file", n)
	}
	tn.free(c, h)
	delete(d.uvmSeen, nvgpu.UVM_FREE)
	calls := len(d.calls)
	tn.procs.end(tn.pid)
	freed := 0
	for _, name := range d.calls[calls:] {
		if name == "UVM_FREE" {
			freed++
		}
	}
	if freed != 2 {
		t.Errorf("freed %d ranges", freed)
	}
	if used(m) != 100*mib { // the client lives on
		t.Errorf("used %d", used(m))
	}
	if d.open() != open {
		t.Errorf("%d descriptors are left", d.open()-open)
	}
}

// After exec the mediator must not be the one that keeps the old address space.
func TestClosedUVMFilesAreReleased(t *testing.T) {
	m, d, tn := setUp(t, gib)
	c := tn.context()
	tn.free(c, tn.mapped(c, 0x7f00_0000_0000, 100*mib))
	tn.open("/dev/nvidia-uvm") // one more, with the old ones open
	if used(m) != 100*mib {
		t.Errorf("with the file open: used %d", used(m))
	}
	open := d.open()
	tn.procs.closed[tn.pid] = true
	tn.open("/dev/nvidia-uvm")
	if used(m) != 0 || d.open() != open-1 {
		t.Errorf("used %d, %d descriptors more", used(m), d.open()-open)
	}
}

// A process that ends during its call leaves nothing behind.
func TestProcessEndsDuringItsCall(t *testing.T) {
	m, d, tn := setUp(t, gib)
	c := tn.context()
	d.onExecute = func() {
		d.onExecute = nil
		tn.procs.end(tn.pid)
	}
	tn.ioctl(c.ctl, nvabi.EscRMAlloc, make(message, sizeNVOS64)) // a client
	for _, cl := range m.ledger.clients {
		if !cl.orphaned {
			t.Errorf("client %#x is not orphaned", cl.handle)
		}
	}
	if len(m.ledger.spaces) != 0 {
		t.Errorf("address spaces are left: %v", m.ledger.spaces)
	}
}

func TestEndOfProcessGivesBack(t *testing.T) {
	m, d, tn := setUp(t, gib)
	c := tn.context()
	tn.vidmem(c, 300*mib)
	other := newTenant(t, m, d, tn.procs, 1001)
	oc := other.context()
	other.vidmem(oc, 200*mib)

	// The file is closed and the driver forgets the client, unseen.
	d.mu.Lock()
	delete(d.clients, c.client)
	d.mu.Unlock()
	tn.procs.end(tn.pid)
	if used(m) != 200*mib {
		t.Errorf("used %d", used(m))
	}
	if m.ledger.hasClient(c.client) || !m.ledger.hasClient(oc.client) {
		t.Error("the wrong client is gone")
	}
}

// A client outlives its process if another one holds its file.
func TestInheritedFileKeepsMemory(t *testing.T) {
	m, _, tn := setUp(t, gib)
	c := tn.context()
	tn.vidmem(c, 300*mib)
	tn.procs.end(tn.pid)
	if used(m) != 300*mib || !m.ledger.hasClient(c.client) {
		t.Errorf("used %d, client known: %v", used(m), m.ledger.hasClient(c.client))
	}
}

// A file closed without freeing is noticed when memory runs short.
func TestClosedFileIsNoticedBeforeRefusing(t *testing.T) {
	m, d, tn := setUp(t, gib)
	c := tn.context()
	tn.vidmem(c, 900*mib)
	tn.procs.end(tn.pid) // but the driver still has the client
	d.mu.Lock()
	delete(d.clients, c.client)
	d.mu.Unlock()
	other := newTenant(t, m, d, tn.procs, 1001)
	oc := other.context()
	if _, status := other.vidmem(oc, 800*mib); status != 0 || used(m) != 800*mib {
		t.Errorf("status %#x, used %d", status, used(m))
	}
}

func (t *fakeTenant) mmap(fd int32, addr, length, offset uint64, flags uint64) (errno int, cont bool) {
	a := t.notify(unix.SYS_MMAP, addr, length, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|flags, uint64(fd), offset)
	return a.Errno, a.Continue
}

func TestManagedMemory(t *testing.T) {
	m, d, tn := setUp(t, gib)
	c := tn.context()
	const base = 0x7f00_0000_0000
	if errno, cont := tn.mmap(c.uvm, base, 600*mib, base, unix.MAP_FIXED); errno != 0 || !cont {
		t.Fatalf("errno %d, continued %v", errno, cont)
	}
	if used(m) != 600*mib {
		t.Errorf("used %d", used(m))
	}
	// Mapping over the same range is not charged again.
	tn.mmap(c.uvm, base+100*mib, 100*mib, base+100*mib, unix.MAP_FIXED)
	if used(m) != 600*mib {
		t.Errorf("mapped twice: used %d", used(m))
	}
	ino := d.fdsByPath("/dev/nvidia-uvm", tn)
	tn.procs.maps[tn.pid] = []Mapping{{base, base + 600*mib, 9, ino}}
	if errno, _ := tn.mmap(c.uvm, base+gib, 600*mib, base+gib, unix.MAP_FIXED); errno != int(unix.ENOMEM) {
		t.Errorf("over the quota: errno %d", errno)
	}
	if _, status := tn.vidmem(c, 600*mib); status != statusNoMemory {
		t.Errorf("other memory over the quota: status %#x", status)
	}
	// Unmapping is not notified, but noticed when memory runs short.
	tn.procs.maps[tn.pid] = nil
	if errno, cont := tn.mmap(c.uvm, base+gib, 600*mib, base+gib, unix.MAP_FIXED); errno != 0 || !cont {
		t.Errorf("after unmapping: errno %d", errno)
	}
	if used(m) != 600*mib {
		t.Errorf("used %d", used(m))
	}
	tn.procs.end(tn.pid)
	if used(m) != 0 {
		t.Errorf("after the end: used %d", used(m))
	}
}

// A mapping that another thread is just making must not be taken for unmapped.
func TestManagedMappingUnderWayStaysCharged(t *testing.T) {
	m, _, tn := setUp(t, gib)
	c := tn.context()
	tn.thread = 2000
	tn.mmap(c.uvm, 0x7f00_0000_0000, 600*mib, 0x7f00_0000_0000, unix.MAP_FIXED)
	tn.thread = 2001
	if _, status := tn.vidmem(c, 600*mib); status != statusNoMemory {
		t.Errorf("status %#x", status)
	}
	if used(m) != 600*mib {
		t.Errorf("used %d", used(m))
	}
}

func TestSemaphorePoolIsNotCharged(t *testing.T) {
	m, _, tn := setUp(t, gib)
	c := tn.context()
	arg := make(message, 1184)
	arg.setU64(0, 0x7f00_0000_0000)
	arg.setU64(8, 2*mib)
	if _, errno := tn.uvmCall(c.uvm, nvgpu.UVM_ALLOC_SEMAPHORE_POOL, arg); errno != 0 {
		t.Fatal(errno)
	}
	if _, cont := tn.mmap(c.uvm, 0x7f00_0000_0000, 2*mib, 0x7f00_0000_0000, unix.MAP_FIXED); !cont || used(m) != 0 {
		t.Errorf("continued %v, used %d", cont, used(m))
	}
	free := make(message, 24)
	copy(free, arg[:16])
	tn.uvmCall(c.uvm, nvgpu.UVM_FREE, free)
	tn.mmap(c.uvm, 0x7f00_0000_0000, 2*mib, 0x7f00_0000_0000, unix.MAP_FIXED)
	if used(m) != 2*mib {
		t.Errorf("managed memory in the pool's place: used %d", used(m))
	}
}

func TestMappingOfOtherFile(t *testing.T) {
	_, _, tn := setUp(t, gib)
	tn.fds[3] = &fakeFile{ino: 1 << 40, path: "/data"}
	const high = 0x7f00_0000_0000
	for _, tc := range []struct {
		name               string
		addr, offset, flag uint64
		refused            bool
	}{
		{"ordinary", 0, 1 << 20, 0, false},
		{"wish elsewhere", high, 1 << 20, 0, false},
		{"fixed elsewhere, high offset", high, high + 4096, unix.MAP_FIXED, false},
		{"at its offset", 1 << 20, 1 << 20, 0, true},
		{"wish rounds to its offset", 1<<20 - 1, 1 << 20, 0, true},
		{"fixed at its offset", high, high, unix.MAP_FIXED, true},
		{"high offset, anywhere", 0, high, 0, true},
		{"low addresses", 0, 1 << 20, map32Bit, true},
	} {
		errno, cont := tn.mmap(3, tc.addr, 4096, tc.offset, tc.flag)
		if refused := errno == int(unix.EINVAL) && !cont; refused != tc.refused {
			t.Errorf("%s: errno %d, continued %v", tc.name, errno, cont)
		}
	}
	if errno, _ := tn.mmap(77, 0, 4096, 1<<20, 0); errno != int(unix.EBADF) {
		t.Errorf("no descriptor: errno %d", errno)
	}
}

// fdsByPath is the inode of a tenant's file.
func (d *fakeDriver) fdsByPath(path string, tn *fakeTenant) uint64 {
	for _, f := range tn.fds {
		if f.path == path {
			return f.ino
		}
	}
	return 0
}
