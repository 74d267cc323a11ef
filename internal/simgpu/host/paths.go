package host

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/qgpu-project/qgpu/internal/devfs"
	"github.com/qgpu-project/qgpu/internal/seccomp"
)

// paths are the device nodes and files that the driver shows by name to
// processes that have no device view of their own. Only names that are listed here
// are ever opened for a process, whose rights are not the host's.
type paths struct {
	nodes map[string]devfs.Node
	files map[string]string // content
	dirs  map[string]bool   // above files, in the driver's places
	tree  string            // folder that holds the files and dirs for real
}

// newPaths shows nodes and files, and lays the files out under the folder tree.
func newPaths(nodes []devfs.Node, files map[string]string, tree string) (paths, error) {
	p := paths{nodes: map[string]devfs.Node{}, files: files, dirs: map[string]bool{}, tree: tree}
	for _, n := range nodes {
		p.nodes[n.Path] = n
	}
	for path, content := range files {
		for dir := filepath.Dir(path); p.hidden(dir); dir = filepath.Dir(dir) {
			p.dirs[dir] = true
		}
		real := filepath.Join(tree, path)
		if err := os.MkdirAll(filepath.Dir(real), 0o755); err != nil {
			return p, fmt.Errorf("lay out the driver's files: %w", err)
		}
		if err := os.WriteFile(real, []byte(content), 0o644); err != nil {
			return p, fmt.Errorf("lay out the driver's files: %w", err)
		}
	}
	return p, nil
}

// shownPrefixes are the places where only the driver's files exist.
var shownPrefixes = []string{"/dev/nvidia", "/proc/driver/nvidia", "/sys/module/nvidia", "/sys/bus/pci/devices"}

// open opens a shown file or folder for reading.
func (p paths) open(path string) (f *os.File, shown bool, err error) {
	path = strings.TrimRight(path, "/")
	if _, ok := p.files[path]; !ok && !p.dirs[path] {
		return nil, false, nil
	}
	f, err = os.Open(filepath.Join(p.tree, path))
	return f, true, err
}

// hidden reports whether path is in the driver's places but shown by nobody.
func (p paths) hidden(path string) bool {
	for _, prefix := range shownPrefixes {
		if strings.HasPrefix(path, prefix) {
			return true
		}
	}
	return false
}

// pathCall is a system call on a path: which argument the path is, and how the
// call is answered.
type pathCall struct {
	path   int
	answer func(h *handler, n *seccomp.Notification, path string) seccomp.Answer
}

// Offsets in struct stat (x86-64) and struct statx.
const (
	statMode   = 24
	statNlink  = 16
	statRdev   = 40
	statSize   = 48
	statLength = 144

	statxMask     = 0
	statxNlink    = 16
	statxMode     = 28
	statxSize     = 40
	statxRdevMaj  = 128
	statxRdevMin  = 132
	statxLength   = 256
	statxBasicSet = unix.STATX_BASIC_STATS
)

var pathCalls = map[int]pathCall{
	unix.SYS_OPEN:       {0, openAt(1)},
	unix.SYS_OPENAT:     {1, openAt(2)},
	unix.SYS_STAT:       {0, statAt(1)},
	unix.SYS_LSTAT:      {0, statAt(1)},
	unix.SYS_NEWFSTATAT: {1, statAt(2)},
	unix.SYS_STATX:      {1, (*handler).statx},
	unix.SYS_ACCESS:     {0, (*handler).access},
	unix.SYS_FACCESSAT:  {1, (*handler).access},
	unix.SYS_FACCESSAT2: {1, (*handler).access},
	unix.SYS_MKNOD:      {0, (*handler).create},
	unix.SYS_MKNODAT:    {1, (*handler).create},
	unix.SYS_CHMOD:      {0, (*handler).create},
	unix.SYS_CHOWN:      {0, (*handler).create},
	unix.SYS_UNLINK:     {0, (*handler).create},
}

func openAt(flags int) func(*handler, *seccomp.Notification, string) seccomp.Answer {
	return func(h *handler, n *seccomp.Notification, path string) seccomp.Answer {
		return h.open(n, path, int(n.Arg(flags)))
	}
}

// shown describes a path of the driver as stat(2) would.
type shown struct {
	mode         uint32
	size         int
	major, minor uint32
}

func (h *handler) show(path string) (shown, bool) {
	if node, ok := h.paths.nodes[path]; ok {
		return shown{mode: unix.S_IFCHR | 0o666, major: node.Major, minor: node.Minor}, true
	}
	if content, ok := h.paths.files[path]; ok {
		return shown{mode: unix.S_IFREG | 0o444, size: len(content)}, true
	}
	if h.paths.dirs[strings.TrimRight(path, "/")] {
		return shown{mode: unix.S_IFDIR | 0o555}, true
	}
	return shown{}, false
}

// absent answers a call on a path that the driver does not show.
func (h *handler) absent(path string) seccomp.Answer {
	if h.paths.hidden(path) {
		return seccomp.Fail(unix.ENOENT)
	}
	return seccomp.Answer{Continue: true}
}

func statAt(buffer int) func(*handler, *seccomp.Notification, string) seccomp.Answer {
	return func(h *handler, n *seccomp.Notification, path string) seccomp.Answer {
		s, ok := h.show(path)
		if !ok {
			return h.absent(path)
		}
		var b [statLength]byte
		binary.LittleEndian.PutUint64(b[statNlink:], 1)
		binary.LittleEndian.PutUint32(b[statMode:], s.mode)
		binary.LittleEndian.PutUint64(b[statRdev:], unix.Mkdev(s.major, s.minor))
		binary.LittleEndian.PutUint64(b[statSize:], uint64(s.size))
		if err := n.WriteMemory(b[:], n.Arg(buffer)); err != nil {
			return seccomp.Fail(unix.EFAULT)
		}
		return seccomp.Answer{}
	}
}

func (h *handler) statx(n *seccomp.Notification, path string) seccomp.Answer {
	s, ok := h.show(path)
	if !ok {
		return h.absent(path)
	}
	var b [statxLength]byte
	binary.LittleEndian.PutUint32(b[statxMask:], statxBasicSet)
	binary.LittleEndian.PutUint32(b[statxNlink:], 1)
	binary.LittleEndian.PutUint16(b[statxMode:], uint16(s.mode))
	binary.LittleEndian.PutUint64(b[statxSize:], uint64(s.size))
	binary.LittleEndian.PutUint32(b[statxRdevMaj:], s.major)
	binary.LittleEndian.PutUint32(b[statxRdevMin:], s.minor)
	if err := n.WriteMemory(b[:], n.Arg(4)); err != nil {
		return seccomp.Fail(unix.EFAULT)
	}
	return seccomp.Answer{}
}

func (h *handler) access(_ *seccomp.Notification, path string) seccomp.Answer {
	if _, ok := h.show(path); ok {
		return seccomp.Answer{}
	}
	return h.absent(path)
}

// create answers calls that would make or change a device node: NVIDIA's
// libraries make missing ones when they run as root. Nothing is made.
func (h *handler) create(_ *seccomp.Notification, path string) seccomp.Answer {
	for _, prefix := range []string{"/dev/nvidia", "/dev/char/195:", "/dev/char/510:"} {
		if strings.HasPrefix(path, prefix) {
			return seccomp.Answer{}
		}
	}
	return seccomp.Answer{Continue: true}
}
