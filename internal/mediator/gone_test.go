package mediator

import (
	"testing"

	"github.com/qgpu-project/qgpu/internal/nvabi"
	"github.com/qgpu-project/qgpu/internal/seccomp"
	"golang.org/x/sys/unix"
)

// goneCall is a call that a signal interrupts: from then on its caller's memory is
// out of reach, and its answer is lost.
type goneCall struct {
	*fakeCall
	whileReading bool
}

func (c *goneCall) ReadMemory(p []byte, addr uint64) error {
	if c.whileReading {
		return seccomp.ErrGone
	}
	return c.fakeCall.ReadMemory(p, addr)
}

func (c *goneCall) WriteMemory([]byte, uint64) error { return seccomp.ErrGone }

// A call that is interrupted again and again, also while it is answered from memory,
// is executed once, and succeeds when it is let.
func TestInterruptedWhileHandled(t *testing.T) {
	m, d, tn := setUp(t, gib)
	c := tn.context()
	addr, _ := lostAlloc(t, m, tn, c, 100*mib)
	tn.at(addr, 48).setU32(8, 0)
	before := len(d.calls)
	for i := range 5 {
		n := &goneCall{fakeCall: &fakeCall{fakeTenant: tn, id: 1<<41 + uint64(i), tid: tn.thread, nr: unix.SYS_IOCTL}}
		n.args = [6]uint64{uint64(c.ctl), 3<<30 | 48<<16 | 'F'<<8 | nvabi.EscRMAlloc, addr}
		m.Lost(n, m.Handle(n))
	}
	if a := tn.again(c, addr); a.Errno != 0 || tn.at(addr, 48).u32(8) == 0 {
		t.Errorf("at last it was answered %+v", a)
	}
	if len(d.calls) != before || used(m) != 100*mib {
		t.Errorf("executed again: %v; %d bytes are charged", d.calls[before:], used(m))
	}
}

// A call that was interrupted before it was executed is executed when it comes again.
func TestInterruptedBeforeExecution(t *testing.T) {
	m, d, tn := setUp(t, gib)
	c := tn.context()
	arg := make(message, 16)
	arg.setU32(0, c.client)
	arg.setU32(freeObject, c.device)
	addr := tn.put(arg)
	n := &goneCall{fakeCall: &fakeCall{fakeTenant: tn, id: 1 << 41, tid: tn.thread, nr: unix.SYS_IOCTL}, whileReading: true}
	n.args = [6]uint64{uint64(c.ctl), 3<<30 | 16<<16 | 'F'<<8 | nvabi.EscRMFree, addr}
	before := len(d.calls)
	m.Lost(n, m.Handle(n))
	a := tn.notify(unix.SYS_IOCTL, n.args[0], n.args[1], n.args[2])
	if a.Errno != 0 || len(d.calls) != before+1 {
		t.Errorf("answered %+v, executed %v", a, d.calls[before:])
	}
}
