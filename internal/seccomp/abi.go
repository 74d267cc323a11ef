package seccomp

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// request is struct seccomp_notif (linux/seccomp.h).
type request struct {
	id    uint64
	pid   uint32 // a thread id, in the receiver's pid namespace; 0 if outside it
	flags uint32
	data  callData
}

// callData is struct seccomp_data.
type callData struct {
	nr   int32
	arch uint32
	ip   uint64
	args [6]uint64
}

// response is struct seccomp_notif_resp.
type response struct {
	id    uint64
	val   int64
	errno int32 // negative
	flags uint32
}

// addFD is struct seccomp_notif_addfd.
type addFD struct {
	id         uint64
	flags      uint32
	srcfd      uint32
	newfd      uint32
	newfdFlags uint32
}

// notifSizes is struct seccomp_notif_sizes: the sizes the running kernel uses.
type notifSizes struct {
	notif, resp, data uint16
}

// waitKillableRecv (5.19) makes a received call wait uninterrupted by signals
// other than fatal ones, so that it is answered exactly once.
const waitKillableRecv = unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV

// setModeFilter calls seccomp(SECCOMP_SET_MODE_FILTER) for the current thread.
func setModeFilter(flags uintptr, prog *unix.SockFprog) (int, error) {
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(prog)))
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}

// kernelSizes asks for the sizes of the notification structs.
func kernelSizes() (notifSizes, error) {
	var s notifSizes
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_NOTIF_SIZES, 0, uintptr(unsafe.Pointer(&s))); errno != 0 {
		return s, fmt.Errorf("seccomp: this kernel has no user notification (Linux 5.19 or later is needed): %w", errno)
	}
	return s, nil
}

// The ioctls below differ in whether they can block. Those that cannot for long skip
// the Go scheduler's bookkeeping around system calls. All take the filter's lock, and
// fail with EINTR when a signal comes while they wait for that: nothing was done then.

func receive(fd int, r *request) unix.Errno {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(r)))
	return errno
}

func send(fd int, r *response) unix.Errno {
	for {
		_, _, errno := unix.RawSyscall(unix.SYS_IOCTL, uintptr(fd), unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(r)))
		if errno != unix.EINTR {
			return errno
		}
	}
}

func idValid(fd int, id *uint64) unix.Errno {
	for {
		_, _, errno := unix.RawSyscall(unix.SYS_IOCTL, uintptr(fd), unix.SECCOMP_IOCTL_NOTIF_ID_VALID, uintptr(unsafe.Pointer(id)))
		if errno != unix.EINTR {
			return errno
		}
	}
}

// addDescriptor waits until the caller's thread has taken the descriptor.
//
// No signal may interrupt that, and Go's runtime sends its threads many: with
// SECCOMP_ADDFD_FLAG_SEND the kernel has marked the call as answered by then. It would
// take the descriptor back all the same, and the caller would get the number 0
// (seccomp_notify_addfd in kernel/seccomp.c). The wait is short: the caller's thread
// does nothing else, and ends it also when it dies.
func addDescriptor(fd int, a *addFD) (int, unix.Errno) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all, before unix.Sigset_t
	for i := range all.Val {
		all.Val[i] = ^uint64(0)
	}
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, &before); err != nil {
		return -1, unix.EINVAL
	}
	n, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SECCOMP_IOCTL_NOTIF_ADDFD, uintptr(unsafe.Pointer(a)))
	_ = unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil) // cannot fail: the set is the kernel's own
	return int(n), errno
}

func setSyncWakeUp(fd int) unix.Errno {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SECCOMP_IOCTL_NOTIF_SET_FLAGS, unix.SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP)
	return errno
}
