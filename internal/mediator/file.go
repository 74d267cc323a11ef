package mediator

import (
	"sync"

	"golang.org/x/sys/unix"
)

// fileKind is a kind of device file that the tenant may hold.
type fileKind uint8

const (
	controlFile fileKind = iota + 1 // /dev/nvidiactl
	cardFile                        // /dev/nvidiaN
	uvmFile                         // /dev/nvidia-uvm
)

// deviceFile is what a descriptor of the tenant refers to.
type deviceFile struct {
	kind fileKind
	card int // index of the tenant's card, of a cardFile
}

// maxFiles bounds how many files without a device number are remembered.
const maxFiles = 1 << 16

// files knows the device files that the mediator opened for its tenant, whoever
// holds them and under whatever number. A character device is known by its device
// number; anything else, which only a simulated driver hands out, by its inode.
// A file that the mediator never opened is not a device file, whatever it is:
// calls on it are answered ENOTTY.
type files struct {
	mu      sync.RWMutex
	devices map[uint64]deviceFile // by rdev
	// The closing of a file cannot be seen, so inodes are forgotten by age: old holds
	// those not used since young was last full.
	young, old map[Stat]deviceFile
	uvmInodes  map[inode]struct{} // of UVM files, as /proc/PID/maps shows them
}

type inode struct{ dev, ino uint64 }

func (f *files) add(s Stat, d deviceFile) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if d.kind == uvmFile {
		if f.uvmInodes == nil || len(f.uvmInodes) >= maxFiles {
			f.uvmInodes = make(map[inode]struct{})
		}
		f.uvmInodes[inode{s.Dev, s.Ino}] = struct{}{}
	}
	if s.Character {
		if f.devices == nil {
			f.devices = make(map[uint64]deviceFile)
		}
		f.devices[s.Rdev] = d
		return
	}
	f.remember(s, d)
}

func (f *files) remember(s Stat, d deviceFile) {
	if f.young == nil || len(f.young) >= maxFiles/2 {
		f.old, f.young = f.young, make(map[Stat]deviceFile)
	}
	f.young[s] = d
	delete(f.old, s)
}

func (f *files) find(s Stat) (deviceFile, bool) {
	f.mu.RLock()
	if s.Character {
		d, ok := f.devices[s.Rdev]
		f.mu.RUnlock()
		return d, ok
	}
	d, ok := f.young[s]
	_, aged := f.old[s]
	f.mu.RUnlock()
	if ok || !aged {
		return d, ok
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	d, ok = f.old[s]
	if ok {
		f.remember(s, d)
	}
	return d, ok
}

// isUVM reports whether an inode in /proc/PID/maps is that of a UVM file.
func (f *files) isUVM(dev, ino uint64) bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	_, ok := f.uvmInodes[inode{dev, ino}]
	return ok
}

// descriptor duplicates the tenant's descriptor fd and identifies its file. The
// caller closes the duplicate, also when the file is no device file.
func (m *Mediator) descriptor(n Notification, fd int32) (dup int, s Stat, d deviceFile, errno unix.Errno) {
	dup, err := n.Dup(fd)
	if err != nil {
		return none, s, d, unix.EBADF
	}
	s, err = m.driver.Stat(dup)
	if err != nil {
		m.close(dup)
		return none, s, d, unix.EBADF
	}
	d, ok := m.files.find(s)
	if !ok {
		m.close(dup)
		return none, s, d, unix.ENOTTY
	}
	return dup, s, d, 0
}

func (m *Mediator) close(fd int) {
	if fd != none {
		_ = m.driver.Close(fd) // nothing to do about a failing close
	}
}
