package seccomp

import (
	"encoding/binary"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// echo answers a call with its key, and writes 10 times the key back.
func echo(t testing.TB) Handler {
	return handlerFunc(func(n *Notification) Answer {
		key, err := keyOf(n)
		if err != nil {
			t.Error(err)
			return Fail(err)
		}
		reply := binary.LittleEndian.AppendUint64(nil, 10*key)
		if err := n.WriteMemory(reply, n.Arg(2)+8); err != nil {
			t.Error(err)
		}
		return Result(int64(key))
	})
}

func keyOf(n *Notification) (uint64, error) {
	buf := make([]byte, callSize)
	err := n.ReadMemory(buf, n.Arg(2))
	return binary.LittleEndian.Uint64(buf), err
}

func TestCallsAreCaught(t *testing.T) {
	tests := []struct {
		name, program string
		want          string
	}{
		{"first thread", "calls 3 2", "3: 3 30 0\n4: 4 40 0"},
		{"fork", "fork", "child: 7"},
		{"vfork and exec", "exec", "5: 5 50 0"},
		{"grandchild of a dead parent", "orphan", "6: 6 60 0"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := run(t, launchConfig{}, tt.program, echo(t)); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestCallsOfAllThreads(t *testing.T) {
	got := run(t, launchConfig{}, "threads 8 5", echo(t))
	lines := strings.Split(got, "\n")
	if len(lines) != 40 {
		t.Errorf("got %d results, want 40:\n%s", len(lines), got)
	}
	for _, line := range lines {
		if !strings.HasSuffix(line, "0 0") {
			t.Errorf("a call failed: %s", line)
		}
	}
}

func TestPanicIsAnsweredWithEIO(t *testing.T) {
	first := true
	got := run(t, launchConfig{}, "calls 1 2", handlerFunc(func(*Notification) Answer {
		if first {
			first = false
			panic("handler at its wits' end")
		}
		return Fail(unix.ENOTTY)
	}))
	if want := "1: -1 0 5\n2: -1 0 25"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
