package mediator

import (
	"testing"

	"github.com/qgpu-project/qgpu/internal/nvabi"
	"github.com/qgpu-project/qgpu/internal/seccomp"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/nvgpu"
)

// lostAlloc makes an allocation whose answer is lost and returns where its argument lies.
func lostAlloc(t *testing.T, m *Mediator, tn *fakeTenant, c context, bytes uint64) (addr, inner uint64) {
	t.Helper()
	params := make(message, 120)
	params.setU64(memorySize, bytes)
	inner = tn.put(params)
	arg := make(message, sizeNVOS64)
	arg.setU32(0, c.client)
	arg.setU32(4, c.device)
	arg.setU32(12, nvgpu.NV01_MEMORY_LOCAL_USER)
	arg.setU64(16, inner)
	addr = tn.put(arg)
	n := &fakeCall{fakeTenant: tn, id: 1 << 40, tid: tn.thread, nr: unix.SYS_IOCTL}
	n.args = [6]uint64{uint64(c.ctl), 3<<30 | 48<<16 | 'F'<<8 | nvabi.EscRMAlloc, addr}
	a := m.Handle(n)
	if a.Errno != 0 {
		t.Fatal(a)
	}
	m.Lost(n, a)
	return addr, inner
}

func (t *fakeTenant) again(c context, addr uint64) seccomp.Answer {
	return t.notify(unix.SYS_IOCTL, uint64(c.ctl), 3<<30|48<<16|'F'<<8|nvabi.EscRMAlloc, addr)
}

// An interrupted call that comes again is answered from memory, whether its results
// had been written or not.
func TestLostCallIsNotExecutedTwice(t *testing.T) {
	for _, written := range []bool{true, false} {
		m, d, tn := setUp(t, gib)
		c := tn.context()
		addr, inner := lostAlloc(t, m, tn, c, 100*mib)
		handle := tn.at(addr, 48).u32(8)
		if !written { // as if the mediator had not come to it
			tn.at(addr, 48).setU32(8, 0)
			tn.at(inner, 120).setU64(memorySize, 100*mib)
		}
		before := len(d.calls)
		if a := tn.again(c, addr); a.Errno != 0 || len(d.calls) != before {
			t.Errorf("written %v: %+v, executed %v", written, a, d.calls[before:])
		}
		if got := tn.at(addr, 48).u32(8); got != handle || used(m) != 100*mib || d.used(0) != 100*mib {
			t.Errorf("written %v: handle %#x, not %#x; used %d, driver %d", written, got, handle, used(m), d.used(0))
		}
		// Answered once only.
		tn.at(addr, 48).setU32(8, 0)
		if tn.again(c, addr); len(d.calls) == before {
			t.Errorf("written %v: answered from memory twice", written)
		}
	}
}

func TestOtherCallsAreNotTakenForTheLostOne(t *testing.T) {
	for name, change := range map[string]func(*fakeTenant, uint64, uint64){
		"another thread":     func(tn *fakeTenant, _, _ uint64) { tn.thread++ },
		"another argument":   func(tn *fakeTenant, addr, _ uint64) { tn.at(addr, 48).setU32(8, 0x1234) },
		"another parameters": func(tn *fakeTenant, _, inner uint64) { tn.at(inner, 120).setU64(memorySize, 7*mib) },
	} {
		m, d, tn := setUp(t, gib)
		c := tn.context()
		addr, inner := lostAlloc(t, m, tn, c, 100*mib)
		change(tn, addr, inner)
		before := len(d.calls)
		tn.again(c, addr)
		if len(d.calls) == before {
			t.Errorf("%s: not executed", name)
		}
	}
}

func TestLostCallsAreBounded(t *testing.T) {
	var l lostCalls
	for i := range 3 * maxLost {
		l.add(&lostCall{thread: i, process: i % 7, segments: []segment{{data: make(message, 100)}}})
	}
	if len(l.calls) > maxLost || l.bytes != 100*len(l.calls) {
		t.Errorf("%d calls, %d bytes", len(l.calls), l.bytes)
	}
	for range 10 {
		l.add(&lostCall{thread: 5})
	}
	n := 0
	for _, c := range l.calls {
		if c.thread == 5 {
			n++
		}
	}
	if n > maxPerThread {
		t.Errorf("%d calls of one thread", n)
	}
	for range 20 {
		l.add(&lostCall{thread: 1 << 20, segments: []segment{{data: make(message, 1<<20)}}})
	}
	if l.bytes > maxLostBytes {
		t.Errorf("%d bytes", l.bytes)
	}
	for p := range 7 {
		l.forgetProcess(p)
	}
	if len(l.calls) != 0 || l.bytes != 0 || l.some.Load() {
		t.Errorf("%d calls, %d bytes are left", len(l.calls), l.bytes)
	}
}

// TestDroppedAnswer repeats a call whose answer was taken by the kernel: nobody was told
// that the caller did not get it. Only where signals interrupt calls may that be.
func TestDroppedAnswer(t *testing.T) {
	const handle = 0x5c000101
	for _, interruptible := range []bool{true, false} {
		m, d, tn := setUp(t, gib)
		if interruptible {
			m.Interruptible()
		}
		c := tn.context()
		params := make(message, 120)
		params.setU64(memorySize, 100*mib)
		arg := make(message, sizeNVOS64)
		arg.setU32(0, c.client)
		arg.setU32(4, c.device)
		arg.setU32(8, handle)
		arg.setU32(12, nvgpu.NV01_MEMORY_LOCAL_USER)
		arg.setU64(16, tn.put(params))
		addr := tn.put(arg)
		status := func() uint32 {
			if a := tn.again(c, addr); a.Errno != 0 {
				t.Fatal(a)
			}
			return tn.at(addr, 48).u32(40)
		}
		if s := status(); s != statusOK {
			t.Fatalf("status %#x", s)
		}
		repeated := status()
		if interruptible != (repeated == statusOK) {
			t.Errorf("interruptible %v: the same call again has status %#x", interruptible, repeated)
		}
		if used(m) != 100*mib || d.used(0) != 100*mib {
			t.Errorf("interruptible %v: used %d, driver %d", interruptible, used(m), d.used(0))
		}
		// The same handle in another call is another matter.
		tn.at(addr, 48).setU64(16, tn.put(params))
		if s := status(); s == statusOK {
			t.Errorf("interruptible %v: another call that fails is answered as the one before", interruptible)
		}
	}
}
