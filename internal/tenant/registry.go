package tenant

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	recordFile  = "tenant.json"
	lockFile    = "lock"
	controlFile = "control.sock"
	joinFile    = "join.sock"
	// LogFile is the mediator's log in a tenant's folder.
	LogFile = "mediator.log"
)

// Registry is the tenants of one machine.
type Registry struct {
	dir string
}

// OpenRegistry opens the registry in the state folder dir, and makes it if need be.
func OpenRegistry(dir string) (*Registry, error) {
	if err := os.MkdirAll(filepath.Join(dir, "tenants"), 0o755); err != nil {
		return nil, fmt.Errorf("make the state folder (qgpu needs root): %w", err)
	}
	return &Registry{dir: dir}, nil
}

// At is the registry in the state folder dir, for who looks for tenants and admits none.
// The folder need not be there.
func At(dir string) *Registry { return &Registry{dir: dir} }

func (r *Registry) path(id string, elem ...string) string {
	return filepath.Join(append([]string{r.dir, "tenants", id}, elem...)...)
}

// List returns the living tenants, oldest first.
func (r *Registry) List() ([]Tenant, error) {
	entries, err := os.ReadDir(r.path(""))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list tenants: %w", err)
	}
	var tenants []Tenant
	for _, e := range entries {
		t, err := r.read(e.Name())
		if errors.Is(err, errStale) {
			continue
		}
		if err != nil {
			return nil, err
		}
		tenants = append(tenants, t)
	}
	slices.SortFunc(tenants, func(a, b Tenant) int {
		if c := a.Since.Compare(b.Since); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return tenants, nil
}

// errStale marks a folder whose tenant has ended.
var errStale = errors.New("the tenant has ended")

// Get returns the living tenant that id names, whole or by an unambiguous prefix.
func (r *Registry) Get(id string) (Tenant, error) {
	tenants, err := r.List()
	if err != nil {
		return Tenant{}, err
	}
	var found []Tenant
	for _, t := range tenants {
		if t.ID == id {
			return t, nil
		}
		if strings.HasPrefix(t.ID, id) {
			found = append(found, t)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return Tenant{}, fmt.Errorf("there is no tenant %q; qgpu ps lists them", id)
	}
	return Tenant{}, fmt.Errorf("%q begins the ids of %d tenants; write more of it", id, len(found))
}

func (r *Registry) read(id string) (Tenant, error) {
	held, err := r.held(id)
	if err != nil {
		return Tenant{}, err
	}
	t, err := ReadRecord(r.path(id))
	if errors.Is(err, fs.ErrNotExist) {
		return Tenant{}, errStale
	}
	if err != nil {
		return Tenant{}, err
	}
	if started, err := StartTime(t.PID); !held && (err != nil || started != t.Started) {
		return Tenant{}, errStale
	}
	return t, nil
}

// held tells whether a mediator holds the lock of tenant id.
func (r *Registry) held(id string) (bool, error) {
	lock, err := os.Open(r.path(id, lockFile))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read tenant %s: %w", id, err)
	}
	defer lock.Close()
	return unix.Flock(int(lock.Fd()), unix.LOCK_SH|unix.LOCK_NB) != nil, nil
}

// StartTime is when process pid began, in clock ticks since boot: with the id it names
// a process for good, as ids are used again. It fails if there is no such process, or
// if it has ended and only waits for its parent (proc(5), field 22 of stat).
func StartTime(pid int) (uint64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The name, in brackets, may hold anything.
	_, rest, _ := strings.Cut(string(text[max(0, bytes.LastIndexByte(text, ')')):]), ") ")
	fields := strings.Fields(rest)
	const state, started = 0, 19
	if len(fields) <= started || fields[state] == "Z" || fields[state] == "X" {
		return 0, fmt.Errorf("process %d has ended", pid)
	}
	return strconv.ParseUint(fields[started], 10, 64)
}

// sweep removes the folders of tenants that have ended. A mediator that ended as it
// should has emptied its folder; of another the log is kept.
func (r *Registry) sweep() error {
	entries, err := os.ReadDir(r.path(""))
	if err != nil {
		return fmt.Errorf("list tenants: %w", err)
	}
	for _, e := range entries {
		if _, err := r.read(e.Name()); !errors.Is(err, errStale) {
			continue
		}
		if err := r.remove(e.Name()); err != nil {
			return err
		}
	}
	return nil
}

// remove removes what a tenant that has ended left behind, but for a failed mediator's log.
func (r *Registry) remove(id string) error {
	if err := r.keepLog(id); err != nil {
		return err
	}
	if err := os.RemoveAll(r.path(id)); err != nil {
		return fmt.Errorf("sweep a tenant that has ended: %w", err)
	}
	return nil
}

// keepLog moves the log of a mediator that failed to where Failures finds it.
func (r *Registry) keepLog(id string) error {
	const most = 16 // logs
	log := r.path(id, LogFile)
	if info, err := os.Lstat(log); err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return nil
	}
	if err := os.MkdirAll(r.failures(), 0o700); err != nil {
		return fmt.Errorf("keep a failed mediator's log: %w", err)
	}
	if logs := r.Failures(); len(logs) >= most {
		oldest := slices.MinFunc(logs, func(a, b string) int { return modified(a).Compare(modified(b)) })
		if err := os.Remove(oldest); err != nil {
			return fmt.Errorf("keep a failed mediator's log: %w", err)
		}
	}
	if err := os.Rename(log, filepath.Join(r.failures(), id+".log")); err != nil {
		return fmt.Errorf("keep a failed mediator's log: %w", err)
	}
	return nil
}

func modified(path string) time.Time {
	info, err := os.Lstat(path)
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

func (r *Registry) failures() string { return filepath.Join(r.dir, "failed") }

// Failures are the logs of the last mediators that did not end as they should.
func (r *Registry) Failures() []string {
	logs, err := filepath.Glob(filepath.Join(r.failures(), "*.log"))
	if err != nil { // the pattern is constant but for the state folder
		return nil
	}
	return logs
}

// lock takes the registry's own lock, so that one admission happens at a time.
func (r *Registry) lock(ctx context.Context) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(r.dir, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the registry: %w", err)
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			f.Close()
			return nil, fmt.Errorf("lock the registry: %w", err)
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("lock the registry: %w", ctx.Err())
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// ReadRecord reads the record of the tenant whose folder is dir.
func ReadRecord(dir string) (Tenant, error) {
	var t Tenant
	data, err := os.ReadFile(filepath.Join(dir, recordFile))
	if err != nil {
		return t, fmt.Errorf("read the tenant's record: %w", err)
	}
	if err := json.Unmarshal(data, &t); err != nil {
		return t, fmt.Errorf("%s is damaged: %w", filepath.Join(dir, recordFile), err)
	}
	return t, nil
}

// Leave empties the folder dir of a tenant that has ended. The folder itself is
// swept later, by whoever may write above it.
func Leave(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("empty the tenant's folder: %w", err)
	}
	var errs []error
	for _, e := range entries {
		errs = append(errs, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	return errors.Join(errs...)
}
