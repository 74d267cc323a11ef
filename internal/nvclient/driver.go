// Package nvclient is a small client of NVIDIA's resource manager (RM). It lists
// the cards of a machine and asks the driver how much memory a process holds,
// over the driver's own ioctls and with no library of NVIDIA. It knows nothing
// of tenants or quotas.
package nvclient

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Driver reaches device files. Kernel is the real one.
type Driver interface {
	// Open opens a device file; the descriptor is close-on-exec.
	Open(path string, flags int) (int, error)
	// Ioctl performs ioctl(2). The memory behind arg, and all memory that it
	// points to, must not move.
	Ioctl(fd int, cmd uint32, arg unsafe.Pointer) error
	Close(fd int) error
}

// Kernel makes plain system calls, so that it works in a process whose calls are
// themselves answered by seccomp notification. Every method repeats the call
// when a signal interrupted it.
type Kernel struct{}

// Open implements Driver.
func (Kernel) Open(path string, flags int) (int, error) {
	for {
		fd, err := unix.Openat(unix.AT_FDCWD, path, flags|unix.O_CLOEXEC, 0)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

// Ioctl implements Driver.
func (Kernel) Ioctl(fd int, cmd uint32, arg unsafe.Pointer) error {
	for {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(cmd), uintptr(arg))
		switch errno {
		case 0:
			return nil
		case unix.EINTR:
		default:
			return errno
		}
	}
}

// Close implements Driver.
func (Kernel) Close(fd int) error { return unix.Close(fd) }
