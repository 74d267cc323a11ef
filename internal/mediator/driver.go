package mediator

import (
	"bytes"
	"fmt"
	"os"
	"strconv"

	"github.com/qgpu-project/qgpu/internal/nvclient"
	"golang.org/x/sys/unix"
)

// Driver is what the mediator does with device files and duplicates of the
// tenant's descriptors.
type Driver interface {
	nvclient.Driver
	// Stat identifies the file behind one of this process's descriptors.
	Stat(fd int) (Stat, error)
	// Dup duplicates one of this process's descriptors, close-on-exec.
	Dup(fd int) (int, error)
	// Same reports whether two descriptors of this process are one open file.
	Same(a, b int) bool
}

// Stat identifies an open file.
type Stat struct {
	Dev, Ino  uint64
	Character bool
	Rdev      uint64 // of a character device
	Event     uint64 // the eventfd-id of an eventfd, all of which share one inode
}

// Kernel is the Driver of production.
type Kernel struct{ nvclient.Kernel }

// Stat implements Driver. It uses fstat(2) itself: libc's fstat is newfstatat, which
// filters of other programs may notify.
func (Kernel) Stat(fd int) (Stat, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return Stat{}, err
	}
	s := Stat{Dev: st.Dev, Ino: st.Ino}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFCHR:
		s.Character, s.Rdev = true, st.Rdev
	case 0: // an anonymous inode
		s.Event = eventID(fd)
	}
	return s, nil
}

// Dup implements Driver.
func (Kernel) Dup(fd int) (int, error) { return unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0) }

// Same implements Driver by kcmp(2). On a kernel without it, files of the same inode
// are taken for one.
func (k Kernel) Same(a, b int) bool {
	const kcmpFile = 0
	self := uintptr(os.Getpid())
	order, _, errno := unix.Syscall6(unix.SYS_KCMP, self, self, kcmpFile, uintptr(a), uintptr(b), 0)
	if errno == 0 {
		return order == 0
	}
	x, err := k.Stat(a)
	if err != nil {
		return false
	}
	y, err := k.Stat(b)
	return err == nil && x == y
}

// eventID is the kernel's id of an eventfd, or 0 if fd is none.
func eventID(fd int) uint64 {
	info, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", fd))
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(info) {
		if rest, ok := bytes.CutPrefix(line, []byte("eventfd-id:")); ok {
			id, err := strconv.ParseUint(string(bytes.TrimSpace(rest)), 10, 64)
			if err != nil {
				return 0
			}
			return id + 1 // ids begin with 0
		}
	}
	return 0
}
