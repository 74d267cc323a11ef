package mediator

import (
	"sync"
	"testing"
	"unsafe"

	"github.com/qgpu-project/qgpu/internal/nvabi"
	"gvisor.dev/gvisor/pkg/abi/nvgpu"
)

// Many threads take and free memory at once: the driver never holds more than the
// quota, and everything is back at the end.
func TestConcurrentCalls(t *testing.T) {
	m, d, tn := setUp(t, 64*mib)
	c := tn.context()
	d.onExecute = func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if n := d.used(0); n > 64*mib {
			t.Errorf("the driver holds %d", n)
		}
	}
	var threads sync.WaitGroup
	for i := range 8 {
		threads.Go(func() {
			p := newThread(tn, i)
			for j := range 60 {
				params := make(message, 120)
				params.setU64(memorySize, uint64(1+(i+j)%20)*mib)
				arg := make(message, sizeNVOS64)
				arg.setU32(0, c.client)
				arg.setU32(4, c.device)
				arg.setU32(12, nvgpu.NV01_MEMORY_LOCAL_USER)
				arg.setU64(16, p.put(params))
				out, _ := p.ioctl(c.ctl, nvabi.EscRMAlloc, arg)
				if out.u32(40) == 0 {
					free := make(message, 16)
					free.setU32(0, c.client)
					free.setU32(8, out.u32(8))
					p.ioctl(c.ctl, nvabi.EscRMFree, free)
				}
				m.Usage()
			}
		})
	}
	threads.Wait()
	if used(m) != 0 || d.used(0) != 0 {
		t.Errorf("used %d, driver %d", used(m), d.used(0))
	}
}

// newThread is another thread of a process, with memory of its own to keep the tests'
// threads apart.
func newThread(p *fakeTenant, i int) *fakeTenant {
	return &fakeTenant{
		t: p.t, m: p.m, d: p.d, procs: p.procs, pid: p.pid, thread: p.pid + 1 + i, id: uint64(i+1) << 20,
		reads: make(map[uint64]int), fds: p.fds, replaced: make(map[int32]*fakeFile),
	}
}

// A panic of the handler leaves no lock held and no descriptor open.
func TestPanicLeavesTheTenantGoing(t *testing.T) {
	m, d, tn := setUp(t, gib)
	c := tn.context()
	open := d.open()
	d.onExecute = func() { panic("driver") }
	for _, f := range []func(){
		func() { tn.free(c, c.channels) },
		func() { tn.vidmem(c, mib) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			f()
		}()
	}
	d.onExecute = nil
	if d.open() != open {
		t.Errorf("%d descriptors leaked", d.open()-open)
	}
	if _, status := tn.vidmem(c, mib); status != 0 || used(m) != mib {
		t.Errorf("status %#x, used %d", status, used(m))
	}
	if m.ledger.inFlight != 0 {
		t.Errorf("%d calls under way", m.ledger.inFlight)
	}
}

func TestHotPathDoesNotAllocate(t *testing.T) {
	_, d, tn := setUp(t, gib)
	c := tn.context()
	call := newQuietCall(tn, c)
	d.seen = nil
	if n := testing.AllocsPerRun(200, func() { tn.m.Handle(call) }); n > 0 {
		t.Errorf("%v allocations a call", n)
	}
}

// quietCall is a notification that itself allocates nothing.
type quietCall struct {
	*fakeCall
	arg, params []byte
}

func newQuietCall(tn *fakeTenant, c context) *quietCall {
	params := make([]byte, tn.m.abi.Controls[nvgpu.NV2080_CTRL_CMD_TIMER_GET_TIME].Size)
	arg := make(message, 32)
	arg.setU32(0, c.client)
	arg.setU32(4, c.subdevice)
	arg.setU32(8, nvgpu.NV2080_CTRL_CMD_TIMER_GET_TIME)
	arg.setU64(16, 2)
	arg.setU32(24, uint32(len(params)))
	q := &quietCall{&fakeCall{fakeTenant: tn, nr: 16}, arg, params}
	q.args = [6]uint64{uint64(c.ctl), 3<<30 | 32<<16 | 'F'<<8 | nvabi.EscRMControl, 1}
	tn.m.driver = quietDriver{}
	tn.m.files.add(Stat{Ino: 1}, deviceFile{kind: controlFile})
	return q
}

func (q *quietCall) ReadMemory(p []byte, addr uint64) error {
	if addr == 1 {
		copy(p, q.arg)
	} else {
		copy(p, q.params)
	}
	return nil
}

func (q *quietCall) WriteMemory(p []byte, addr uint64) error { return nil }
func (q *quietCall) Dup(fd int32) (int, error)               { return 50, nil }
func (q *quietCall) ID() uint64                              { return 1 }

func BenchmarkControl(b *testing.B) {
	_, d, tn := setUp(b, gib)
	c := tn.context()
	d.seen = nil
	call := newQuietCall(tn, c)
	b.ReportAllocs()
	for b.Loop() {
		tn.m.Handle(call)
	}
}

type quietDriver struct{}

func (quietDriver) Open(string, int) (int, error)           { return 50, nil }
func (quietDriver) Close(int) error                         { return nil }
func (quietDriver) Dup(int) (int, error)                    { return 50, nil }
func (quietDriver) Same(int, int) bool                      { return true }
func (quietDriver) Stat(int) (Stat, error)                  { return Stat{Ino: 1}, nil }
func (quietDriver) Ioctl(int, uint32, unsafe.Pointer) error { return nil }
