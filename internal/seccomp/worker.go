package seccomp

import (
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// A worker is a thread that receives calls while it is the leader, and answers
// those it received.
type worker struct {
	server       *server
	notification *Notification
	response     response
	promoted     chan struct{}
	// state is the number of calls received, and a phase in the low two bits. The
	// worker goes from waiting to busy and back; only the watch makes it demoted,
	// and only from busy.
	state atomic.Uint64
}

const (
	waiting   = iota // the leader, waiting for a call
	busy             // the leader, handling a call
	demoted          // not the leader
	phases    = 4
	phaseMask = phases - 1
)

func phaseOf(state uint64) uint64 { return state & phaseMask }

// lead makes a demoted worker's state that of the leader, which waits.
func (w *worker) lead() { w.state.Store(w.state.Load()&^phaseMask + waiting) }

func (w *worker) run() {
	// One thread throughout: it is the caller's partner for the scheduler. It ends with the
	// worker, since a handler may have changed how it is scheduled.
	runtime.LockOSThread()
	defer w.server.running.Done()
	for w.serve() && w.server.park(w) {
	}
}

// serve handles calls while the worker is the leader. It is false when serving
// ends.
func (w *worker) serve() bool {
	n := w.notification
	for {
		n.reset()
		if !w.receive() {
			return false
		}
		turn := w.server.turns.enter(w, n.Thread())
		state := w.state.Load()&^phaseMask + phases + busy
		w.state.Store(state)
		w.server.called()
		w.answer(turn)
		w.server.turns.finish(w, n.Thread())
		if !w.state.CompareAndSwap(state, state-busy+waiting) {
			// promote has put the call on record, perhaps only just now.
			w.server.awaitPromotion()
			w.server.turns.finish(w, n.Thread())
			n.reset()
			return true
		}
	}
}

// answer has the call decided and answers it, after its turn came if it has to
// wait for one.
func (w *worker) answer(turn <-chan bool) {
	if turn != nil && (!<-turn || !w.notification.Valid()) {
		return // interrupted before anything was done: nobody waits for an answer
	}
	a := w.decide()
	w.deliver(a)
	if a.Release != nil {
		a.Release.Close()
	}
}

// receive waits for a call. It is false when serving ends.
func (w *worker) receive() bool {
	s := w.server
	for {
		fds := [...]unix.PollFd{
			{Fd: int32(s.listener.fd), Events: unix.POLLIN},
			{Fd: int32(s.wake), Events: unix.POLLIN},
		}
		if _, err := unix.Poll(fds[:], -1); err != nil && err != unix.EINTR {
			s.finish(fmt.Errorf("seccomp: wait for a call: %w", err))
			return false
		}
		switch {
		case fds[1].Revents != 0:
			return false
		case fds[0].Revents&unix.POLLIN != 0:
			// The leader alone receives, so this does not block: a call that has gone
			// since still makes it return, with ENOENT.
			errno := receive(s.listener.fd, w.notification.req)
			if errno == 0 {
				return true
			}
			if errno != unix.ENOENT && errno != unix.EINTR {
				s.finish(fmt.Errorf("seccomp: receive a call: %w", errno))
				return false
			}
			clear(w.notification.buf)
		case fds[0].Revents&unix.POLLHUP != 0:
			s.finish(nil)
			return false
		case fds[0].Revents == unix.POLLERR:
			// A signal came while the kernel waited for the filter's lock.
		case fds[0].Revents != 0:
			s.finish(fmt.Errorf("seccomp: the listener cannot be polled (events %#x)", fds[0].Revents))
			return false
		}
	}
}

// decide asks the handler.
func (w *worker) decide() (a Answer) {
	defer func() {
		if r := recover(); r != nil {
			w.logPanic(r)
			a = Answer{Errno: int(unix.EIO)}
		}
	}()
	return w.server.handler.Handle(w.notification)
}

// logPanic reports a panic; of many it reports ever fewer, as a filtered program
// may be able to repeat them at will.
func (w *worker) logPanic(r any) {
	if count := w.server.panics.Add(1); count&(count-1) == 0 {
		w.server.log.Error("panic in the handler of a system call",
			"panic", fmt.Sprint(r), "count", count, callAttr(w.notification), "stack", string(debug.Stack()))
	}
}

func callAttr(n *Notification) slog.Attr {
	return slog.Group("call", "thread", n.Thread(), "nr", n.Nr(), "args", fmt.Sprintf("%#x", n.req.data.args))
}

// deliver answers the call, or tells the handler that it cannot be answered.
func (w *worker) deliver(a Answer) {
	n := w.notification
	errno := unix.Errno(0)
	if a.Inject > None && a.Errno == 0 && !a.Continue {
		errno = w.inject(a)
		if errno != 0 && errno != unix.ENOENT {
			// The call still waits for an answer.
			errno = w.send(w.refusedInjection(a, errno))
		}
	} else {
		errno = w.send(a)
	}
	switch errno {
	case 0:
	case unix.ENOENT:
		if w.server.lost != nil {
			w.observeLoss(a)
		}
	default:
		w.server.log.Error("a system call could not be answered", "error", errno, callAttr(n))
	}
}

func (w *worker) send(a Answer) unix.Errno {
	r := &w.response
	*r = response{id: w.notification.req.id}
	switch {
	case a.Continue:
		r.flags = unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE
	case a.Errno < 0 || a.Errno > maxUserErrno:
		w.server.log.Error("the handler answered with an errno that does not exist", "errno", a.Errno, callAttr(w.notification))
		r.errno = -int32(unix.EIO)
	case a.Errno > 0:
		r.errno = -int32(a.Errno)
	default:
		r.val = a.Value
	}
	return send(w.server.listener.fd, r)
}

// maxUserErrno is below the kernel's own error numbers, which start at 512
// (include/linux/errno.h) and would have it restart the call.
const maxUserErrno = 511

func (w *worker) inject(a Answer) unix.Errno {
	request := w.notification.addFD(a.Inject, a.Cloexec)
	request.flags = unix.SECCOMP_ADDFD_FLAG_SEND
	_, errno := addDescriptor(w.server.listener.fd, request)
	return errno
}

// refusedInjection is the answer when the caller could not be given a
// descriptor. EMFILE is the caller's own limit, as for any call that opens.
func (w *worker) refusedInjection(a Answer, errno unix.Errno) Answer {
	if errno != unix.EMFILE {
		w.server.log.Error("a descriptor could not be given to the caller of a system call",
			"descriptor", a.Inject, "error", errno, callAttr(w.notification))
		errno = unix.EIO
	}
	return Answer{Errno: int(errno)}
}

func (w *worker) observeLoss(a Answer) {
	defer func() {
		if r := recover(); r != nil {
			w.logPanic(r)
		}
	}()
	w.server.lost.Lost(w.notification, a)
}
