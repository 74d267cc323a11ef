package gpumem

import (
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// UserPages is a range of another process's memory, as a driver sees pages that it has
// pinned. It is reached with process_vm_readv(2), so the pages stay the process's own;
// a pidfd tells a process that took over the number from the one that was meant.
type UserPages struct {
	pid        int
	addr, size uint64

	mu    sync.RWMutex
	pidfd int // -1 once closed
}

// NewUserPages names size bytes at addr of process pid. The process must be alive, and
// the caller must have ptrace rights over it for any access to succeed.
func NewUserPages(pid int, addr, size uint64) (*UserPages, error) {
	if size == 0 || addr+size < addr {
		return nil, fmt.Errorf("the range of %#x bytes at %#x of process %d wraps or is empty", size, addr, pid)
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, fmt.Errorf("opening process %d to reach its memory: %w", pid, err)
	}
	return &UserPages{pid: pid, addr: addr, size: size, pidfd: fd}, nil
}

// Size is the size of the range in bytes.
func (u *UserPages) Size() uint64 { return u.size }

// OnHost is always true.
func (u *UserPages) OnHost() bool { return true }

// Close forgets the process. Accesses fail from then on; further calls do nothing.
func (u *UserPages) Close() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.pidfd < 0 {
		return nil
	}
	err := unix.Close(u.pidfd)
	u.pidfd = -1
	return err
}

// ReadAt reads len(p) bytes at off of the range.
func (u *UserPages) ReadAt(p []byte, off int64) (int, error) {
	return u.access(p, off, unix.ProcessVMReadv)
}

// WriteAt writes p at off of the range.
func (u *UserPages) WriteAt(p []byte, off int64) (int, error) {
	return u.access(p, off, unix.ProcessVMWritev)
}

type processVM func(pid int, local []unix.Iovec, remote []unix.RemoteIovec, flags uint) (int, error)

func (u *UserPages) access(p []byte, off int64, move processVM) (int, error) {
	if err := checkRange("the pinned pages", off, len(p), u.size); err != nil {
		return 0, err
	}
	u.mu.RLock()
	defer u.mu.RUnlock()
	if u.pidfd < 0 {
		return 0, fmt.Errorf("reaching memory of process %d: %w", u.pid, ErrClosed)
	}
	done := 0
	for done < len(p) {
		// A pidfd whose process is gone says so; only then could the number be another's.
		if err := unix.PidfdSendSignal(u.pidfd, 0, nil, 0); err != nil && !errors.Is(err, unix.EPERM) {
			return done, fmt.Errorf("process %d, whose memory was pinned, is gone: %w", u.pid, err)
		}
		local := []unix.Iovec{{Base: &p[done]}}
		local[0].SetLen(len(p) - done)
		at := u.addr + uint64(off) + uint64(done)
		n, err := move(u.pid, local, []unix.RemoteIovec{{Base: uintptr(at), Len: len(p) - done}}, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return done, fmt.Errorf("reaching %d bytes at %#x of process %d: %w", len(p)-done, at, u.pid, err)
		}
		done += n
	}
	return done, nil
}
