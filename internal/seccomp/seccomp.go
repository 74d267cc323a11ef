// Package seccomp answers a process's system calls from another process, by
// Linux seccomp user notification. It assembles filters, installs them in front
// of an exec, receives notifications, and reaches the notified thread's memory
// and descriptors. It knows nothing of what the calls mean.
//
// The two sides meet over a Unix socket. In the process to be supervised,
// [Launch] installs a [Filter] and hands over its listener, and the caller
// execs. The supervisor takes the listener with [ReceiveListener], says with
// [Acknowledge] whether it accepts, and answers calls with [Listener.Serve].
//
// Linux 5.19 on x86-64 is the least that is supported; [ProbeFeatures] says
// what the running kernel offers.
package seccomp

import (
	"errors"
	"io"

	"golang.org/x/sys/unix"
)

// A Handler decides system calls. Handle is called by several goroutines at
// once, for different threads of the filtered processes; calls of one thread are
// handled one after the other. A panic in Handle is logged and its call answered
// with EIO.
type Handler interface {
	Handle(*Notification) Answer
}

// A LossObserver is a [Handler] that wants to know of answers that never
// arrived: the caller was killed, or, where WAIT_KILLABLE_RECV is not active
// ([Listener.WaitKillable]), a signal interrupted its wait. In the latter case
// the kernel may issue the same call again under a new id, and what the handler
// has done for the lost one must not be done twice.
//
// Lost is called on the goroutine that handled the call, before another call of
// the same thread is handled. The notification's memory and descriptors are out of reach
// by then; its thread and arguments can still be read. A descriptor of
// [Answer.Inject] has not been given to the caller.
type LossObserver interface {
	Handler
	Lost(*Notification, Answer)
}

// None is the value of [Answer.Inject] that injects nothing. It is the zero
// value, so descriptor 0 cannot be injected by an answer; the Go runtime keeps
// 0, 1 and 2 open from the start, so no file opened later has that number.
const None = 0

// Answer is what a handler decides for a notification. The zero Answer makes
// the call return 0.
type Answer struct {
	Value    int64 // the call's result, when Errno is 0
	Errno    int   // a positive errno, or 0
	Continue bool  // let the kernel execute the call as it stands
	// Inject, when not None, adds this descriptor to the caller and answers with
	// its number, in one step: the caller never sees a descriptor of an
	// interrupted call.
	Inject  int
	Cloexec bool // the injected descriptor is closed by exec
	// Release, when not nil, is closed once the answer was delivered or lost:
	// usually the file whose descriptor is injected, of which this process then
	// needs no copy of its own.
	Release io.Closer
}

// Result is the answer of a call that succeeded with value v.
func Result(v int64) Answer { return Answer{Value: v} }

// Fail is the answer of a call that failed with err: the errno err wraps, or
// EIO when it wraps none. A nil err is success with value 0.
func Fail(err error) Answer {
	if err == nil {
		return Answer{}
	}
	var errno unix.Errno
	if !errors.As(err, &errno) || errno == 0 {
		errno = unix.EIO
	}
	return Answer{Errno: int(errno)}
}
