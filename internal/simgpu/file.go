package simgpu

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/qgpu-project/qgpu/internal/simgpu/gpumem"
)

// file is an open device file: what the kernel module keeps behind one open file
// description.
type file struct {
	id    FileID
	node  Node
	users map[int]bool // processes that opened it or called on it

	control *file // the control file linked by REGISTER_FD, or nil
	links   int   // files that hold this one as their control file
	gone    bool  // its last holder closed it, but links keep it
	clients map[*client]bool

	mapped bool           // MAP_MEMORY named it: it stands for memory now
	event  *osEvent       // of an event file
	uvm    *uvmSpace      // of an initialised UVM file
	space  *gpumem.Shared // of a UVM file: the bytes behind its mappings
	pipe   int            // of a control or card file: the end whose hang-up tells the last close; else -1
}

// owner is the file that RM clients made through f belong to.
func (f *file) owner() *file {
	if f.control != nil {
		return f.control
	}
	return f
}

// Identify finds the identity of an open file by this process's descriptor.
func Identify(fd int) (FileID, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return FileID{}, fmt.Errorf("identifying descriptor %d: %w", fd, err)
	}
	id := FileID{Dev: st.Dev, Ino: st.Ino}
	if st.Mode&unix.S_IFMT != 0 {
		return id, nil
	}
	// Anonymous files (eventfds among them) share one inode.
	info, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", fd))
	if err != nil {
		return FileID{}, fmt.Errorf("identifying descriptor %d: %w", fd, err)
	}
	for line := range strings.Lines(string(info)) {
		if v, found := strings.CutPrefix(line, "eventfd-id:"); found {
			n, err := strconv.ParseUint(strings.TrimSpace(v), 10, 63)
			if err != nil {
				return FileID{}, fmt.Errorf("identifying descriptor %d: %w", fd, err)
			}
			id.Event = n + 1 // ids begin at 0, which means none here
		}
	}
	return id, nil
}

// openFile makes a device file and the end of it that its holder gets.
func (d *Driver) openFile(n Node, pid int) (*file, *os.File, error) {
	f := &file{node: n, users: map[int]bool{pid: true}, clients: map[*client]bool{}, pipe: -1}
	if n.Kind == NodeUVM || n.Kind == NodeUVMTools {
		end, err := d.openUVM(f)
		return f, end, err
	}
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, nil, fmt.Errorf("opening a device file: %w", err)
	}
	// Nothing is ever written; the smallest buffer spares the user's pipe quota.
	_, _ = unix.FcntlInt(uintptr(ends[1]), unix.F_SETPIPE_SZ, gpumem.PageSize)
	end := os.NewFile(uintptr(ends[1]), "nvidia")
	id, err := Identify(ends[1])
	if err == nil {
		err = d.watch.addPipe(ends[0], id)
	}
	if err != nil {
		unix.Close(ends[0])
		end.Close()
		return nil, nil, err
	}
	f.id, f.pipe = id, ends[0]
	return f, end, nil
}

// uvmSize is how much address space a UVM file covers: all that a process has.
const uvmSize = 1 << 47

func (d *Driver) openUVM(f *file) (*os.File, error) {
	shared, err := gpumem.NewShared("nvidia-uvm", uvmSize)
	if err != nil {
		return nil, err
	}
	// A fresh open file description, whose close inotify reports.
	path := fmt.Sprintf("/proc/self/fd/%d", shared.File().Fd())
	end, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		shared.Close()
		return nil, fmt.Errorf("opening the UVM file: %w", err)
	}
	id, err := Identify(int(end.Fd()))
	if err == nil {
		err = d.watch.addClose(path, id)
	}
	if err != nil {
		end.Close()
		shared.Close()
		return nil, err
	}
	f.id, f.space = id, shared
	return end, nil
}

// closeFile is the last close of a file: everything made through it is freed,
// unless linked files still hold it.
func (d *Driver) closeFile(f *file) {
	delete(d.files, f.id)
	if f.pipe >= 0 {
		d.watch.removePipe(f.pipe)
		unix.Close(f.pipe)
		f.pipe = -1
	}
	if f.space != nil {
		d.watch.removeClose(f.id)
		d.closeUVM(f)
		f.space.Close()
		f.space = nil
	}
	d.dropExport(f.id)
	if f.event != nil {
		d.closeEventFile(f)
		return
	}
	f.gone = true
	if c := f.control; c != nil {
		f.control = nil
		c.links--
		d.freeClientsOf(c)
	}
	d.freeClientsOf(f)
}

// freeClientsOf frees the clients and event files of a file that nobody can reach
// any more.
func (d *Driver) freeClientsOf(f *file) {
	if !f.gone || f.links > 0 {
		return
	}
	d.closeEventFiles(f)
	for c := range f.clients {
		d.freeClient(c)
	}
}

// cardOpenIn reports whether the process has the card's device file open.
func (d *Driver) cardOpenIn(pid int, c *card) bool {
	for _, f := range d.files {
		if f.node.Kind == NodeCard && f.node.Minor == c.minor && f.event == nil && f.users[pid] {
			return true
		}
	}
	return false
}
