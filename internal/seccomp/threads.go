package seccomp

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// maxIdleThreads bounds how many threads, and so pidfds, are remembered.
const maxIdleThreads = 256

// pidfdThread asks pidfd_open for a thread that need not lead its process
// (PIDFD_THREAD, Linux 6.9).
const pidfdThread = unix.O_EXCL

// thread is what is remembered of a filtered thread. It belongs to the
// notification that has taken it out of the cache. All of it may be out of date,
// since thread ids are reused; how each use notices is said there.
type thread struct {
	id      int
	process int    // 0 when not known
	pidfd   int    // -1 when not open
	used    uint64 // when it was last put into the cache
}

// inProcess reports whether the thread id is at present one of the remembered
// process. tgkill looks for the thread within the process before it looks at
// permissions, so that ESRCH alone means no.
func (t *thread) inProcess() bool {
	return !errors.Is(unix.Tgkill(t.process, t.id, 0), unix.ESRCH)
}

func (t *thread) setProcess(id int) {
	if t.process != 0 && t.process != id {
		t.closePidfd()
	}
	t.process = id
}

func (t *thread) closePidfd() {
	if t.pidfd >= 0 {
		unix.Close(t.pidfd)
		t.pidfd = -1
	}
}

// threadCache remembers the threads that called last. A thread is taken out
// while a notification uses it, which makes it that notification's alone.
type threadCache struct {
	// byProcess is set when the kernel has no pidfds of single threads.
	byProcess atomic.Bool

	mu     sync.Mutex
	max    int
	closed bool
	uses   uint64
	idle   map[int]*thread // by thread id
}

func newThreadCache(max int) *threadCache {
	return &threadCache{max: max, idle: make(map[int]*thread)}
}

// take hands out what is known of a thread, or a fresh thread.
func (c *threadCache) take(id int) *thread {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t, ok := c.idle[id]; ok {
		delete(c.idle, id)
		return t
	}
	return &thread{id: id, pidfd: -1}
}

// put takes a thread back. What does not fit is forgotten, the oldest first.
func (c *threadCache) put(t *thread) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		t.closePidfd()
		return
	}
	if older, ok := c.idle[t.id]; ok {
		older.closePidfd()
	} else if len(c.idle) >= c.max {
		c.forgetOldestLocked()
	}
	c.uses++
	t.used = c.uses
	c.idle[t.id] = t
}

func (c *threadCache) forgetOldestLocked() {
	var oldest *thread
	for _, t := range c.idle {
		if oldest == nil || t.used < oldest.used {
			oldest = t
		}
	}
	delete(c.idle, oldest.id)
	oldest.closePidfd()
}

// close forgets all threads, and those that are put later.
func (c *threadCache) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for id, t := range c.idle {
		delete(c.idle, id)
		t.closePidfd()
	}
}

// processOf reads the thread group id of a thread from /proc.
func processOf(id int) (int, error) {
	fd, err := unix.Open("/proc/"+strconv.Itoa(id)+"/status", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return 0, unix.ESRCH
	}
	if err != nil {
		return 0, fmt.Errorf("open /proc/%d/status: %w", id, err)
	}
	defer unix.Close(fd)
	buf := make([]byte, 512) // Tgid is the fourth line
	n, err := unix.Read(fd, buf)
	if err != nil {
		return 0, fmt.Errorf("read /proc/%d/status: %w", id, err)
	}
	return parseTgid(buf[:n])
}

func parseTgid(status []byte) (int, error) {
	const key = "\nTgid:\t"
	if _, rest, ok := bytes.Cut(status, []byte(key)); ok {
		if number, _, ok := bytes.Cut(rest, []byte("\n")); ok {
			if tgid, err := strconv.Atoi(string(number)); err == nil && tgid > 0 {
				return tgid, nil
			}
		}
	}
	return 0, fmt.Errorf("no Tgid in /proc/…/status: %w", unix.EPROTO)
}
