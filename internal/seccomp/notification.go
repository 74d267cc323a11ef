package seccomp

import (
	"bytes"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ErrGone says that the caller no longer waits for an answer: it was killed, or
// a signal interrupted its call. It is an ESRCH.
var ErrGone = fmt.Errorf("the call no longer waits for an answer: %w", unix.ESRCH)

const requestSize = int(unsafe.Sizeof(request{}))

// Notification is one system call of a filtered thread, waiting for an answer.
// It is valid until its handler returns, and used by one goroutine at a time.
//
// Memory and descriptors are reached with the rights of this process, which
// must be allowed to trace the caller (ptrace(2), PTRACE_MODE_ATTACH): the same
// user and a dumpable process, or CAP_SYS_PTRACE. Errors wrap a unix.Errno.
type Notification struct {
	listener *Listener
	req      *request // points into buf
	buf      []byte
	thread   *thread // taken from the cache on first use
	process  int     // once found for this call
	alive    bool    // the thread's own pidfd was used for this call: thread is the caller
	text     [256]byte
}

func newNotification(l *Listener) *Notification {
	n := &Notification{listener: l, buf: make([]byte, l.bufSize)}
	n.req = (*request)(unsafe.Pointer(unsafe.SliceData(n.buf)))
	return n
}

// reset makes n ready for the next call.
func (n *Notification) reset() {
	if n.thread != nil {
		n.listener.threads.put(n.thread)
		n.thread = nil
	}
	n.process, n.alive = 0, false
	clear(n.buf) // the kernel refuses a buffer that is not zero
}

// ID is the kernel's cookie of the notification.
func (n *Notification) ID() uint64 { return n.req.id }

// Thread is the calling thread's id, in this process's pid namespace. It is 0
// when the thread is in none that this process sees; then only the arguments
// can be had.
func (n *Notification) Thread() int { return int(n.req.pid) }

// Nr is the number of the system call (x86-64).
func (n *Notification) Nr() int { return int(n.req.data.nr) }

// Arg is the call's i-th argument, 0…5.
func (n *Notification) Arg(i int) uint64 { return n.req.data.args[i] }

// Valid reports whether the call still waits for its answer. Memory that was
// read is the caller's only if Valid holds after the reading; ReadMemory and
// ReadString see to that.
func (n *Notification) Valid() bool { return idValid(n.listener.fd, &n.req.id) == 0 }

// Process is the calling process's (thread group's) id, in this process's pid
// namespace.
func (n *Notification) Process() (int, error) {
	if n.process != 0 {
		return n.process, nil
	}
	if n.req.pid == 0 {
		return 0, n.fail("find the process", unix.ESRCH)
	}
	t := n.ownThread()
	if t.process == 0 || !n.alive && !t.inProcess() {
		process, err := processOf(t.id)
		if err != nil {
			return 0, n.fail("find the process", err)
		}
		if !n.Valid() {
			return 0, n.fail("find the process", unix.ESRCH)
		}
		t.setProcess(process)
	}
	n.process = t.process
	return n.process, nil
}

func (n *Notification) ownThread() *thread {
	if n.thread == nil {
		n.thread = n.listener.threads.take(n.Thread())
	}
	return n.thread
}

// ReadMemory fills p from the caller's memory at addr. It fails with EFAULT when
// not all of it can be read, and with ErrGone when the call no longer waits, as
// the memory may then be another process's.
func (n *Notification) ReadMemory(p []byte, addr uint64) error {
	if err := n.readPart(p, addr); err != nil {
		return n.failMemory("read", len(p), addr, err)
	}
	if !n.Valid() {
		return n.failMemory("read", len(p), addr, unix.ESRCH)
	}
	return nil
}

// readPart reads without the check that the memory is the caller's.
func (n *Notification) readPart(p []byte, addr uint64) error {
	return n.transfer(unix.SYS_PROCESS_VM_READV, p, addr)
}

// WriteMemory copies p to the caller's memory at addr. It fails with EFAULT when
// not all of it could be written; a part may have been. Nothing is written to a
// caller that was already gone; one that dies within the microsecond between
// that check and the write would need its thread id reused in it to matter.
func (n *Notification) WriteMemory(p []byte, addr uint64) error {
	if !n.Valid() {
		return n.failMemory("write", len(p), addr, unix.ESRCH)
	}
	if err := n.transfer(unix.SYS_PROCESS_VM_WRITEV, p, addr); err != nil {
		return n.failMemory("write", len(p), addr, err)
	}
	return nil
}

// transfer moves all of p or fails. It allocates nothing.
func (n *Notification) transfer(call uintptr, p []byte, addr uint64) error {
	if len(p) == 0 {
		return nil
	}
	if n.req.pid == 0 {
		return unix.ESRCH
	}
	local := unix.Iovec{Base: unsafe.SliceData(p), Len: uint64(len(p))}
	remote := unix.RemoteIovec{Base: uintptr(addr), Len: len(p)}
	done, _, errno := unix.Syscall6(call, uintptr(n.req.pid),
		uintptr(unsafe.Pointer(&local)), 1, uintptr(unsafe.Pointer(&remote)), 1, 0)
	if errno != 0 {
		return errno
	}
	if int(done) != len(p) {
		return unix.EFAULT
	}
	return nil
}

const pageSize = 4096

// ReadString reads a NUL-terminated string of at most max bytes, its NUL not
// counted. It fails with ENAMETOOLONG when there is no NUL by then.
func (n *Notification) ReadString(addr uint64, max int) (string, error) {
	var s []byte
	for {
		// A part never reaches into a page that the string may not reach.
		part := n.text[:min(len(n.text), max+1-len(s), pageSize-int(addr%pageSize))]
		if err := n.readPart(part, addr); err != nil {
			return "", n.failMemory("read a string of", len(part), addr, err)
		}
		end := bytes.IndexByte(part, 0)
		if end >= 0 {
			s = append(s, part[:end]...)
			break
		}
		s = append(s, part...)
		if len(s) > max {
			return "", n.failMemory("read a string of", max, addr, unix.ENAMETOOLONG)
		}
		addr += uint64(len(part))
	}
	if !n.Valid() {
		return "", n.failMemory("read a string of", len(s), addr, unix.ESRCH)
	}
	return string(s), nil
}

// Dup duplicates the caller's descriptor into this process, close-on-exec. The
// result is the caller's to close. It fails with EBADF when the caller has no
// such descriptor.
func (n *Notification) Dup(fd int32) (int, error) {
	own, err := n.dup(fd)
	if err != nil {
		return -1, n.fail(fmt.Sprintf("duplicate descriptor %d", fd), err)
	}
	return own, nil
}

func (n *Notification) dup(fd int32) (int, error) {
	if n.req.pid == 0 {
		return -1, unix.ESRCH
	}
	t := n.ownThread()
	cached := t.pidfd >= 0
	for {
		if err := n.openPidfd(t); err != nil {
			return -1, err
		}
		own, err := unix.PidfdGetfd(t.pidfd, int(fd), 0)
		if err == nil {
			n.alive = !n.listener.threads.byProcess.Load()
		}
		// A remembered descriptor may be of an earlier thread of the same number.
		// That one is dead then, or the number would not be in use again.
		if !errors.Is(err, unix.ESRCH) || !cached {
			return own, err
		}
		t.closePidfd()
		cached = false
	}
}

// openPidfd makes sure that t has a pidfd: of the thread itself, or before Linux
// 6.9 of its process.
func (n *Notification) openPidfd(t *thread) error {
	byProcess := n.listener.threads.byProcess.Load()
	if byProcess {
		// Also forgets the pidfd when the thread id is another process's by now.
		if _, err := n.Process(); err != nil {
			return err
		}
	}
	if t.pidfd >= 0 {
		return nil
	}
	id, flags := t.id, pidfdThread
	if byProcess {
		id, flags = t.process, 0
	}
	fd, err := unix.PidfdOpen(id, flags)
	if errors.Is(err, unix.EINVAL) && !byProcess {
		n.listener.threads.byProcess.Store(true)
		return n.openPidfd(t)
	}
	if err != nil {
		return err
	}
	if !n.Valid() {
		unix.Close(fd)
		return unix.ESRCH
	}
	t.pidfd = fd
	if !byProcess {
		t.process = n.process // what was known may be of an earlier thread of the number
	}
	return nil
}

// Inject gives the caller a new descriptor of this process's file fd, and
// returns its number there. A call that is lost afterwards leaves the caller
// with a descriptor it does not know of; where the call itself returns a
// descriptor, answer with Answer.Inject instead.
func (n *Notification) Inject(fd int, cloexec bool) (int, error) {
	added, errno := addDescriptor(n.listener.fd, n.addFD(fd, cloexec))
	if errno != 0 {
		return -1, n.failInject(fd, errno)
	}
	return added, nil
}

// Replace puts this process's file fd in place of the caller's descriptor target.
func (n *Notification) Replace(fd int, target int32, cloexec bool) error {
	if target < 0 {
		return n.fail(fmt.Sprintf("replace descriptor %d", target), unix.EBADF)
	}
	a := n.addFD(fd, cloexec)
	a.flags = unix.SECCOMP_ADDFD_FLAG_SETFD
	a.newfd = uint32(target)
	if _, errno := addDescriptor(n.listener.fd, a); errno != 0 {
		return n.failInject(fd, errno)
	}
	return nil
}

func (n *Notification) addFD(fd int, cloexec bool) *addFD {
	a := &addFD{id: n.req.id, srcfd: uint32(fd)}
	if cloexec {
		a.newfdFlags = unix.O_CLOEXEC
	}
	return a
}

func (n *Notification) failInject(fd int, errno unix.Errno) error {
	if errno == unix.ENOENT {
		errno = unix.ESRCH // there is no such notification any more
	}
	return n.fail(fmt.Sprintf("give it descriptor %d", fd), errno)
}

func (n *Notification) failMemory(verb string, size int, addr uint64, err error) error {
	return n.fail(fmt.Sprintf("%s %d bytes at %#x", verb, size, addr), err)
}

func (n *Notification) fail(what string, err error) error {
	if errors.Is(err, unix.ESRCH) {
		err = ErrGone
	}
	return fmt.Errorf("seccomp: thread %d: %s: %w", n.Thread(), what, err)
}
