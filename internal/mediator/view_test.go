package mediator

import (
	"testing"

	"github.com/qgpu-project/qgpu/internal/nvabi"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/nvgpu"
)

func TestQuotaIsTheCardsMemory(t *testing.T) {
	_, _, tn := setUp(t, 5*gib)
	c := tn.context()
	tn.vidmem(c, 1*gib)
	want := map[uint32]uint32{
		fbRAMSize: 5 << 20, fbTotalRAM: 5 << 20, fbHeapSize: 5 << 20, fbUsable: 5 << 20, fbHeapFree: 4 << 20, fbLargestFree: 4 << 20,
		0x05: 16 << 20, // BAR1 stays
	}
	indices := []uint32{fbRAMSize, fbTotalRAM, fbHeapSize, fbUsable, fbHeapFree, fbLargestFree, 0x05}

	params := make(message, tn.m.abi.Controls[nvgpu.NV2080_CTRL_CMD_FB_GET_INFO_V2].Size)
	list := make(message, 8*len(indices))
	for i, x := range indices {
		list.setU32(8*i, x)
	}
	params.setU32(0, uint32(len(indices)))
	copy(params[4:], list)
	out, status := tn.control(c, c.subdevice, nvgpu.NV2080_CTRL_CMD_FB_GET_INFO_V2, params)
	if status != 0 {
		t.Fatalf("status %#x", status)
	}
	addr := tn.put(list)
	short := make(message, 16)
	short.setU32(0, uint32(len(indices)))
	short.setU64(8, addr)
	after, status := tn.control(c, c.subdevice, nvgpu.NV2080_CTRL_CMD_FB_GET_INFO, short)
	if status != 0 || after.u64(8) != addr {
		t.Fatalf("list form: status %#x, pointer %#x", status, after.u64(8))
	}
	for i, x := range indices {
		if got := out.u32(4 + 8*i + 4); got != want[x] {
			t.Errorf("index %#x: %d KiB, want %d", x, got, want[x])
		}
		if got := tn.at(addr, len(list)).u32(8*i + 4); got != want[x] {
			t.Errorf("list form, index %#x: %d KiB, want %d", x, got, want[x])
		}
	}

	heap := make(message, 184)
	heap.setU32(0, c.client)
	heap.setU32(heapParent, c.device)
	heap.setU32(heapFunction, heapInfo)
	h := tn.must(c.ctl, nvabi.EscRMVidHeapControl, heap, 20)
	if h.u64(heapTotal) != 5*gib || h.u64(heapFree) != 4*gib {
		t.Errorf("heap: total %d, free %d", h.u64(heapTotal), h.u64(heapFree))
	}
}

// A control whose count says more than there is does not go beyond the parameters.
func TestMemoryInfoCountIsBounded(t *testing.T) {
	_, _, tn := setUp(t, gib)
	c := tn.context()
	p := &call{m: tn.m, n: &fakeCall{fakeTenant: tn}, arg: make(message, 32)}
	p.arg.setU32(0, c.client)
	p.arg.setU32(4, c.subdevice)
	list := message(le32(fbTotalRAM, 16<<20, fbTotalRAM, 16<<20))
	p.showMemory(list[:8:8], 1<<32-1)
	if list.u32(4) != 1<<20 || list.u32(12) != 16<<20 {
		t.Errorf("list became %x", list)
	}
}

func TestCardInfoShowsOwnCards(t *testing.T) {
	_, _, tn := setUp(t, 5*gib, func(_ *fakeDriver, cfg *Config) { cfg.Cards[0].Minor = 1 })
	out := tn.must(tn.open("/dev/nvidiactl"), nvabi.EscCardInfo, make(message, 32*cardInfoSize), -1)
	if out[0] != 1 || out.u32(cardInfoMinor) != 1 || out.u32(cardInfoGPUID) != fakeGPUID(1) || out.u64(cardInfoFB) != 5*gib {
		t.Errorf("first: %x", out[:cardInfoSize])
	}
	for i := 1; i < 32; i++ {
		if out[i*cardInfoSize] != 0 || out.u32(i*cardInfoSize+cardInfoGPUID) != 0 {
			t.Errorf("entry %d: %x", i, out[i*cardInfoSize:(i+1)*cardInfoSize])
		}
	}
}

func TestListsOfCards(t *testing.T) {
	_, d, tn := setUp(t, gib)
	c := tn.context()
	probed, _ := tn.control(c, c.client, nvgpu.NV0000_CTRL_CMD_GPU_GET_PROBED_IDS, make([]byte, 256))
	if probed.u32(0) != fakeGPUID(0) || probed.u32(4) != nvgpu.NV0000_CTRL_GPU_INVALID_ID {
		t.Errorf("probed: %x", probed[:16])
	}
	attach := make(message, 132)
	attach.setU32(0, attachAll)
	if _, status := tn.control(c, c.client, nvgpu.NV0000_CTRL_CMD_GPU_ATTACH_IDS, attach); status != 0 {
		t.Errorf("attach all: status %#x", status)
	}
	if got := message(d.seen[nvgpu.NV0000_CTRL_CMD_GPU_ATTACH_IDS]); got.u32(0) != fakeGPUID(0) || got.u32(4) != nvgpu.NV0000_CTRL_GPU_INVALID_ID {
		t.Errorf("attach all became %x", got[:8])
	}
}

func TestProcessesAreOwn(t *testing.T) {
	m, d, tn := setUp(t, gib)
	c := tn.context()
	tn.vidmem(c, 100*mib)
	second := newTenant(t, m, d, tn.procs, 1001)
	sc := second.context()
	second.vidmem(sc, 50*mib)
	// The processes are in a pid namespace of their own.
	tn.procs.ns[1000] = []int{1000, 1}
	tn.procs.ns[1001] = []int{1001, 2}

	pids, status := tn.control(c, c.subdevice, nvgpu.NV2080_CTRL_CMD_GPU_GET_PIDS, make([]byte, 3812))
	if status != 0 || pids.u32(8) != 2 || pids.u32(12) != 1 || pids.u32(16) != 2 {
		t.Errorf("status %#x, list %x", status, pids[:24])
	}
	ask := make(message, 14408)
	ask.setU32(0, 3)
	for i, pid := range []uint32{2, 1, 77} {
		ask.setU32(pidInfoFirst+i*pidInfoSize, pid)
	}
	info, status := tn.control(c, c.subdevice, nvgpu.NV2080_CTRL_CMD_GPU_GET_PID_INFO, ask)
	if status != 0 {
		t.Fatalf("status %#x", status)
	}
	for i, want := range []uint64{50 * mib, 100 * mib, 0} {
		if got := info.u64(pidInfoFirst + i*pidInfoSize + pidInfoData); got != want {
			t.Errorf("entry %d: %d, want %d", i, got, want)
		}
	}
	ask.setU32(0, 1<<31)
	if _, status := tn.control(c, c.subdevice, nvgpu.NV2080_CTRL_CMD_GPU_GET_PID_INFO, ask); status != statusInvalidArgument {
		t.Errorf("too many: status %#x", status)
	}
}

func TestSamplesAreOwn(t *testing.T) {
	_, _, tn := setUp(t, gib)
	c := tn.context()
	for version, engine := range map[string]int{"535.309.01": 116, "550.163.01": 116, "570.133.20": 128, "580.105.08": 128} {
		abi := abiOf(t, version)
		size := int(abi.Controls[nvgpu.NV2080_CTRL_CMD_PERF_GET_GPUMON_PERFMON_UTIL_SAMPLES_V2].Size)
		p := &params{message: make(message, size)}
		stride := (size - samplesFirst) / sampleCount
		fb, gr := samplesFirst+stride+sampleEngines, samplesFirst+stride+sampleEngines+engine
		p.setU32(fb, 33)
		p.setU32(fb+engineProcess, mediators)
		p.setU32(gr, 44)
		p.setU32(gr+engineProcess, 99)
		cl := &call{m: tn.m, n: &fakeCall{fakeTenant: tn}, arg: make(message, 32)}
		cl.arg.setU32(0, c.client)
		cl.arg.setU32(4, c.subdevice)
		showSamples(cl, p)
		if p.u32(fb) != 33 || p.u32(fb+engineProcess) != 1000 {
			t.Errorf("%s: own load: %d of process %d", version, p.u32(fb), p.u32(fb+engineProcess))
		}
		if p.u32(gr) != 0 || p.u32(gr+engineProcess) != noProcess {
			t.Errorf("%s: foreign load: %d of process %d", version, p.u32(gr), p.u32(gr+engineProcess))
		}
	}
}

func TestUVMInitializeSharesTheSpaceUnseen(t *testing.T) {
	_, d, tn := setUp(t, gib)
	c := tn.context()
	out, errno := tn.uvmCall(c.uvm, nvgpu.UVM_INITIALIZE, make(message, 16))
	if errno != 0 || out.u64(0) != 0 || out.u32(8) != 0 {
		t.Errorf("errno %d, flags %#x", errno, out.u64(0))
	}
	if got := message(d.uvmSeen[nvgpu.UVM_INITIALIZE]).u64(0); got != shareSpace {
		t.Errorf("the driver saw flags %#x", got)
	}
}

func TestPreemptionOnlyWhenIdleIsRefused(t *testing.T) {
	_, _, tn := setUp(t, gib)
	c := tn.context()
	for mode, want := range map[uint32]uint32{0: statusNotSupported, 1: 0, 2: 0} {
		p := make(message, tn.m.abi.Controls[nvgpu.NV2080_CTRL_CMD_GR_SET_CTXSW_PREEMPTION_MODE].Size)
		p.setU32(0, 1)
		p.setU32(12, mode)
		if _, status := tn.control(c, c.subdevice, nvgpu.NV2080_CTRL_CMD_GR_SET_CTXSW_PREEMPTION_MODE, p); status != want {
			t.Errorf("mode %d: status %#x", mode, status)
		}
	}
}

func TestPaths(t *testing.T) {
	_, _, tn := setUp(t, gib)
	for _, tc := range []struct {
		dirfd int32
		path  string
		want  string // "" lets the kernel do it
	}{
		{unix.AT_FDCWD, "/dev/nvidia0", "/dev/nvidia0"},
		{unix.AT_FDCWD, "/dev//nvidiactl", "/dev/nvidiactl"},
		{unix.AT_FDCWD, "dev/nvidia-uvm", "/dev/nvidia-uvm"},
		{5, "nvidia0", "/dev/nvidia0"},
		{6, "nvidia0", ""},
		{unix.AT_FDCWD, "/home/x/nvidia0", ""},
		{unix.AT_FDCWD, "/etc/passwd", ""},
		{unix.AT_FDCWD, "/proc/driver/nvidia/params", ""},
	} {
		a := tn.notify(unix.SYS_OPENAT, uint64(uint32(tc.dirfd)), tn.put(append([]byte(tc.path), 0)), unix.O_RDWR)
		if tc.want == "" {
			if !a.Continue {
				t.Errorf("%s: %+v", tc.path, a)
			}
			continue
		}
		if a.Inject == 0 || tn.fds[int32(a.Value)].path != tc.want || a.Cloexec {
			t.Errorf("%s: %+v", tc.path, a)
		}
	}
	if a := tn.notify(unix.SYS_OPENAT, 0, 0x10, unix.O_RDWR); a.Errno != int(unix.EFAULT) || a.Continue {
		t.Errorf("unreadable path: %+v", a)
	}
}
