package tenant

import (
	"context"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/share"
)

var cards = []placement.Card{{UUID: "GPU-a", Memory: 15 * share.GiB}}

func open(t *testing.T) *Registry {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to give folders away")
	}
	r, err := OpenRegistry(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func admit(t *testing.T, r *Registry, id string, memory share.Memory) (*Admission, error) {
	t.Helper()
	return r.Admit(context.Background(), Tenant{ID: id, Share: share.Share{Memory: memory}, Since: time.Now()}, cards)
}

func TestAdmitUntilFull(t *testing.T) {
	r := open(t)
	first, err := admit(t, r, "one", 5*share.GiB)
	if err != nil {
		t.Fatal(err)
	}
	second, err := admit(t, r, "two", 8*share.GiB)
	if err != nil {
		t.Fatal(err)
	}
	if first.Tenant.UID == second.Tenant.UID {
		t.Errorf("two living tenants' mediators have user id %d", first.Tenant.UID)
	}
	_, err = admit(t, r, "three", 4*share.GiB)
	if want := "no room: card 0 has 2Gi of 15Gi free, and 4Gi is asked for"; err == nil || err.Error() != want {
		t.Errorf("admit a third = %v, want %q", err, want)
	}
	first.Close()
	tenants, err := r.List()
	if err != nil || len(tenants) != 1 || tenants[0].ID != "two" {
		t.Errorf("List = %+v, %v, want tenant two alone", tenants, err)
	}
	third, err := admit(t, r, "three", 4*share.GiB)
	if err != nil {
		t.Fatalf("admit after one has ended: %v", err)
	}
	if _, err := os.Stat(first.Dir); !os.IsNotExist(err) {
		t.Errorf("the ended tenant's folder is still there (%v)", err)
	}
	second.Close()
	third.Close()
}

func TestAdmitAtOnce(t *testing.T) {
	r := open(t)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var admitted []*Admission
	for i := range 10 {
		wg.Go(func() {
			a, err := admit(t, r, string(rune('a'+i)), 4*share.GiB)
			if err == nil {
				mu.Lock()
				defer mu.Unlock()
				admitted = append(admitted, a)
			} else if !strings.Contains(err.Error(), "no room") {
				t.Errorf("admit: %v", err)
			}
		})
	}
	wg.Wait()
	if len(admitted) != 3 {
		t.Errorf("%d tenants of 4Gi were admitted to a card of 15Gi, want 3", len(admitted))
	}
	for _, a := range admitted {
		a.Close()
	}
}

func TestGetByPrefix(t *testing.T) {
	r := open(t)
	for _, id := range []string{"abc", "abd"} {
		a, err := admit(t, r, id, share.GiB)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
	}
	if got, err := r.Get("abd"); err != nil || got.ID != "abd" {
		t.Errorf("Get(abd) = %+v, %v", got, err)
	}
	if got, err := r.Get("abc"); err != nil || got.ID != "abc" {
		t.Errorf("Get(abc) = %+v, %v", got, err)
	}
	for prefix, want := range map[string]string{"ab": "write more of it", "x": "there is no tenant"} {
		if _, err := r.Get(prefix); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Get(%s) = %v, want %q", prefix, err, want)
		}
	}
}

// TestPlaceOutlivesMediator keeps a tenant's place while its program lives, and the
// log of its mediator after that.
func TestPlaceOutlivesMediator(t *testing.T) {
	r := open(t)
	program := exec.Command("sleep", "1000")
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	started, err := StartTime(program.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	a, err := r.Admit(context.Background(), Tenant{
		ID: "one", Share: share.Share{Memory: 10 * share.GiB}, PID: program.Process.Pid, Started: started,
	}, cards)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(a.Dir, LogFile), []byte("why\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	a.Close() // as if the mediator were killed
	if _, err := admit(t, r, "two", 10*share.GiB); err == nil || !strings.Contains(err.Error(), "no room") {
		t.Errorf("admit beside a program whose mediator is gone: %v", err)
	}
	program.Process.Kill()
	program.Wait()
	b, err := admit(t, r, "two", 10*share.GiB)
	if err != nil {
		t.Fatalf("admit after the program has ended: %v", err)
	}
	defer b.Close()
	if logs := r.Failures(); len(logs) != 1 || filepath.Base(logs[0]) != "one.log" {
		t.Errorf("Failures = %q, want the log of tenant one", logs)
	}
}

type fixedState State

func (s fixedState) State() State { return State(s) }

func TestControl(t *testing.T) {
	r := open(t)
	a, err := admit(t, r, "one", 5*share.GiB)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	l, err := net.FileListener(a.Control)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		ServeControl(l.(*net.UnixListener), fixedState{Mediator: 7, Cards: []CardState{{UUID: "GPU-a", Quota: 5 * share.GiB, Used: share.GiB}}}, slog.New(slog.DiscardHandler))
	}()
	state, err := r.State(context.Background(), "one")
	if err != nil || state.Mediator != 7 {
		t.Errorf("State = %+v, %v", state, err)
	}
	if used, quota := state.Used(); used != share.GiB || quota != 5*share.GiB {
		t.Errorf("Used = %v of %v", used, quota)
	}
	l.Close()
	<-done
	if _, err := r.State(context.Background(), "one"); err == nil {
		t.Error("State of a mediator that is gone succeeded")
	}
}
