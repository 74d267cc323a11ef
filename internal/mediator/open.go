package mediator

import (
	"path"
	"strconv"
	"strings"

	"github.com/qgpu-project/qgpu/internal/seccomp"
	"golang.org/x/sys/unix"
)

const maxPath = 4096 // PATH_MAX

// open answers open(2) and openat(2). The tenant itself may open no device file: it
// gets the mediator's.
func (m *Mediator) open(n Notification, dirfd int32, addr uint64, flags int) seccomp.Answer {
	name, err := n.ReadString(addr, maxPath)
	if err != nil {
		return fail(unix.EFAULT)
	}
	if !strings.HasPrefix(path.Base(name), "nvidia") && !strings.HasPrefix(name, "/dev/nvidia") {
		return letThrough()
	}
	if !path.IsAbs(name) {
		dir, err := m.processes.Directory(n.Thread(), dirfd)
		if err != nil {
			return letThrough() // the kernel will say what is wrong with it
		}
		name = path.Join(dir, name)
	}
	name = path.Clean(name)
	if !strings.HasPrefix(name, "/dev/nvidia") {
		return letThrough()
	}
	d, ok := m.device(name)
	if !ok {
		m.refused("open " + visible(name))
		return fail(unix.ENOENT)
	}
	return m.openDevice(n, name, d, flags)
}

// device says which device file a path names, if the tenant has it. Others are not
// there: other cards, nvidia-uvm-tools, nvidia-modeset and capabilities.
func (m *Mediator) device(name string) (deviceFile, bool) {
	switch name {
	case "/dev/nvidiactl":
		return deviceFile{kind: controlFile}, true
	case "/dev/nvidia-uvm":
		return deviceFile{kind: uvmFile}, true
	}
	digits := strings.TrimPrefix(name, "/dev/nvidia")
	minor, err := strconv.ParseUint(digits, 10, 8)
	if err != nil || strconv.FormatUint(minor, 10) != digits {
		return deviceFile{}, false
	}
	i, ok := m.cardByMinor(int(minor))
	return deviceFile{kind: cardFile, card: i}, ok
}

func (m *Mediator) openDevice(n Notification, name string, d deviceFile, flags int) seccomp.Answer {
	pid, err := n.Process()
	if err != nil {
		return fail(unix.ESRCH)
	}
	if err := m.mayUse(pid); err != nil {
		m.refused("open: " + err.Error())
		return fail(unix.EACCES)
	}
	if err := m.tenants.admit(pid); err != nil {
		m.log.Warn("a process may not use the driver", "process", pid, "error", err)
		return fail(unix.EAGAIN)
	}
	if d.kind == uvmFile {
		m.reopensUVM(pid)
	}
	fd, err := m.driver.Open(name, flags&(unix.O_ACCMODE|unix.O_NONBLOCK))
	if err != nil {
		return fail(errnoOf(err))
	}
	s, err := m.driver.Stat(fd)
	if err != nil {
		m.close(fd)
		return fail(errnoOf(err))
	}
	m.files.add(s, d)
	return seccomp.Answer{Inject: fd, Cloexec: flags&unix.O_CLOEXEC != 0, Release: ownFile{m, fd}}
}

// ownFile is a descriptor of the mediator's to be closed once the tenant has its own.
type ownFile struct {
	m  *Mediator
	fd int
}

// Close implements io.Closer.
func (f ownFile) Close() error { return f.m.driver.Close(f.fd) }

// visible shortens and cleans a path of the tenant for logs and counts.
func visible(name string) string {
	if len(name) > 64 {
		name = name[:64]
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, name)
}
