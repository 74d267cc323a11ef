package runtimecmd

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/qgpu-project/qgpu/internal/seccomp"
)

func quiet() *sessions {
	return &sessions{log: slog.New(slog.DiscardHandler), done: make(chan struct{}), answer: func(context.Context, *seccomp.Listener) error { return nil }}
}

// TestSessionsEnd ends with the last listener, not before, and takes none afterwards.
func TestSessionsEnd(t *testing.T) {
	s := quiet()
	failure := errors.New("a listener failed")
	for range 3 {
		if err := s.begin(); err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range []error{nil, failure, nil} {
		select {
		case <-s.done:
			t.Fatal("the sessions ended before the last listener")
		default:
		}
		s.end(err)
	}
	<-s.done
	if !errors.Is(errors.Join(s.failed...), failure) {
		t.Errorf("the failures are %v", s.failed)
	}
	if err := s.begin(); err == nil || !strings.Contains(err.Error(), "has ended") {
		t.Errorf("after the end: %v", err)
	}
}

func TestSessionsBound(t *testing.T) {
	s := quiet()
	for range maxListeners {
		if err := s.begin(); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.begin(); err == nil || !strings.Contains(err.Error(), "no more") {
		t.Errorf("one more than the most: %v", err)
	}
	s.end(nil)
	if err := s.begin(); err != nil {
		t.Errorf("after one has ended: %v", err)
	}
}

// TestNobodyComes ends when the launcher ends before it hands a listener over, or hands
// over something else.
func TestNobodyComes(t *testing.T) {
	for name, send := range map[string]string{"nothing": "", "garbage": "hello\n", "a line without a listener": "killable 1\n"} {
		ours, theirs, err := seccomp.HandoverPair()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := theirs.WriteString(send); err != nil {
			t.Fatal(err)
		}
		theirs.Close()
		s := quiet()
		err = s.serve(t.Context(), ours, func(int) error { return nil })
		if err == nil || errors.Is(err, errNobody) != (send == "") {
			t.Errorf("%s came: %v", name, err)
		}
		<-s.done
	}
}

// TestJoinAfterEnd refuses who joins a container that has ended, at once.
func TestJoinAfterEnd(t *testing.T) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "join"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	s := quiet()
	returned := make(chan struct{})
	if err := s.begin(); err != nil {
		t.Fatal(err)
	}
	go func() {
		s.join(t.Context(), l)
		close(returned)
	}()
	conn, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte("garbage\n")); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("garbage was answered: %d, %v", n, err)
	}
	s.end(nil)
	s.closeJoins()
	<-returned
	if _, err := net.Dial("unix", l.Addr().String()); err == nil {
		t.Error("somebody can still join")
	}
}
