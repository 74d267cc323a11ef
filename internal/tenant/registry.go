package tenant

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/qgpu-project/qgpu/internal/placement"
)

const (
	recordFile  = "tenant.json"
	lockFile    = "lock"
	controlFile = "control.sock"
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

// Admission is a tenant that has its place but does not run yet.
type Admission struct {
	Tenant Tenant
	// Lock and Control go to the mediator: the tenant lives while Lock is open,
	// and Control listens on its control socket.
	Lock    *os.File
	Control *os.File
	Dir     string
}

// Close gives up this process's part of the admission. Unless a mediator holds
// the lock, the tenant's place is free again.
func (a *Admission) Close() {
	a.Lock.Close()
	a.Control.Close()
}

// Admit places t on one of cards, atomically among all who admit, and makes its
// folder, which the tenant's mediator will own. cards say what they have; what
// living tenants hold is taken from that. Admit chooses t's Placement and UID, and its
// Policy if that is empty: the one by which its cards are shared already.
func (r *Registry) Admit(ctx context.Context, t Tenant, cards []placement.Card) (*Admission, error) {
	unlock, err := r.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := r.sweep(); err != nil {
		return nil, err
	}
	living, err := r.List()
	if err != nil {
		return nil, err
	}
	if cards, err = agreeing(cards, living, t.Policy); err != nil {
		return nil, err
	}
	t.Placement, err = placement.LeastLoaded(WithTenants(cards, living), t.Share)
	if err != nil {
		return nil, err
	}
	if t.Policy, err = settle(t.Placement, living, t.Policy); err != nil {
		return nil, err
	}
	t.UID = freeUID(living)
	return r.create(t)
}

// firstUID begins a range of user ids that distributions and container runtimes
// leave alone (systemd's UID ranges end at 1879048191).
const firstUID = 2_000_000_000

// freeUID is the lowest user id that no living tenant's mediator has.
func freeUID(living []Tenant) int {
	for uid := firstUID; ; uid++ {
		if !slices.ContainsFunc(living, func(t Tenant) bool { return t.UID == uid }) {
			return uid
		}
	}
}

// WithTenants returns cards with what tenants hold of them taken.
func WithTenants(cards []placement.Card, tenants []Tenant) []placement.Card {
	cards = slices.Clone(cards)
	for _, t := range tenants {
		for _, slice := range t.Placement {
			for i := range cards {
				if cards[i].UUID == slice.UUID {
					cards[i].Take(slice)
				}
			}
		}
	}
	return cards
}

func (r *Registry) create(t Tenant) (a *Admission, err error) {
	dir := r.path(t.ID)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the tenant's folder: %w", err)
	}
	a = &Admission{Tenant: t, Dir: dir}
	defer func() {
		if err != nil {
			os.RemoveAll(dir)
		}
	}()
	if a.Lock, err = os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, fmt.Errorf("make the tenant's lock: %w", err)
	}
	if err := unix.Flock(int(a.Lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, fmt.Errorf("lock the tenant's folder: %w", err)
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, controlFile), Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen on the tenant's control socket: %w", err)
	}
	listener.SetUnlinkOnClose(false)
	if a.Control, err = listener.File(); err != nil {
		return nil, fmt.Errorf("listen on the tenant's control socket: %w", err)
	}
	listener.Close()
	data, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, recordFile), data, 0o644); err != nil {
		return nil, fmt.Errorf("write the tenant's record: %w", err)
	}
	if err := os.Chown(dir, t.UID, t.UID); err != nil {
		return nil, fmt.Errorf("give the tenant's folder to its mediator: %w", err)
	}
	return a, nil
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
		if err := r.keepLog(e.Name()); err != nil {
			return err
		}
		if err := os.RemoveAll(r.path(e.Name())); err != nil {
			return fmt.Errorf("sweep a tenant that has ended: %w", err)
		}
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
		errs = append(errs, os.Remove(filepath.Join(dir, e.Name())))
	}
	return errors.Join(errs...)
}
