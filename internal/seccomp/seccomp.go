// Package seccomp answers a process's system calls from another process, by
// Linux seccomp user notification. It assembles filters, installs them in front
// of an exec, receives notifications, and reaches the notified thread's memory
// and descriptors. It knows nothing of what the calls mean.
package seccomp

// Notification is one system call of a filtered thread, waiting for an answer.
// It is valid until its handler returns.
type Notification struct{}

// ID is the kernel's cookie of the notification.
func (n *Notification) ID() uint64 { panic("unimplemented") }

// Thread is the calling thread's id, in the listener's pid namespace.
func (n *Notification) Thread() int { panic("unimplemented") }

// Process is the calling process's (thread group's) id.
func (n *Notification) Process() (int, error) { panic("unimplemented") }

// Nr is the number of the system call (x86-64).
func (n *Notification) Nr() int { panic("unimplemented") }

// Arg is the call's i-th argument, 0…5.
func (n *Notification) Arg(i int) uint64 { panic("unimplemented") }

// Valid reports whether the call still waits for its answer. Memory that was
// read is the caller's only if Valid holds after the reading.
func (n *Notification) Valid() bool { panic("unimplemented") }

// ReadMemory fills p from the caller's memory at addr, and checks validity after.
func (n *Notification) ReadMemory(p []byte, addr uint64) error { panic("unimplemented") }

// WriteMemory copies p to the caller's memory at addr.
func (n *Notification) WriteMemory(p []byte, addr uint64) error { panic("unimplemented") }

// ReadString reads a NUL-terminated string of at most max bytes.
func (n *Notification) ReadString(addr uint64, max int) (string, error) { panic("unimplemented") }

// Dup duplicates the caller's descriptor into this process (pidfd_getfd), close-on-exec.
func (n *Notification) Dup(fd int32) (int, error) { panic("unimplemented") }

// Inject gives the caller a new descriptor of this process's file fd.
func (n *Notification) Inject(fd int, cloexec bool) (int, error) { panic("unimplemented") }

// Replace puts this process's file fd in place of the caller's descriptor target.
func (n *Notification) Replace(fd int, target int32, cloexec bool) error { panic("unimplemented") }

// Answer is what a handler decides for a notification.
type Answer struct {
	Value    int64 // the call's result, when Errno is 0
	Errno    int   // a positive errno, or 0
	Continue bool  // let the kernel execute the call as it stands
	// Inject, when not None, adds this descriptor to the caller and answers with
	// its number, in one step: the caller never sees a descriptor of an
	// interrupted call.
	Inject  int
	Cloexec bool
}
