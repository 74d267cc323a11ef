package host

import (
	"log/slog"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/qgpu-project/qgpu/internal/privilege"
	"github.com/qgpu-project/qgpu/internal/seccomp"
	"github.com/qgpu-project/qgpu/internal/simgpu"
)

// handler answers the calls of one filtered process tree from the driver.
type handler struct {
	driver *simgpu.Driver
	paths  paths
	log    *slog.Logger
}

// Handle implements seccomp.Handler.
func (h *handler) Handle(n *seccomp.Notification) seccomp.Answer {
	if n.Nr() == unix.SYS_IOCTL {
		return h.ioctl(n)
	}
	call, ok := pathCalls[n.Nr()]
	if !ok {
		return seccomp.Answer{Continue: true}
	}
	path, err := n.ReadString(n.Arg(call.path), unix.PathMax)
	if err != nil {
		return seccomp.Fail(unix.EFAULT)
	}
	return call.answer(h, n, path)
}

func (h *handler) ioctl(n *seccomp.Notification) seccomp.Answer {
	fd, cmd := int32(n.Arg(0)), uint32(n.Arg(1))
	c := &caller{n: n}
	id, err := c.FileOf(fd)
	if err != nil {
		return seccomp.Fail(err)
	}
	if !h.driver.Owns(id) {
		return seccomp.Answer{Continue: true}
	}
	if err := h.driver.Ioctl(c, id, cmd, n.Arg(2)); err != nil {
		return seccomp.Fail(err)
	}
	return seccomp.Answer{}
}

// open answers an open of a device file or of a file that the driver shows.
func (h *handler) open(n *seccomp.Notification, path string, flags int) seccomp.Answer {
	if node, ok := h.driver.Lookup(path); ok {
		f, err := h.driver.Open(&caller{n: n}, node)
		if err != nil {
			return seccomp.Fail(err)
		}
		return inject(f, flags)
	}
	if strings.HasPrefix(path, "/dev/nvidia") {
		return seccomp.Fail(unix.ENOENT)
	}
	f, shown, err := h.paths.open(path)
	switch {
	case err != nil:
		return seccomp.Fail(err)
	case shown && flags&unix.O_ACCMODE != unix.O_RDONLY:
		f.Close()
		return seccomp.Fail(unix.EACCES)
	case shown:
		return inject(f, flags)
	}
	if h.paths.hidden(path) {
		return seccomp.Fail(unix.ENOENT)
	}
	return seccomp.Answer{Continue: true}
}

func inject(f *os.File, flags int) seccomp.Answer {
	return seccomp.Answer{Inject: int(f.Fd()), Cloexec: flags&unix.O_CLOEXEC != 0, Release: f}
}

// caller is the process behind a notification, as the driver sees it.
type caller struct {
	n *seccomp.Notification
}

func (c *caller) Process() (int, error)                   { return c.n.Process() }
func (c *caller) ReadMemory(p []byte, addr uint64) error  { return c.n.ReadMemory(p, addr) }
func (c *caller) WriteMemory(p []byte, addr uint64) error { return c.n.WriteMemory(p, addr) }
func (c *caller) ReplaceFile(fd int32, f *os.File) error  { return c.n.Replace(int(f.Fd()), fd, true) }

// Privileged implements simgpu.PrivilegedCaller: the driver asks for CAP_SYS_ADMIN
// in the machine's own user namespace, for which the simulator's stands here.
func (c *caller) Privileged() bool { return c.has(unix.CAP_SYS_ADMIN) }

// Nice implements simgpu.NiceCaller.
func (c *caller) Nice() bool { return c.has(unix.CAP_SYS_NICE) }

func (c *caller) has(capability int) bool {
	thread := c.n.Thread()
	caps, err := privilege.Effective(thread)
	if err != nil || !caps.Has(capability) {
		return false
	}
	same, err := privilege.SameUserNamespace(thread)
	return err == nil && same && c.n.Valid()
}

// FileOf identifies the caller's file through a duplicate of its descriptor.
func (c *caller) FileOf(fd int32) (simgpu.FileID, error) {
	dup, err := c.n.Dup(fd)
	if err != nil {
		return simgpu.FileID{}, err
	}
	defer unix.Close(dup)
	return simgpu.Identify(dup)
}
