package seccomp

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// DefaultMaxWorkers is the number of calls a listener handles at once unless
// told otherwise.
const DefaultMaxWorkers = 512

// A Listener is the supervisor's end of a filter. The exported fields may be set
// before Serve.
type Listener struct {
	// MaxWorkers bounds how many calls are handled at once; 0 means
	// DefaultMaxWorkers. Further calls wait.
	MaxWorkers int
	// Log receives what goes wrong with single calls; nil discards it.
	Log *slog.Logger
	// WaitKillable tells that WAIT_KILLABLE_RECV is active: a received call waits
	// for its answer whatever signals arrive, short of a fatal one. Set by
	// ReceiveListener from what the launcher says; the launcher is not trusted by
	// this package in any other way.
	WaitKillable bool
	// SyncWakeUp tells that answers wake the caller on this CPU (Linux 6.6).
	SyncWakeUp bool

	fd      int
	bufSize int // of a request, as this kernel writes it
	threads *threadCache
	slow    time.Duration // slowCall

	mu     sync.Mutex
	users  int // who uses fd: 1 until Close, and 1 for each Serve
	closed bool
}

// NewListener takes over fd, a seccomp listener; it is closed if it is none.
func NewListener(fd int) (*Listener, error) {
	sizes, err := kernelSizes()
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	var id uint64 // no notification has id 0 at first, so the answer is ENOENT
	if errno := idValid(fd, &id); errno != 0 && errno != unix.ENOENT {
		unix.Close(fd)
		return nil, fmt.Errorf("seccomp: descriptor %d is not a seccomp listener: %w", fd, errno)
	}
	return &Listener{
		fd:         fd,
		bufSize:    max(int(sizes.notif), requestSize),
		threads:    newThreadCache(maxIdleThreads),
		slow:       slowCall,
		users:      1,
		SyncWakeUp: setSyncWakeUp(fd) == 0,
	}, nil
}

// Close gives up the listener. Calls that wait for an answer, and all later
// ones, fail with ENOSYS, unless another process holds the listener too. While
// Serve runs the descriptor stays open until it has returned and no handler is
// left.
func (l *Listener) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	l.dropLocked()
	return nil
}

var errClosed = errors.New("seccomp: the listener is closed")

// hold keeps the descriptor open until drop.
func (l *Listener) hold() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return errClosed
	}
	l.users++
	return nil
}

func (l *Listener) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dropLocked()
}

func (l *Listener) dropLocked() {
	if l.users--; l.users == 0 {
		unix.Close(l.fd)
		l.threads.close()
	}
}
