package seccomp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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

// A goroutine that serves, and what Serve returned.
func serveInBackground(ctx context.Context, l *Listener, h Handler) <-chan error {
	result := make(chan error, 1)
	go func() { result <- l.Serve(ctx, h) }()
	return result
}

// within fails the test when nothing comes from c for very long.
func within[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(20 * time.Second):
		t.Fatalf("waited in vain for %s", what)
		panic("unreachable")
	}
}

func TestVariantsOfTheCommand(t *testing.T) {
	var caught []uint64
	run(t, launchConfig{}, "variants", handlerFunc(func(n *Notification) Answer {
		caught = append(caught, n.Arg(1))
		return Result(0)
	}))
	want := []uint64{testCmd&^(0xff<<8) | 'X'<<8, callSize<<16 | callNr, 0xdeadbeef<<32 | testCmd}
	if !slices.Equal(caught, want) {
		t.Errorf("caught %#x, want %#x", caught, want)
	}
}

func TestHighOffsetsOfMmap(t *testing.T) {
	got := run(t, launchConfig{}, "mmap", handlerFunc(func(*Notification) Answer { return Fail(unix.ENXIO) }))
	if want := "0\n6\n6"; got != want {
		t.Errorf("got errnos %q, want %q", got, want)
	}
}

func TestContinueExecutesTheCall(t *testing.T) {
	got := run(t, launchConfig{}, "calls 1 1", handlerFunc(func(*Notification) Answer { return Answer{Continue: true} }))
	if want := fmt.Sprintf("1: -1 0 %d", unix.ENOTTY); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestErrnosOutsideTheRangeBecomeEIO(t *testing.T) {
	for _, errno := range []int{-1, 512, 1 << 40} {
		got := run(t, launchConfig{}, "calls 1 1", handlerFunc(func(*Notification) Answer { return Answer{Errno: errno} }))
		if want := fmt.Sprintf("1: -1 0 %d", unix.EIO); got != want {
			t.Errorf("errno %d: got %q, want %q", errno, got, want)
		}
	}
}

func TestSlowCallHoldsUpNobody(t *testing.T) {
	const threads = 32
	others := make(chan struct{}) // closed when all others have been answered
	var answered atomic.Int32
	got := run(t, launchConfig{}, fmt.Sprintf("threads %d 1", threads+1), handlerFunc(func(n *Notification) Answer {
		key, err := keyOf(n)
		if err != nil {
			t.Error(err)
		}
		if key == 0 {
			<-others
		} else if answered.Add(1) == threads {
			close(others)
		}
		return Result(int64(key))
	}))
	if lines := strings.Count(got, "\n") + 1; lines != threads+1 {
		t.Errorf("%d calls were answered, want %d", lines, threads+1)
	}
}

func TestCallsThatWaitForEachOther(t *testing.T) {
	const threads = 20
	var barrier sync.WaitGroup
	barrier.Add(threads)
	got := run(t, launchConfig{}, fmt.Sprintf("threads %d 1", threads), handlerFunc(func(n *Notification) Answer {
		barrier.Done()
		barrier.Wait()
		return Result(1)
	}))
	if lines := strings.Count(got, ": 1 0 0"); lines != threads {
		t.Errorf("%d calls were answered, want %d", lines, threads)
	}
}

func TestWorkersAreBounded(t *testing.T) {
	const threads, limit = 8, 3
	p := start(t, launchConfig{}, fmt.Sprintf("threads %d 2", threads))
	p.listener.MaxWorkers = limit
	var current, most atomic.Int32
	full := make(chan struct{})
	var once sync.Once
	p.serve(handlerFunc(func(n *Notification) Answer {
		now := current.Add(1)
		defer current.Add(-1)
		for old := most.Load(); now > old && !most.CompareAndSwap(old, now); old = most.Load() {
		}
		if now == limit {
			once.Do(func() { close(full) })
		}
		<-full // all wait until the limit is reached
		return Result(0)
	}))
	if most.Load() != limit {
		t.Errorf("%d calls were handled at once, want %d", most.Load(), limit)
	}
}

func TestCancelEndsServing(t *testing.T) {
	p := start(t, launchConfig{}, "calls 2 1")
	cause := errors.New("the supervisor goes home")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(cause)
	served := serveInBackground(ctx, p.listener, handlerFunc(func(n *Notification) Answer { return Result(2) }))
	if err := within(t, "the end of serving", served); !errors.Is(err, cause) {
		t.Fatalf("got %v, want %v", err, cause)
	}
	// A call may have been answered before the end; all others wait for the next Serve.
	if got, want := p.serve(handlerFunc(func(*Notification) Answer { return Result(2) })), "2: 2 0 0"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestCancelWhileIdle(t *testing.T) {
	p := start(t, launchConfig{}, "orphan child") // waits for standard input: none, ends
	ctx, cancel := context.WithCancel(context.Background())
	called := make(chan struct{}, 1)
	served := serveInBackground(ctx, p.listener, handlerFunc(func(*Notification) Answer {
		called <- struct{}{}
		cancel()
		return Result(0)
	}))
	within(t, "the call", called)
	if err := within(t, "the end of serving", served); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}

func TestClosedListenerAnswersENOSYS(t *testing.T) {
	p := start(t, launchConfig{}, "calls 2 1")
	p.listener.Close()
	p.wait()
	if got, want := strings.TrimSpace(p.out.String()), fmt.Sprintf("2: -1 0 %d", unix.ENOSYS); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if err := p.listener.Serve(context.Background(), echo(t)); err == nil {
		t.Error("a closed listener was served")
	}
}

func TestKilledWhileWaiting(t *testing.T) {
	p := start(t, launchConfig{}, "calls 1 1")
	var (
		readErr, writeErr, dupErr, processErr error
		lost                                  = make(chan Answer, 1)
	)
	err := p.listener.Serve(context.Background(), lossHandler{
		handlerFunc: func(n *Notification) Answer {
			p.kill()
			_, readErr = keyOf(n)
			writeErr = n.WriteMemory([]byte{1}, n.Arg(2))
			_, dupErr = n.Dup(int32(n.Arg(0)))
			_, processErr = n.Process()
			return Result(99)
		},
		lost: func(n *Notification, a Answer) {
			if n.Arg(1) != testCmd {
				t.Errorf("the lost call has command %#x, want %#x", n.Arg(1), uint64(testCmd))
			}
			lost <- a
		},
	})
	if err != nil {
		t.Errorf("serve: %v, want nil when nobody is left", err)
	}
	for what, err := range map[string]error{"read": readErr, "write": writeErr, "dup": dupErr, "process": processErr} {
		if !errors.Is(err, ErrGone) || !errors.Is(err, unix.ESRCH) {
			t.Errorf("%s of a dead caller: %v, want %v", what, err, ErrGone)
		}
	}
	if a := within(t, "the loss", lost); a.Value != 99 {
		t.Errorf("lost answer has value %d, want 99", a.Value)
	}
}

// TestLeadChangesAtAnyMoment has the watch find every call slow.
func TestLeadChangesAtAnyMoment(t *testing.T) {
	const threads, calls = 3, 400
	p := start(t, launchConfig{}, fmt.Sprintf("threads %d %d", threads, calls))
	p.listener.slow = time.Microsecond
	got := p.serve(echo(t))
	for i := range threads {
		line := fmt.Sprintf("%d: %d %d 0\n", i, i, 10*i)
		if n := strings.Count(got+"\n", line); n != calls {
			t.Errorf("thread %d: %d calls were answered, want %d", i, n, calls)
		}
	}
}
