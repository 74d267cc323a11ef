package mediator

import (
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/qgpu-project/qgpu/internal/nvclient"
)

// reach duplicates the control file of a group's client, which its process has under the
// number it had when it made the client, or under another by now. The duplicate keeps the
// client and its memory: whoever asks closes it at once. It is none if the process does
// not have the file any more.
func (m *Mediator) reach(g runnable) int {
	if fd, err := m.duplicate(g.owner, g.file); err == nil {
		if m.hasGroup(fd, g) {
			return fd
		}
		m.close(fd)
	}
	for _, number := range m.numbers(g.owner) {
		fd, err := m.duplicate(g.owner, number)
		if err != nil {
			continue
		}
		if m.hasGroup(fd, g) {
			m.ledger.setFile(g.client, number)
			return fd
		}
		m.close(fd)
	}
	return none
}

// hasGroup reports whether the file behind fd is that of the group's client, by asking for
// something of the group's: RM answers a client on its own file only.
func (m *Mediator) hasGroup(fd int, g runnable) bool {
	s, err := m.driver.Stat(fd)
	if err != nil {
		return false
	}
	if d, ok := m.files.find(s); !ok || d.kind != controlFile {
		return false
	}
	_, err = nvclient.Timeslice(m.driver, fd, g.client, g.object.handle)
	return err == nil
}

// duplicateOf duplicates descriptor number of process pid.
func duplicateOf(pid int, number int32) (int, error) {
	p, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return none, err
	}
	defer unix.Close(p)
	return unix.PidfdGetfd(p, int(number), 0)
}

// maxNumbers bounds the descriptors of a process that are tried.
const maxNumbers = 4096

// numbersOf are the numbers of a process's descriptors.
func numbersOf(pid int) []int32 {
	dir, err := os.Open(filepath.Join("/proc", strconv.Itoa(pid), "fd"))
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(maxNumbers)
	var list []int32
	for _, name := range names {
		if n, err := strconv.ParseInt(name, 10, 32); err == nil {
			list = append(list, int32(n))
		}
	}
	return list
}
