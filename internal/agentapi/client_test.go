package agentapi

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/share"
)

// script answers the n-th question with the n-th answer, and all later ones with the last.
type script struct {
	answers []answered
	asked   atomic.Int64
}

type answered struct {
	grant Grant
	err   error
}

func (s *script) Grant(context.Context, Container) (Grant, error) {
	n := min(int(s.asked.Add(1)), len(s.answers))
	return s.answers[n-1].grant, s.answers[n-1].err
}

func (*script) Ready() error { return nil }

// serve answers on path by g until the test ends.
func serve(t *testing.T, path string, g Granter) {
	t.Helper()
	l, err := Listen(path)
	if err != nil {
		t.Error(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, l, Handler(g, slog.New(slog.DiscardHandler))) }()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

func socket(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "agent-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, DefaultSocket)
}

var who = Container{PodUID: "u", PodNamespace: "default", PodName: "p", Name: "c"}

func TestGrant(t *testing.T) {
	granted := Grant{
		Share: share.Share{Core: 30, Memory: 5 * share.GiB}, Policy: share.FixedShare, Driver: "simulated",
		Slices: []placement.Slice{{Index: 1, UUID: "GPU-a", Core: 30, Memory: 5 * share.GiB}},
	}
	later := &Refusal{Reason: "the ledger is being rebuilt", Temporary: true}
	never := &Refusal{Reason: "pod default/p was not placed by qgpu-scheduler"}
	for _, tt := range []struct {
		name    string
		answers []answered
		asked   int64
		err     string
	}{
		{"at once", []answered{{grant: granted}}, 1, ""},
		{"after temporary refusals", []answered{{err: later}, {err: errors.New("the API is away")}, {grant: granted}}, 3, ""},
		{"refused", []answered{{err: never}}, 1, never.Reason},
		{"refused later", []answered{{err: later}, {err: never}}, 2, never.Reason},
	} {
		s := &script{answers: tt.answers}
		path := socket(t)
		serve(t, path, s)
		client := Client{Socket: path, Pause: time.Millisecond}
		grant, err := client.Grant(t.Context(), who)
		switch {
		case tt.err == "" && (err != nil || len(grant.Slices) != 1 || grant.Slices[0] != granted.Slices[0] || grant.Share != granted.Share):
			t.Errorf("%s: %+v, %v", tt.name, grant, err)
		case tt.err != "" && (err == nil || err.Error() != tt.err):
			t.Errorf("%s: %v, want %s", tt.name, err, tt.err)
		}
		if n := s.asked.Load(); n != tt.asked {
			t.Errorf("%s: the agent was asked %d times, want %d", tt.name, n, tt.asked)
		}
	}
}

// TestAgentAway waits for an agent that is not there yet, and gives up at last.
func TestAgentAway(t *testing.T) {
	path := socket(t)
	client := Client{Socket: path, Pause: time.Millisecond}
	go func() {
		time.Sleep(20 * time.Millisecond)
		serve(t, path, &script{answers: []answered{{}}})
	}()
	if _, err := client.Grant(t.Context(), who); err != nil {
		t.Errorf("an agent that came late: %v", err)
	}
	client = Client{Socket: path + ".none", Pause: time.Millisecond, Patience: 50 * time.Millisecond}
	_, err := client.Grant(t.Context(), who)
	if err == nil || !strings.Contains(err.Error(), "gave no answer for container c of pod default/p in time") || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("no agent: %v", err)
	}
}

// TestNoAgent gives up on what is at the socket but is no agent.
func TestNoAgent(t *testing.T) {
	path := socket(t)
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client := Client{Socket: path, Pause: time.Millisecond, Patience: 50 * time.Millisecond}
	if _, err := client.Grant(t.Context(), who); err == nil {
		t.Error("a silent socket granted something")
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add(200, []byte(`{"share":{"core":30,"memory":1073741824},"slices":[{"uuid":"GPU-a"}]}`))
	f.Add(503, []byte(`{"reason":"later","temporary":true}`))
	f.Add(500, []byte(`<html>`))
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		grant, err := parseAnswer(status, body)
		if err == nil && status != 200 {
			t.Errorf("status %d granted %+v", status, grant)
		}
		var refusal *Refusal
		if errors.As(err, &refusal) && refusal.Reason == "" {
			t.Error("a refusal without a reason")
		}
	})
}
