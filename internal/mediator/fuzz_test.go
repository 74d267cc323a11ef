package mediator

import (
	"testing"

	"github.com/qgpu-project/qgpu/internal/nvabi"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/nvgpu"
)

// consistent fails if a call left the ledger or the descriptors in disorder.
func consistent(t *testing.T, m *Mediator, d *fakeDriver, open int) {
	t.Helper()
	quota, used := m.ledger.balance(0)
	if used > quota {
		t.Fatalf("used %d of %d", used, quota)
	}
	m.ledger.mu.Lock()
	defer m.ledger.mu.Unlock()
	a := m.ledger.cards[0]
	if a.reserved != 0 || m.ledger.inFlight != 0 || a.stale > a.charged {
		t.Fatalf("after a call: %+v, %d calls under way", a, m.ledger.inFlight)
	}
	for _, s := range m.ledger.spaces {
		open += len(s.held)
	}
	if d.open() > open {
		t.Fatalf("%d descriptors leaked", d.open()-open)
	}
}

// FuzzHandleIoctl feeds bytes of the tenant as argument and memory to ioctls on the
// control and card files.
func FuzzHandleIoctl(f *testing.F) {
	cmd := func(nr, size uint32) uint32 { return 3<<30 | size<<16 | 'F'<<8 | nr }
	alloc := make(message, 48)
	alloc.setU32(12, nvgpu.NV01_MEMORY_LOCAL_USER)
	alloc.setU64(16, memoryBase)
	control := make(message, 32)
	control.setU32(8, nvgpu.NV2080_CTRL_CMD_FB_GET_INFO)
	control.setU64(16, memoryBase)
	control.setU32(24, 16)
	f.Add(cmd(nvabi.EscRMAlloc, 48), []byte(alloc), true)
	f.Add(cmd(nvabi.EscRMAlloc, 32), []byte(alloc), false)
	f.Add(cmd(nvabi.EscRMControl, 32), []byte(control), true)
	f.Add(cmd(nvabi.EscRMVidHeapControl, 184), make([]byte, 184), true)
	f.Add(cmd(nvabi.EscCardInfo, 32*72), make([]byte, 32*72), true)
	f.Add(cmd(nvabi.EscRMMapMemory, 56), make([]byte, 56), true)
	f.Add(cmd(nvabi.EscRMFree, 16), make([]byte, 16), true)
	f.Add(cmd(nvabi.EscXferCmd, 16), make([]byte, 16), true)
	f.Fuzz(func(t *testing.T, cmd uint32, arg []byte, own bool) {
		if len(arg) > 16<<10 {
			t.Skip()
		}
		m, d, tn := setUp(t, gib, simulated)
		c := tn.context()
		card := tn.open("/dev/nvidia0")
		tn.vidmem(c, 10*mib)
		if own && len(arg) >= 8 {
			// Most calls name a client; with one of its own the tenant gets further.
			message(arg).setU32(0, c.client)
			if len(arg)%2 == 0 {
				message(arg).setU32(4, c.device)
			} else {
				message(arg).setU32(4, c.subdevice)
			}
		}
		addr := tn.put(arg)
		open := d.open()
		for _, fd := range []int32{c.ctl, card, c.uvm} {
			tn.notify(unix.SYS_IOCTL, uint64(fd), uint64(cmd), addr)
			consistent(t, m, d, open)
		}
		if d.used(0) > gib {
			t.Fatalf("the driver holds %d", d.used(0))
		}
	})
}

// FuzzHandleUVM feeds bytes of the tenant to UVM's commands and to mmap.
func FuzzHandleUVM(f *testing.F) {
	mapped := make(message, 1200)
	mapped.setU64(8, 1<<20)
	f.Add(uint32(nvgpu.UVM_MAP_EXTERNAL_ALLOCATION), []byte(mapped), uint64(0x7f0000000000), uint64(1<<20))
	f.Add(uint32(nvgpu.UVM_CREATE_EXTERNAL_RANGE), make([]byte, 24), uint64(1<<63), uint64(1<<63))
	f.Add(uint32(nvgpu.UVM_FREE), make([]byte, 24), uint64(0x10000), uint64(0))
	f.Add(uint32(nvgpu.UVM_INITIALIZE), make([]byte, 16), ^uint64(0), ^uint64(0))
	f.Add(uint32(nvgpu.UVM_ALLOC_SEMAPHORE_POOL), make([]byte, 1184), uint64(0), uint64(1))
	f.Fuzz(func(t *testing.T, cmd uint32, arg []byte, base, length uint64) {
		if len(arg) > 16<<10 {
			t.Skip()
		}
		m, d, tn := setUp(t, gib)
		c := tn.context()
		h, _ := tn.vidmem(c, 10*mib)
		if len(arg) >= 16 {
			message(arg).setU64(0, base)
			message(arg).setU64(8, length)
		}
		if cmd == nvgpu.UVM_MAP_EXTERNAL_ALLOCATION && len(arg) >= 1200 {
			message(arg).setU32(1184, uint32(c.ctl))
			message(arg).setU32(1188, c.client)
			message(arg).setU32(1192, h)
		}
		open := d.open()
		for range 2 {
			tn.uvmCall(c.uvm, cmd, arg)
			tn.mmap(c.uvm, base, length, base, unix.MAP_FIXED)
			consistent(t, m, d, open)
		}
		tn.free(c, h)
		tn.procs.end(tn.pid)
		if n := used(m); n != 0 {
			t.Fatalf("used %d at the end", n)
		}
	})
}

// FuzzOpen feeds paths to open.
func FuzzOpen(f *testing.F) {
	for _, p := range []string{"/dev/nvidia0", "nvidia0", "/dev/../dev/nvidiactl", "/dev/nvidia00", "/dev/nvidia\x00", ""} {
		f.Add(p, int32(unix.AT_FDCWD))
	}
	f.Fuzz(func(t *testing.T, path string, dirfd int32) {
		_, d, tn := setUp(t, gib)
		open := d.open()
		a := tn.notify(unix.SYS_OPENAT, uint64(uint32(dirfd)), tn.put(append([]byte(path), 0)), unix.O_RDWR)
		if a.Inject != 0 {
			switch got := tn.fds[int32(a.Value)].path; got {
			case "/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm":
			default:
				t.Errorf("%q opened %s", path, got)
			}
		}
		if d.open() != open {
			t.Errorf("%q: %d descriptors leaked", path, d.open()-open)
		}
	})
}

// FuzzParseMapping feeds lines to the parser of /proc/PID/maps.
func FuzzParseMapping(f *testing.F) {
	f.Add("7f0000000000-7f0000200000 rw-s 7f0000000000 00:06 1234 /dev/nvidia-uvm")
	f.Add("0-0 - 0 0:0 0")
	f.Fuzz(func(t *testing.T, line string) {
		if m, ok := parseMapping(line); ok && m.First >= m.End {
			t.Errorf("%q: %+v", line, m)
		}
	})
}
