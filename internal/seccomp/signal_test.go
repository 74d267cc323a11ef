package seccomp

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	stormCalls  = 20
	stormPeriod = 700 * time.Microsecond
	stormCall   = 5 * time.Millisecond // how long each call takes to execute
)

// storm sends SIGURG, whose handler in a Go program restarts system calls, to
// the thread that calls, as profilers and preemption do.
type storm struct {
	mu              sync.Mutex
	process, thread int
	sent            int
}

func (s *storm) aimAt(n *Notification) {
	process, err := n.Process()
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.process, s.thread = process, n.Thread()
}

func (s *storm) send() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process != 0 && unix.Tgkill(s.process, s.thread, unix.SIGURG) == nil {
		s.sent++
	}
}

// blow sends until stopped.
func (s *storm) blow() (stop func()) {
	ticker, done, ended := time.NewTicker(stormPeriod), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-ticker.C:
				s.send()
			case <-done:
				return
			}
		}
	}()
	return func() { ticker.Stop(); close(done); <-ended }
}

// mustSucceed checks that the program's calls have all returned their keys.
func mustSucceed(t *testing.T, out string, calls int) {
	t.Helper()
	for i := range calls {
		if !strings.Contains(out, fmt.Sprintf("%d: %d 0 0", i, i)) {
			t.Errorf("call %d did not succeed:\n%s", i, out)
		}
	}
}

func TestSignalsDoNotRepeatCalls(t *testing.T) {
	p := start(t, launchConfig{}, fmt.Sprintf("calls 0 %d", stormCalls))
	if !p.listener.WaitKillable {
		t.Skip("this kernel has no WAIT_KILLABLE_RECV (Linux 5.19)")
	}
	var s storm
	stop := s.blow()
	executed := 0
	out := p.serve(lossHandler{
		handlerFunc: func(n *Notification) Answer {
			s.aimAt(n)
			key, err := keyOf(n)
			if err != nil {
				t.Error(err)
			}
			executed++
			time.Sleep(stormCall)
			return Result(int64(key))
		},
		lost: func(*Notification, Answer) { t.Error("an answer was lost") },
	})
	stop()
	if executed != stormCalls {
		t.Errorf("%d executions of %d calls", executed, stormCalls)
	}
	mustSucceed(t, out, stormCalls)
	if s.sent == 0 {
		t.Error("no signal was sent: the test shows nothing")
	}
}

// replayer executes calls and remembers the answers that were lost: what a
// handler needs where signals can interrupt a call. A lost call comes again from
// the same thread with the same arguments, before any other of that thread.
//
// It interrupts every call itself, while it executes it, and again while the
// interrupted call waits for its turn.
type replayer struct {
	t        *testing.T
	lost     map[int]lostCall // by thread
	executed map[uint64]int   // executions of each key
	replays  int
}

type lostCall struct {
	args   [6]uint64
	key    uint64
	answer Answer
}

func (r *replayer) Handle(n *Notification) Answer {
	key, err := keyOf(n)
	if errors.Is(err, ErrGone) {
		return Fail(err) // interrupted already: nothing is done
	}
	if err != nil {
		r.t.Error(err)
	}
	if c, ok := r.lost[n.Thread()]; ok {
		delete(r.lost, n.Thread())
		if c.args == argsOf(n) && c.key == key {
			r.replays++
			return c.answer
		}
	}
	r.executed[key]++
	process, err := n.Process()
	if err != nil {
		r.t.Error(err)
	}
	if err := unix.Tgkill(process, n.Thread(), unix.SIGURG); err != nil {
		r.t.Error(err)
	}
	for n.Valid() {
		time.Sleep(time.Millisecond)
	}
	// Its memory can be reached still, but may be another call's by now.
	if _, err := keyOf(n); !errors.Is(err, ErrGone) {
		r.t.Errorf("memory of an interrupted call: %v, want %v", err, ErrGone)
	}
	if err := n.WriteMemory([]byte{1}, n.Arg(2)); !errors.Is(err, ErrGone) {
		r.t.Errorf("write for an interrupted call: %v, want %v", err, ErrGone)
	}
	// Long enough, usually, for another worker to receive the repetition.
	time.Sleep(stormCall)
	if err := unix.Tgkill(process, n.Thread(), unix.SIGURG); err != nil {
		r.t.Error(err)
	}
	time.Sleep(stormCall)
	return Result(int64(key))
}

func (r *replayer) Lost(n *Notification, a Answer) {
	if a.Errno != 0 {
		return
	}
	r.lost[n.Thread()] = lostCall{args: argsOf(n), key: uint64(a.Value), answer: a}
}

func argsOf(n *Notification) (args [6]uint64) {
	for i := range args {
		args[i] = n.Arg(i)
	}
	return args
}

func TestInterruptedCallsAreReplayed(t *testing.T) {
	p := start(t, launchConfig{options: "interruptible"}, fmt.Sprintf("calls 0 %d", stormCalls))
	if p.listener.WaitKillable {
		t.Fatal("the listener says that WAIT_KILLABLE_RECV is active")
	}
	r := &replayer{t: t, lost: make(map[int]lostCall), executed: make(map[uint64]int)}
	mustSucceed(t, p.serve(r), stormCalls)
	for key, n := range r.executed {
		if n != 1 {
			t.Errorf("call %d was executed %d times", key, n)
		}
	}
	if r.replays < stormCalls { // a replay's answer may be lost again
		t.Errorf("%d replays, want one at least of each of %d calls", r.replays, stormCalls)
	}
}
