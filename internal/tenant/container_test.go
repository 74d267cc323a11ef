package tenant

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/share"
)

// TestAdmitAt admits tenants on placements that somebody else chose.
func TestAdmitAt(t *testing.T) {
	r := open(t)
	ask := func(id string, s share.Share, p share.Policy, slices ...placement.Slice) (*Admission, error) {
		return r.AdmitAt(context.Background(), Tenant{ID: id, Share: s, Policy: p, Placement: slices, Since: time.Now()}, cards)
	}
	slice := func(core int, memory share.Memory) placement.Slice {
		return placement.Slice{UUID: "GPU-a", Core: core, Memory: memory}
	}
	five := share.Share{Core: 30, Memory: 5 * share.GiB}
	first, err := ask("one", five, share.FixedShare, slice(30, 5*share.GiB))
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	for _, tt := range []struct {
		name   string
		share  share.Share
		policy share.Policy
		slices []placement.Slice
		room   bool // it is room that lacks
		says   string
	}{
		{"no slice", five, "", nil, false, "on 0 card(s), and core 30 lies on 1"},
		{"foreign card", five, "", []placement.Slice{{UUID: "GPU-b", Core: 30, Memory: 5 * share.GiB}}, false, "this machine has none such; it has GPU-a"},
		{"one card twice", share.Share{Core: 200}, "", []placement.Slice{slice(100, 15*share.GiB), slice(100, 15*share.GiB)}, true, "a whole card is asked for"},
		{"more than the share", five, "", []placement.Slice{slice(30, 6*share.GiB)}, false, "6Gi on card GPU-a, and the share asks for core 30 and 5Gi"},
		{"memory is taken", share.Share{Core: 30, Memory: 11 * share.GiB}, "", []placement.Slice{slice(30, 11*share.GiB)}, true, "has 10Gi of 15Gi free"},
		{"core is taken", share.Share{Core: 75, Memory: share.GiB}, "", []placement.Slice{slice(75, share.GiB)}, true, "has 70 % of core free"},
		{"other policy", five, share.BestEffort, []placement.Slice{slice(30, 5*share.GiB)}, true, "shared by fixed-share, by tenant one, and not by best-effort"},
	} {
		_, err := ask("two", tt.share, tt.policy, tt.slices...)
		if err == nil || !strings.Contains(err.Error(), tt.says) || errors.Is(err, ErrNoRoom) != tt.room {
			t.Errorf("%s: %v, want …%s… and want of room %v", tt.name, err, tt.says, tt.room)
		}
	}
	second, err := ask("two", five, "", slice(30, 5*share.GiB))
	if err != nil || second.Tenant.Policy != share.FixedShare {
		t.Fatalf("a second that fits: %+v, %v", second, err)
	}
	second.Close()
}

func TestIDs(t *testing.T) {
	r := open(t)
	for _, id := range []string{"", ".", "..", "a/b", ".hidden", strings.Repeat("x", maxID+1)} {
		if a, err := admit(t, r, id, share.GiB); err == nil {
			a.Close()
			t.Errorf("a tenant may be called %q", id)
		}
		if _, ok, err := r.Find(id); ok || err != nil {
			t.Errorf("Find(%q) = %v, %v", id, ok, err)
		}
	}
	long := strings.Repeat("0123456789abcdef", 4) // as containerd names containers
	a, err := admit(t, r, long, share.GiB)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if _, err := admit(t, r, long, share.GiB); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("a second tenant of that id: %v", err)
	}
}

// TestAdopt keeps a container's place for as long as its first process lives, and frees it then.
func TestAdopt(t *testing.T) {
	r, ctx := open(t), context.Background()
	a, err := r.Admit(ctx, Tenant{ID: "c", Share: share.Share{Memory: share.GiB}, Container: true}, cards)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := r.Join(ctx, "c")
	if err != nil {
		t.Errorf("nobody listens for the container's processes: %v", err)
	} else {
		conn.Close()
	}
	first := exec.Command("sleep", "60")
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	if err := r.Adopt(ctx, "c", first.Process.Pid); err != nil {
		t.Fatal(err)
	}
	a.Close() // its mediator dies
	if err := r.Sweep(ctx, "c", 0); err != nil {
		t.Fatal(err)
	}
	if got, ok, err := r.Find("c"); err != nil || !ok || got.PID != first.Process.Pid {
		t.Errorf("while its first process lives: %+v, %v, %v", got, ok, err)
	}
	first.Process.Kill()
	first.Wait()
	if err := r.Sweep(ctx, "c", time.Minute); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(a.Dir); !os.IsNotExist(err) {
		t.Errorf("the folder is still there: %v", err)
	}
	if err := r.Adopt(ctx, "c", os.Getpid()); err == nil {
		t.Error("a tenant that has ended was given a process")
	}
}

// TestListedWhileAdmitted lists tenants while others are admitted: neither disturbs the other.
func TestListedWhileAdmitted(t *testing.T) {
	r := open(t)
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			if _, err := r.List(); err != nil {
				done <- err
				return
			}
		}
	}()
	for range 50 {
		a, err := admit(t, r, "one", share.GiB)
		if err != nil {
			t.Error(err)
			break
		}
		a.Close()
	}
	close(stop)
	if err := <-done; err != nil {
		t.Error(err)
	}
}
