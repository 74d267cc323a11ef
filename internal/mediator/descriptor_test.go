package mediator

import (
	"encoding/binary"
	"os"
	"testing"

	"github.com/qgpu-project/qgpu/internal/nvabi"
	"github.com/qgpu-project/qgpu/internal/simgpu"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/nvgpu"
)

func simulated(d *fakeDriver, cfg *Config) { d.swaps, cfg.Simulated = true, true }

// Where the driver replaces the file behind a descriptor, the tenant gets the new one,
// and calls on it work.
func TestReplacedFilesReachTheTenant(t *testing.T) {
	_, d, tn := setUp(t, gib, simulated)
	c := tn.context()
	for _, tc := range []struct {
		name   string
		nr     uint8
		size   int
		off    int
		status int
	}{
		{"mapping", nvabi.EscRMMapMemory, 56, 48, 40},
		{"event", nvabi.EscAllocOSEvent, 16, 8, 12},
	} {
		fd := tn.open("/dev/nvidia0")
		arg := make(message, tc.size)
		arg.setU32(0, c.client)
		arg.setU32(tc.off, uint32(fd))
		open := d.open()
		out := tn.must(c.ctl, tc.nr, arg, tc.status)
		if out.u32(tc.off) != uint32(fd) {
			t.Errorf("%s: the tenant's descriptor number became %d", tc.name, out.u32(tc.off))
		}
		if f := tn.replaced[fd]; f == nil || f.ino != tn.swapped {
			t.Errorf("%s: the tenant holds %+v", tc.name, f)
		}
		if d.open() != open {
			t.Errorf("%s: %d descriptors leaked", tc.name, d.open()-open)
		}
		// The new file is a device file, too.
		if _, a := tn.ioctl(fd, nvabi.EscNUMAInfo, make([]byte, 560)); a.Errno != 0 {
			t.Errorf("%s: a call on the new file: %+v", tc.name, a)
		}
	}
}

func TestKernelDriverReplacesNothing(t *testing.T) {
	_, _, tn := setUp(t, gib)
	c := tn.context()
	fd := tn.open("/dev/nvidia0")
	arg := make(message, 56)
	arg.setU32(0, c.client)
	arg.setU32(48, uint32(fd))
	tn.must(c.ctl, nvabi.EscRMMapMemory, arg, 40)
	if len(tn.replaced) != 0 {
		t.Errorf("replaced %v", tn.replaced)
	}
}

func TestEventDescriptorIsTranslated(t *testing.T) {
	_, _, tn := setUp(t, gib)
	c := tn.context()
	params := make(message, 24)
	params.setU32(eventClient, c.client)
	params.setU32(eventClass, nvgpu.NV01_EVENT_OS_EVENT)
	params.setU64(16, uint64(c.ctl))
	addr := tn.put(params)
	arg := make(message, sizeNVOS64)
	arg.setU32(0, c.client)
	arg.setU32(4, c.subdevice)
	arg.setU32(12, nvgpu.NV01_EVENT_OS_EVENT)
	arg.setU64(16, addr)
	tn.must(c.ctl, nvabi.EscRMAlloc, arg, 40)
	if got := tn.at(addr, 24).u64(16); got != uint64(c.ctl) {
		t.Errorf("the tenant's descriptor number became %d", got)
	}
	tn.at(addr, 24).setU64(16, 99)
	if out, _ := tn.ioctl(c.ctl, nvabi.EscRMAlloc, arg); out.u32(40) != statusInvalidArgument {
		t.Errorf("no descriptor: status %#x", out.u32(40))
	}
}

func TestPinnedMemory(t *testing.T) {
	arg := func(c context) message {
		a := make(message, 56)
		a.setU32(0, c.client)
		a.setU32(4, c.device)
		a.setU32(8, 0x77)
		a.setU32(12, nvgpu.NV01_MEMORY_SYSTEM_OS_DESCRIPTOR)
		a.setU64(24, 0x7fff_0000)
		a.setU32(48, 0xffffffff)
		return a
	}
	_, _, tn := setUp(t, gib)
	c := tn.context()
	fd := tn.open("/dev/nvidia0")
	if _, a := tn.ioctl(fd, nvabi.EscRMAllocMemory, arg(c)); !a.Continue {
		t.Errorf("on the kernel's driver: %+v", a)
	}
	other := arg(c)
	other.setU32(12, nvgpu.NV01_MEMORY_LOCAL_USER)
	if out, a := tn.ioctl(fd, nvabi.EscRMAllocMemory, other); a.Continue || out.u32(40) != statusInvalidClass {
		t.Errorf("another class: %+v, status %#x", a, out.u32(40))
	}

	_, d, tn := setUp(t, gib, simulated)
	c = tn.context()
	fd = tn.open("/dev/nvidia0")
	if _, a := tn.ioctl(fd, nvabi.EscRMAllocMemory, arg(c)); a.Errno != 0 || a.Continue {
		t.Errorf("on the simulated driver: %+v", a)
	}
	if got := message(d.pinned); len(got) != 60 || got.u32(56) != uint32(tn.pid) || got.u64(24) != 0x7fff_0000 {
		t.Errorf("the driver was told %x", d.pinned)
	}
}

// The simulated driver is not known to the mediator; its one ioctl must be the same.
func TestPinForIsTheSimulatedDrivers(t *testing.T) {
	if uint8(ioctlPinFor&0xff) != simgpu.IoctlPinFor || pinForSize != binary.Size(simgpu.PinFor{}) {
		t.Errorf("ioctl %#x of %d bytes, the driver's is %#x of %d", ioctlPinFor&0xff, pinForSize, simgpu.IoctlPinFor, binary.Size(simgpu.PinFor{}))
	}
}

// The identity of the mediator's own files by the kernel.
func TestStat(t *testing.T) {
	var k Kernel
	null, err := k.Open("/dev/null", unix.O_RDWR)
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close(null)
	if s, err := k.Stat(null); err != nil || !s.Character || s.Rdev != unix.Mkdev(1, 3) {
		t.Errorf("/dev/null: %+v, %v", s, err)
	}
	var events []Stat
	for range 2 {
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		dup, err := unix.Dup(fd)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(dup)
		s, err := k.Stat(fd)
		if err != nil {
			t.Fatal(err)
		}
		if d, _ := k.Stat(dup); d != s {
			t.Errorf("a duplicate is %+v, not %+v", d, s)
		}
		events = append(events, s)
	}
	if events[0] == events[1] {
		t.Errorf("two eventfds are both %+v", events[0])
	}
	if _, err := k.Stat(-1); err == nil {
		t.Error("no descriptor: no error")
	}
}

func TestFilesAreForgottenByAgeOnly(t *testing.T) {
	var f files
	keep := Stat{Dev: 1, Ino: 1 << 50}
	f.add(keep, deviceFile{kind: cardFile, card: 3})
	for i := range uint64(4 * maxFiles) {
		f.add(Stat{Dev: 1, Ino: i}, deviceFile{kind: controlFile})
		if i%1000 == 0 {
			if d, ok := f.find(keep); !ok || d.card != 3 {
				t.Fatalf("a file in use was forgotten after %d others", i)
			}
		}
	}
	if _, ok := f.find(Stat{Dev: 1, Ino: 0}); ok {
		t.Error("the oldest file is still known")
	}
	if n := len(f.young) + len(f.old); n > maxFiles {
		t.Errorf("%d files are remembered", n)
	}
}

func TestParseMapping(t *testing.T) {
	for _, tc := range []struct {
		line string
		want Mapping
		ok   bool
	}{
		{"7f0000000000-7f0000200000 rw-s 7f0000000000 00:06 1234                       /dev/nvidia-uvm", Mapping{0x7f0000000000, 0x7f0000200000, unix.Mkdev(0, 6), 1234}, true},
		{"00400000-00401000 r-xp 00000000 fe:01 7 /bin/true", Mapping{0x400000, 0x401000, unix.Mkdev(0xfe, 1), 7}, true},
		{"7ffc0000-7ffc1000 rw-p 00000000 00:00 0 [stack]", Mapping{0x7ffc0000, 0x7ffc1000, 0, 0}, true},
		{"", Mapping{}, false},
		{"x-y rw-s 0 00:06 12", Mapping{}, false},
		{"10-08 rw-s 0 00:06 12", Mapping{}, false},
		{"10 rw-s 0 00:06 12", Mapping{}, false},
		{"10-20 rw-s 0 06 12", Mapping{}, false},
	} {
		got, ok := parseMapping(tc.line)
		if ok != tc.ok || ok && got != tc.want {
			t.Errorf("%q: %+v, %v", tc.line, got, ok)
		}
	}
}

// What the kernel says of this very process.
func TestProcFS(t *testing.T) {
	p := newProcFS()
	self := os.Getpid()
	ids, err := p.NamespaceIDs(self)
	if err != nil || len(ids) == 0 || ids[0] != self {
		t.Errorf("ids %v, %v", ids, err)
	}
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(pageSize); err != nil {
		t.Fatal(err)
	}
	b, err := unix.Mmap(int(f.Fd()), 0, pageSize, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(b)
	s, err := Kernel{}.Stat(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	maps, err := p.Maps(self)
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, m := range maps {
		found = found || m.Ino == s.Ino && m.First == message(b).address()
	}
	if !found {
		t.Errorf("inode %d is not among %d mappings", s.Ino, len(maps))
	}
	wd, _ := os.Getwd()
	if dir, err := p.Directory(self, unix.AT_FDCWD); err != nil || dir != wd {
		t.Errorf("directory %s, %v", dir, err)
	}
	if dir, err := p.Directory(self, int32(f.Fd())); err != nil || dir != f.Name() {
		t.Errorf("file %s, %v", dir, err)
	}
	child, err := os.StartProcess("/bin/sleep", []string{"sleep", "60"}, &os.ProcAttr{})
	if err != nil {
		t.Fatal(err)
	}
	gone := make(chan struct{})
	if err := p.Watch(child.Pid, func() { close(gone) }); err != nil {
		t.Fatal(err)
	}
	if name := p.Name(child.Pid); name != "sleep" && name != "coreutils" {
		t.Errorf("name %q", name)
	}
	select {
	case <-gone:
		t.Error("a living process is gone")
	default:
	}
	if err := child.Kill(); err != nil {
		t.Fatal(err)
	}
	<-gone
	if _, err := child.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := p.Watch(child.Pid, func() {}); err == nil {
		t.Error("a process that is no more is watched")
	}
}
