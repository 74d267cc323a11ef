package mediator

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"

	"github.com/qgpu-project/qgpu/internal/nvabi"
	"golang.org/x/sys/unix"
)

// fakeProcesses are the tenant's processes.
type fakeProcesses struct {
	mu    sync.Mutex
	alive map[int]func()
	maps  map[int][]Mapping
	ns    map[int][]int
	// closed: the process has closed its device files
	closed map[int]bool
}

func newFakeProcesses() *fakeProcesses {
	return &fakeProcesses{alive: make(map[int]func()), maps: make(map[int][]Mapping), ns: make(map[int][]int), closed: make(map[int]bool)}
}

func (p *fakeProcesses) start(pid int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.alive[pid] = nil
}

func (p *fakeProcesses) Watch(pid int, gone func()) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.alive[pid]; !ok {
		return unix.ESRCH
	}
	p.alive[pid] = gone
	return nil
}

// end ends a process and waits until that was noticed.
func (p *fakeProcesses) end(pid int) {
	p.mu.Lock()
	gone := p.alive[pid]
	delete(p.alive, pid)
	p.mu.Unlock()
	if gone != nil {
		gone()
	}
}

func (p *fakeProcesses) NamespaceIDs(pid int) ([]int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ids, ok := p.ns[pid]; ok {
		return ids, nil
	}
	return []int{pid}, nil
}

func (p *fakeProcesses) Maps(pid int) ([]Mapping, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.alive[pid]; !ok {
		return nil, unix.ESRCH
	}
	return p.maps[pid], nil
}

func (p *fakeProcesses) Directory(thread int, dirfd int32) (string, error) {
	if dirfd == unix.AT_FDCWD {
		return "/", nil
	}
	if dirfd == 5 {
		return "/dev", nil
	}
	return "", errors.New("no such descriptor")
}

func (p *fakeProcesses) HasFile(pid int, one func(dev, ino uint64) bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.closed[pid]
}

func (p *fakeProcesses) Name(pid int) string { return fmt.Sprintf("program-%d", pid) }

// setUp makes a mediator with a quota on card 0 and a first process.
func setUp(t testing.TB, quota uint64, change ...func(*fakeDriver, *Config)) (*Mediator, *fakeDriver, *fakeTenant) {
	t.Helper()
	d := newFakeDriver()
	abi, err := nvabi.For(nvabi.Version{Major: 535, Minor: 309, Patch: 1})
	if err != nil {
		t.Fatal(err)
	}
	procs := newFakeProcesses()
	cfg := Config{
		ABI: abi, Cards: []Card{{Minor: 0, Quota: quota}}, Driver: d, Processes: procs,
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
	for _, f := range change {
		f(d, &cfg)
	}
	m, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	m.self, m.patience = mediators, 0
	t.Cleanup(func() { _ = m.Close() })
	return m, d, newTenant(t, m, d, procs, 1000)
}

func used(m *Mediator) uint64 {
	_, u := m.ledger.balance(0)
	return u
}

func le32(v ...uint32) []byte {
	var b []byte
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, x)
	}
	return b
}
