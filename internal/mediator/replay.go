package mediator

import (
	"bytes"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/qgpu-project/qgpu/internal/seccomp"
	"golang.org/x/sys/unix"
)

const (
	maxLost      = 1024    // calls remembered
	maxLostBytes = 8 << 20 // bytes of all of them
	maxPerThread = 4       // a signal handler may make calls of its own
)

// lostCall is an executed ioctl whose answer a signal kept from the caller. The
// kernel issues it again, or the program does. It is then answered from here, since
// to execute it twice would take memory twice or fail on an object that is there.
type lostCall struct {
	thread, process int
	args            [3]uint64
	segments        []segment
	answer          seccomp.Answer
	// again is the notification that was answered from here, 0 for none yet. That
	// answer, too, may be lost.
	again uint64
}

func (l *lostCall) bytes() int {
	n := 0
	for _, s := range l.segments {
		n += len(s.data) + len(s.in)
	}
	return n
}

// lostCalls are those not yet issued again, oldest first.
type lostCalls struct {
	some  atomic.Bool // whether there are any, to be asked without the lock
	mu    sync.Mutex
	calls []*lostCall
	bytes int
}

// Lost records that the caller did not get the answer of a call, which Handle gave
// for a notification with the same id.
func (m *Mediator) Lost(n Notification, a seccomp.Answer) {
	if n.Nr() != unix.SYS_IOCTL || a.Continue {
		return // an opened file was not handed over, and a continued call not executed
	}
	if m.lost.lostAgain(n.ID()) {
		return
	}
	c := m.calls.answered(n.ID())
	if c == nil {
		return
	}
	if !c.executed {
		m.calls.release(c)
		return // nothing was done that must not be done twice
	}
	l := &lostCall{thread: n.Thread(), args: ioctlArgs(n), answer: c.answer}
	l.process, _ = n.Process() // 0 if it is gone
	for i := range c.nSegment {
		s := c.segments[i]
		s.data, s.in = slices.Clone(s.data), slices.Clone(s.in)
		l.segments = append(l.segments, s)
	}
	m.calls.release(c)
	m.lost.add(l)
}

func ioctlArgs(n Notification) [3]uint64 { return [3]uint64{n.Arg(0), n.Arg(1), n.Arg(2)} }

func (l *lostCalls) add(c *lostCall) {
	l.mu.Lock()
	defer l.mu.Unlock()
	same := 0
	for _, x := range l.calls {
		if x.thread == c.thread {
			same++
		}
	}
	for i := 0; same >= maxPerThread; i++ {
		if l.calls[i].thread == c.thread {
			l.removeAt(i)
			break
		}
	}
	l.calls = append(l.calls, c)
	l.bytes += c.bytes()
	for len(l.calls) > maxLost || l.bytes > maxLostBytes {
		l.removeAt(0)
	}
	l.some.Store(len(l.calls) > 0)
}

func (l *lostCalls) removeAt(i int) {
	l.bytes -= l.calls[i].bytes()
	l.calls = slices.Delete(l.calls, i, i+1)
	l.some.Store(len(l.calls) > 0)
}

// find answers a call that was lost before: from the same thread, with the same
// arguments, in memory that still holds what was read or already holds what was
// written.
func (l *lostCalls) find(n Notification) (seccomp.Answer, bool) {
	if !l.some.Load() {
		return seccomp.Answer{}, false
	}
	c := l.take(n)
	if c == nil {
		return seccomp.Answer{}, false
	}
	for i := len(c.segments) - 1; i >= 0; i-- {
		s := &c.segments[i]
		if !s.out {
			continue
		}
		if err := n.WriteMemory(s.data, s.addr); err != nil && !errors.Is(err, seccomp.ErrGone) {
			return fail(unix.EFAULT), true
		}
	}
	return c.answer, true
}

// take finds the lost call that n repeats. A call of the same thread that was answered
// from here before has arrived: otherwise lostAgain would have been called first.
func (l *lostCalls) take(n Notification) *lostCall {
	l.mu.Lock()
	var candidates []*lostCall
	for i := len(l.calls) - 1; i >= 0; i-- {
		switch c := l.calls[i]; {
		case c.thread != n.Thread():
		case c.again != 0:
			l.removeAt(i)
		case c.args == ioctlArgs(n):
			candidates = append(candidates, c)
		}
	}
	l.mu.Unlock()
	for _, c := range slices.Backward(candidates) { // the oldest first
		if !c.unchanged(n) {
			continue
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if !slices.Contains(l.calls, c) {
			return nil
		}
		c.again = n.ID()
		return c
	}
	return nil
}

// lostAgain reports whether the answer to a notification came from here. The call is
// then to be answered once more.
func (l *lostCalls) lostAgain(id uint64) bool {
	if !l.some.Load() {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.calls {
		if c.again == id {
			c.again = 0
			return true
		}
	}
	return false
}

// unchanged reports whether the caller's memory is as the call found or left it.
func (l *lostCall) unchanged(n Notification) bool {
	for _, s := range l.segments {
		if s.in == nil {
			continue
		}
		now := make([]byte, len(s.in))
		if err := n.ReadMemory(now, s.addr); err != nil {
			return false
		}
		if !bytes.Equal(now, s.in) && !bytes.Equal(now, s.data) {
			return false
		}
	}
	return true
}

// forgetProcess drops the calls of a process that ended.
func (l *lostCalls) forgetProcess(pid int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := len(l.calls) - 1; i >= 0; i-- {
		if l.calls[i].process == pid {
			l.removeAt(i)
		}
	}
}
