package seccomp

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// Features is what the running kernel offers of what this package uses.
type Features struct {
	KernelVersion string // as uname reports it

	// Required: without any of these nothing works.
	UserNotification bool // notifications (Linux 5.0)
	AddFDSend        bool // descriptor and answer in one step (5.14)
	PidfdGetfd       bool // duplicating the caller's descriptors (5.6)
	RemoteMemory     bool // process_vm_readv (CONFIG_CROSS_MEMORY_ATTACH)

	// Helpful.
	WaitKillableRecv bool // calls that signals cannot interrupt (5.19)
	SyncWakeUp       bool // answers that wake the caller on this CPU (6.6)
	ThreadPidfd      bool // pidfds of single threads (6.9)
}

// Missing lists what is required and absent, in words.
func (f Features) Missing() []string {
	var missing []string
	for _, feature := range []struct {
		present bool
		name    string
	}{
		{f.UserNotification, "seccomp user notification (Linux 5.0, CONFIG_SECCOMP_FILTER)"},
		{f.AddFDSend, "descriptor injection with the answer (Linux 5.14)"},
		{f.PidfdGetfd, "pidfd_getfd (Linux 5.6)"},
		{f.RemoteMemory, "process_vm_readv (CONFIG_CROSS_MEMORY_ATTACH)"},
	} {
		if !feature.present {
			missing = append(missing, feature.name)
		}
	}
	return missing
}

// ProbeFeatures asks the running kernel. Most questions need no filter. Those
// about listeners do: a filter that allows everything is installed on a thread
// made for it, which the Go runtime destroys at once, since its goroutine ends
// while locked to it. An error says what could not be found out, typically
// because this process runs under a listener already; the rest is filled in.
func ProbeFeatures() (Features, error) {
	var f Features
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return f, fmt.Errorf("seccomp: read the kernel's version: %w", err)
	}
	f.KernelVersion = unix.ByteSliceToString(uts.Release[:])
	f.PidfdGetfd = probePidfdGetfd()
	f.ThreadPidfd = probeThreadPidfd()
	f.RemoteMemory = probeRemoteMemory()
	// Flags are checked before the program, whose address is null here: EFAULT
	// tells that the flags are known, EINVAL that they are not.
	_, err := setModeFilter(unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, nil)
	f.UserNotification = errors.Is(err, unix.EFAULT)
	_, err = setModeFilter(unix.SECCOMP_FILTER_FLAG_NEW_LISTENER|waitKillableRecv, nil)
	f.WaitKillableRecv = errors.Is(err, unix.EFAULT)
	if !f.UserNotification {
		return f, nil
	}
	return f, onThrowAwayThread(f.probeListener)
}

// onThrowAwayThread runs fn on a thread that ends afterwards. The runtime cannot
// destroy a process's first thread, so if the goroutine finds itself there it
// stays, to keep the thread taken, and starts another.
func onThrowAwayThread(fn func() error) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			err := onThrowAwayThread(fn)
			runtime.UnlockOSThread()
			result <- err
			return
		}
		result <- fn()
	}()
	return <-result
}

func (f *Features) probeListener() error {
	in, err := Install(Filter{}, InstallOptions{})
	if err != nil {
		return fmt.Errorf("seccomp: find out what listeners can do: %w", err)
	}
	defer unix.Close(in.FD)
	f.SyncWakeUp = setSyncWakeUp(in.FD) == 0
	// Of a notification that does not exist. An unknown flag is refused first.
	_, errno := addDescriptor(in.FD, &addFD{flags: unix.SECCOMP_ADDFD_FLAG_SEND, srcfd: uint32(in.FD)})
	f.AddFDSend = errno == unix.ENOENT
	return nil
}

func probePidfdGetfd() bool {
	pidfd, err := unix.PidfdOpen(unix.Getpid(), 0)
	if err != nil {
		return false
	}
	defer unix.Close(pidfd)
	fd, err := unix.PidfdGetfd(pidfd, pidfd, 0)
	if err != nil {
		return false
	}
	unix.Close(fd)
	return true
}

func probeThreadPidfd() bool {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	fd, err := unix.PidfdOpen(unix.Gettid(), pidfdThread)
	if err != nil {
		return false
	}
	unix.Close(fd)
	return true
}

func probeRemoteMemory() bool {
	_, err := unix.ProcessVMReadv(unix.Getpid(), nil, nil, 0)
	return err == nil
}
