package mediator

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Mapping is a mapped range of a process.
type Mapping struct {
	First, End uint64
	Dev, Ino   uint64 // of the mapped file
}

// Processes is what the mediator asks the kernel about the tenant's processes. Ids
// are those of this process's pid namespace.
type Processes interface {
	// Watch calls gone once, when process pid has ended, from another goroutine.
	Watch(pid int, gone func()) error
	// NamespaceIDs are the ids of a process in each pid namespace that has one, from
	// this process's to the innermost.
	NamespaceIDs(pid int) ([]int, error)
	// Maps are the mappings of files of a process.
	Maps(pid int) ([]Mapping, error)
	// Directory is the path of the directory that dirfd, which may be AT_FDCWD, means
	// to a thread.
	Directory(thread int, dirfd int32) (string, error)
	// HasFile reports whether a process has a file open whose inode is one of those.
	// When that cannot be told, it has.
	HasFile(pid int, one func(dev, ino uint64) bool) bool
	// Name is the name of a process's program.
	Name(pid int) string
}

// procFS is the Processes of production.
type procFS struct {
	once  sync.Once
	epoll int
	err   error

	mu      sync.Mutex
	watched map[int32]watch // by pidfd
}

type watch struct{ gone func() }

func newProcFS() *procFS { return &procFS{watched: make(map[int32]watch)} }

// Watch implements Processes by an epoll of pidfds and one goroutine, which lives as
// long as the mediator's process.
func (p *procFS) Watch(pid int, gone func()) error {
	p.once.Do(func() {
		p.epoll, p.err = unix.EpollCreate1(unix.EPOLL_CLOEXEC)
		if p.err == nil {
			go p.wait()
		}
	})
	if p.err != nil {
		return fmt.Errorf("watch processes: %w", p.err)
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return fmt.Errorf("watch process %d: %w", pid, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}
	if err := unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
		unix.Close(fd)
		return fmt.Errorf("watch process %d: %w", pid, err)
	}
	p.watched[int32(fd)] = watch{gone}
	return nil
}

func (p *procFS) wait() {
	events := make([]unix.EpollEvent, 16)
	for {
		n, err := unix.EpollWait(p.epoll, events, -1)
		if err != nil && err != unix.EINTR {
			return
		}
		for i := range max(n, 0) {
			fd := events[i].Fd
			p.mu.Lock()
			w, ok := p.watched[fd]
			delete(p.watched, fd)
			p.mu.Unlock()
			unix.Close(int(fd)) // also takes it out of the epoll
			if ok {
				w.gone()
			}
		}
	}
}

// NamespaceIDs implements Processes by NSpid of /proc/PID/status.
func (p *procFS) NamespaceIDs(pid int) ([]int, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return nil, err
	}
	for line := range bytes.Lines(b) {
		rest, ok := bytes.CutPrefix(line, []byte("NSpid:"))
		if !ok {
			continue
		}
		var ids []int
		for _, f := range bytes.Fields(rest) {
			id, err := strconv.Atoi(string(f))
			if err != nil {
				return nil, fmt.Errorf("/proc/%d/status: NSpid: %w", pid, err)
			}
			ids = append(ids, id)
		}
		return ids, nil
	}
	return []int{pid}, nil // a kernel without pid namespaces
}

// Maps implements Processes.
func (p *procFS) Maps(pid int) ([]Mapping, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var list []Mapping
	lines := bufio.NewScanner(f)
	lines.Buffer(make([]byte, 0, 8<<10), 64<<10)
	for lines.Scan() {
		if m, ok := parseMapping(lines.Text()); ok && m.Ino != 0 {
			list = append(list, m)
		}
	}
	return list, lines.Err()
}

// parseMapping reads a line of /proc/PID/maps, such as
// 7f0000000000-7f0000200000 rw-s 7f0000000000 00:06 1234   /dev/nvidia-uvm
func parseMapping(line string) (Mapping, bool) {
	f := strings.Fields(line)
	if len(f) < 5 {
		return Mapping{}, false
	}
	from, to, ok := strings.Cut(f[0], "-")
	if !ok {
		return Mapping{}, false
	}
	major, minor, ok := strings.Cut(f[3], ":")
	if !ok {
		return Mapping{}, false
	}
	var m Mapping
	var err [5]error
	m.First, err[0] = strconv.ParseUint(from, 16, 64)
	m.End, err[1] = strconv.ParseUint(to, 16, 64)
	ma, e := strconv.ParseUint(major, 16, 32)
	err[2] = e
	mi, e := strconv.ParseUint(minor, 16, 32)
	err[3] = e
	m.Ino, err[4] = strconv.ParseUint(f[4], 10, 64)
	for _, e := range err {
		if e != nil {
			return Mapping{}, false
		}
	}
	m.Dev = unix.Mkdev(uint32(ma), uint32(mi))
	return m, m.First < m.End
}

// Directory implements Processes.
func (p *procFS) Directory(thread int, dirfd int32) (string, error) {
	if dirfd == unix.AT_FDCWD {
		return os.Readlink(fmt.Sprintf("/proc/%d/cwd", thread))
	}
	return os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", thread, dirfd))
}

// HasFile implements Processes.
func (p *procFS) HasFile(pid int, one func(dev, ino uint64) bool) bool {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return true
	}
	for _, e := range entries {
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(dir, e.Name()), &st); err == nil && one(st.Dev, st.Ino) {
			return true
		}
	}
	return false
}

// Name implements Processes.
func (p *procFS) Name(pid int) string {
	if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err == nil {
		return filepath.Base(exe)
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// maxProcesses bounds the tenant's processes with open device files.
const maxProcesses = 1 << 14

// processTable is the tenant's processes that use the driver.
type processTable struct {
	m      *Mediator
	mu     sync.Mutex
	alive  map[int]struct{}
	closed bool
}

func newProcessTable(m *Mediator) *processTable {
	return &processTable{m: m, alive: make(map[int]struct{})}
}

// admit makes sure that the end of a process will be noticed. A process that cannot
// be watched may not use the driver, since what it holds would never come back.
func (t *processTable) admit(pid int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.alive[pid]; ok {
		return nil
	}
	if len(t.alive) >= maxProcesses {
		return fmt.Errorf("the tenant has %d processes that use the driver, and may have no more", len(t.alive))
	}
	t.alive[pid] = struct{}{}
	if err := t.m.processes.Watch(pid, func() { t.gone(pid) }); err != nil {
		delete(t.alive, pid)
		return err
	}
	return nil
}

func (t *processTable) gone(pid int) {
	t.mu.Lock()
	_, ok := t.alive[pid]
	delete(t.alive, pid)
	closed := t.closed
	t.mu.Unlock()
	if !ok || closed {
		return
	}
	t.m.lost.forgetProcess(pid)
	t.m.releaseSpace(pid)
	t.m.ledger.dropProcess(pid)
	t.m.reconcile(none)
	if t.m.ledger.snapshot().orphans > 0 {
		// A call of the process may be holding its file still.
		time.AfterFunc(lookAgain, func() {
			t.mu.Lock()
			closed := t.closed
			t.mu.Unlock()
			if !closed {
				t.m.reconcile(none)
			}
		})
	}
}

// recorded is called after something of a process was recorded: if the process ended
// during its call, nobody else would give it back.
func (m *Mediator) recorded(pid int) {
	m.tenants.mu.Lock()
	_, alive := m.tenants.alive[pid]
	m.tenants.mu.Unlock()
	if !alive {
		m.releaseSpace(pid)
		m.ledger.dropProcess(pid)
	}
}

// lookAgain is after how long the memory of a process that ended is looked at again,
// if it was not back at once.
const lookAgain = time.Second

func (t *processTable) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
}

// list are the processes that use the driver.
func (t *processTable) list() []int {
	t.mu.Lock()
	defer t.mu.Unlock()
	pids := make([]int, 0, len(t.alive))
	for pid := range t.alive {
		pids = append(pids, pid)
	}
	return pids
}

// seenBy translates a process's id into the pid namespace of another of the tenant's
// processes. It is false if that one cannot see it.
func (m *Mediator) seenBy(viewer, pid int) (uint32, bool) {
	v, err := m.processes.NamespaceIDs(viewer)
	if err != nil || len(v) == 0 {
		return 0, false
	}
	ids, err := m.processes.NamespaceIDs(pid)
	if err != nil || len(ids) < len(v) {
		return 0, false
	}
	return uint32(ids[len(v)-1]), true
}
