package engine

import (
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// bell wakes the loop: at a time, more precisely than timers of the Go runtime do, or
// when it is rung.
type bell struct {
	pending atomic.Bool
	mu      sync.Mutex
	fd      int // an eventfd, or -1 if there are none left: then the bell is not heard
}

func newBell(log *slog.Logger) *bell {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		log.Warn("no eventfd for the card; it will notice submissions later", "error", err)
		fd = -1
	}
	return &bell{fd: fd}
}

// precise asks the kernel to wake the calling thread on time.
func (b *bell) precise() {
	// Without it sleeps are 50 µs longer, which is no error.
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
}

// ring ends the present wait, or the next one.
func (b *bell) ring() {
	if b.pending.Swap(true) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fd >= 0 {
		one := [8]byte{1}
		_, _ = unix.Write(b.fd, one[:]) // cannot fail: the counter is far from full
	}
}

// spin is the longest wait, in ns, that is spent awake: to fall asleep and to wake up
// takes longer, above all on a virtual machine.
const spin = 15_000

// wait sleeps for ns nanoseconds, or until rung if ns is negative.
func (b *bell) wait(ns int64) {
	if ns == 0 {
		runtime.Gosched()
		return
	}
	if ns > 0 && ns < spin {
		for begin := time.Now(); time.Since(begin) < time.Duration(ns) && !b.pending.Load(); {
		}
		return
	}
	if b.fd < 0 && (ns < 0 || ns > longestPause) {
		ns = longestPause
	}
	var timeout *unix.Timespec
	if ns > 0 {
		t := unix.NsecToTimespec(ns)
		timeout = &t
	}
	fds := []unix.PollFd{{Fd: int32(b.fd), Events: unix.POLLIN}}
	n, err := unix.Ppoll(fds, timeout, nil)
	if err == nil && n > 0 {
		// In this order: a ring that finds pending still set is heard by the turn that
		// follows; the other way round its write could be read here and leave pending set
		// for good.
		var count [8]byte
		_, _ = unix.Read(b.fd, count[:])
		b.pending.Store(false)
	}
}

func (b *bell) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fd >= 0 {
		_ = unix.Close(b.fd)
		b.fd = -1
	}
}
