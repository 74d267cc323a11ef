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
	worked          bool // the driver said that it succeeded
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
	l := c.keep()
	l.process, _ = n.Process() // 0 if it is gone
	m.calls.release(c)
	m.lost.add(l)
}

// keep copies what is needed to answer the call again.
func (c *call) keep() *lostCall {
	l := &lostCall{thread: c.thread, args: c.args, answer: c.answer, worked: c.worked}
	for i := range c.nSegment {
		s := c.segments[i]
		s.data, s.in = slices.Clone(s.data), slices.Clone(s.in)
		l.segments = append(l.segments, s)
	}
	return l
}

// Interruptible tells that signals interrupt the tenant's calls while they are
// answered: its filter is without WAIT_KILLABLE_RECV.
func (m *Mediator) Interruptible() { m.interruptible.Store(true) }

// dropped answers a call that failed only because it was executed before. Without
// WAIT_KILLABLE_RECV the kernel may take an answer and drop it nevertheless: a signal
// had ended the caller's wait, and the caller had not yet said so when the answer came
// (seccomp_do_user_notification, kernel/seccomp.c). Nobody is told of that. So a call
// that fails and is the same as the thread's last one, in memory as that found or left
// it, which succeeded, has the answer of that one.
func (m *Mediator) dropped(c *call) (seccomp.Answer, bool) {
	last := m.lost.delivered(c.thread)
	if last == nil || !last.repeatedBy(c) {
		last = m.calls.before(c.thread)
	}
	if last == nil || !last.worked || !last.repeatedBy(c) {
		return seccomp.Answer{}, false
	}
	return last.tell(c.n), true
}

// repeatedBy reports whether c is the same call, in memory as l found or left it.
func (l *lostCall) repeatedBy(c *call) bool {
	if l.args != c.args || len(l.segments) != c.nSegment {
		return false
	}
	for i, s := range l.segments {
		in := c.segments[i].in
		if s.addr != c.segments[i].addr || !bytes.Equal(in, s.in) && !bytes.Equal(in, s.data) {
			return false
		}
	}
	return true
}

// tell gives the caller of n what the call had written, and its answer.
func (l *lostCall) tell(n Notification) seccomp.Answer {
	for _, s := range slices.Backward(l.segments) {
		if !s.out {
			continue
		}
		if err := n.WriteMemory(s.data, s.addr); err != nil && !errors.Is(err, seccomp.ErrGone) {
			return fail(unix.EFAULT)
		}
	}
	return l.answer
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
	return c.tell(n), true
}

// take finds the lost call that n repeats. One of the same thread that was answered from
// here before has arrived, as far as the kernel tells: otherwise lostAgain would have been
// called first. If it was the thread's last one it stays, for delivered.
func (l *lostCalls) take(n Notification) *lostCall {
	l.mu.Lock()
	var candidates []*lostCall
	newest := true
	for i := len(l.calls) - 1; i >= 0; i-- {
		c := l.calls[i]
		if c.thread != n.Thread() {
			continue
		}
		switch {
		case c.again != 0 && !newest:
			l.removeAt(i)
		case c.again == 0 && c.args == ioctlArgs(n):
			candidates = append(candidates, c)
		}
		newest = false
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

// delivered is the last call of a thread that was answered from here, or nil.
func (l *lostCalls) delivered(thread int) *lostCall {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range slices.Backward(l.calls) {
		if c.thread == thread && c.again != 0 {
			return c
		}
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
