package seccomp

import (
	"errors"
	"fmt"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"
)

// InstallOptions vary how a filter is installed.
type InstallOptions struct {
	// NoNewPrivs sets the thread's no_new_privs, which disables set-user-ID
	// programs, even where the kernel does not demand it. It is set in any case
	// when the thread lacks CAP_SYS_ADMIN.
	NoNewPrivs bool
	// Interruptible leaves out WAIT_KILLABLE_RECV: a signal then interrupts a call
	// that is being handled, and the call may be issued again.
	Interruptible bool
}

// Installed is a filter's listener, as the thread that installed it holds it.
type Installed struct {
	FD           int  // the listener, close-on-exec; the caller's to close
	WaitKillable bool // WAIT_KILLABLE_RECV is active
}

// Install puts f in front of all later system calls of the current thread and
// of all threads and processes it begets. The goroutine must be locked to its
// thread ([runtime.LockOSThread]) and must never unlock it: the filter cannot be
// removed. After Install the thread must not make a call that f notifies before
// somebody answers; it may exec.
//
// A task has one listener only: Install fails with EBUSY when the thread already
// runs under a filter whose listener is open.
func Install(f Filter, o InstallOptions) (Installed, error) {
	code, err := f.Assemble()
	if err != nil {
		return Installed{FD: -1}, err
	}
	if o.NoNewPrivs {
		if err := setNoNewPrivs(); err != nil {
			return Installed{FD: -1}, err
		}
	}
	in, err := install(code, !o.Interruptible)
	if errors.Is(err, unix.EACCES) && !o.NoNewPrivs {
		// The kernel's answer to a thread that has neither CAP_SYS_ADMIN nor no_new_privs.
		if err := setNoNewPrivs(); err != nil {
			return in, err
		}
		in, err = install(code, !o.Interruptible)
	}
	return in, explainInstall(err)
}

// InstallUnsupervised is [Install] for a filter that notifies nobody, and so needs no
// supervisor and leaves the task free to have a listener of another filter.
func InstallUnsupervised(f Filter) error {
	notifies := func(r Rule) bool { return r.Action == Notify }
	if f.Default == Notify || slices.ContainsFunc(f.Rules, notifies) {
		return errors.New("seccomp: a filter without a supervisor notifies one")
	}
	code, err := f.Assemble()
	if err != nil {
		return err
	}
	prog := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	defer runtime.KeepAlive(code)
	_, err = setModeFilter(0, &prog)
	if errors.Is(err, unix.EACCES) {
		if err := setNoNewPrivs(); err != nil {
			return err
		}
		_, err = setModeFilter(0, &prog)
	}
	return explainInstall(err)
}

func install(code []unix.SockFilter, waitKillable bool) (Installed, error) {
	prog := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	defer runtime.KeepAlive(code)
	flags := uintptr(unix.SECCOMP_FILTER_FLAG_NEW_LISTENER)
	if waitKillable {
		fd, err := setModeFilter(flags|waitKillableRecv, &prog)
		if !errors.Is(err, unix.EINVAL) {
			return Installed{FD: fd, WaitKillable: err == nil}, err
		}
	}
	fd, err := setModeFilter(flags, &prog)
	return Installed{FD: fd}, err
}

func explainInstall(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("seccomp: install the filter: this thread already runs under a filter with a listener, and the kernel allows one: %w", err)
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS):
		return fmt.Errorf("seccomp: install the filter: this kernel has no seccomp user notification (Linux 5.19 or later is needed): %w", err)
	default:
		return fmt.Errorf("seccomp: install the filter: %w", err)
	}
}

func setNoNewPrivs() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("seccomp: set no_new_privs: %w", err)
	}
	return nil
}
