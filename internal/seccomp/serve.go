package seccomp

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// slowCall is after how long a call that is being handled no longer holds up
	// the others: somebody else then receives. It becomes known within twice that.
	slowCall = time.Millisecond
	// watchIdle is how many periods of slowCall without a call end the watch.
	watchIdle = 50
	// maxSpares and spareLife bound the workers that wait to be of use again.
	maxSpares = 4
	spareLife = time.Second
	// grace is how long Serve waits, at its end, for handlers still at work.
	grace = 2 * time.Second
)

// Serve receives calls and answers them as h decides, until no filtered task is
// left, and then returns nil. When ctx is cancelled it returns the cause. Calls
// that wait then keep waiting: for another Serve, or for [Listener.Close].
//
// At its end Serve waits up to two seconds for handlers still at work; if one
// takes longer, the error says so, and the listener's descriptor stays open
// until it is done.
func (l *Listener) Serve(ctx context.Context, h Handler) error {
	if err := l.hold(); err != nil {
		return err
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		l.drop()
		return fmt.Errorf("seccomp: serve: %w", err)
	}
	s := newServer(l, h, wake)
	s.start()
	select {
	case <-s.done:
	case <-ctx.Done():
		s.finish(context.Cause(ctx))
	}
	ended := make(chan struct{})
	go func() {
		s.running.Wait()
		unix.Close(wake)
		l.drop()
		close(ended)
	}()
	select {
	case <-ended:
		return s.err
	case <-time.After(grace):
		return fmt.Errorf("seccomp: stopped serving, but a handler is still at work after %v", grace)
	}
}

// server shares a listener among workers by the leader-follower pattern. One
// worker, the leader, waits for a call and handles it on the spot, with no
// handover to another thread. Only when that takes longer than slowCall does
// another worker become the leader; the old one ends or waits as a spare after
// it has answered.
type server struct {
	listener *Listener
	handler  Handler
	lost     LossObserver // nil when the handler is none
	log      *slog.Logger
	wake     int // eventfd, readable when serving ends
	panics   atomic.Uint64
	turns    turns

	leader   atomic.Pointer[worker]
	watching atomic.Bool
	timer    *time.Timer
	seen     seen // what the watch saw last; the watch's alone

	done    chan struct{} // closed when serving ends
	running sync.WaitGroup

	mu       sync.Mutex
	stopping bool
	err      error
	workers  int
	spares   []*worker
}

// seen is the leader's state at a watch period, and for how many periods since
// it was waiting in the same state.
type seen struct {
	leader *worker
	state  uint64
	quiet  int
}

func newServer(l *Listener, h Handler, wake int) *server {
	s := &server{listener: l, handler: h, log: l.Log, wake: wake, done: make(chan struct{}),
		turns: turns{byThread: make(map[int]*turn)}}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.lost, _ = h.(LossObserver)
	s.timer = time.AfterFunc(time.Hour, s.watch)
	s.timer.Stop()
	return s
}

func (s *server) start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.newWorkerLocked()
	s.leader.Store(w)
	go w.run()
}

func (s *server) maxWorkers() int {
	if s.listener.MaxWorkers > 0 {
		return s.listener.MaxWorkers
	}
	return DefaultMaxWorkers
}

func (s *server) newWorkerLocked() *worker {
	s.workers++
	s.running.Add(1)
	return &worker{server: s, notification: newNotification(s.listener), promoted: make(chan struct{}, 1)}
}

// finish ends serving; the first call's err is what Serve returns.
func (s *server) finish(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return
	}
	s.stopping = true
	s.err = err
	s.timer.Stop()
	close(s.done)
	one := [8]byte{1}
	unix.Write(s.wake, one[:]) // cannot fail: the counter is 0
}

// called tells the watch that a call is being handled. It comes after the
// worker's state has been set.
func (s *server) called() {
	if !s.watching.Load() && s.watching.CompareAndSwap(false, true) {
		s.timer.Reset(s.listener.slow)
	}
}

// watch runs every slowCall while there are calls.
func (s *server) watch() {
	w := s.leader.Load()
	state := w.state.Load()
	switch {
	case w != s.seen.leader || state != s.seen.state:
		s.seen = seen{leader: w, state: state}
	case phaseOf(state) == busy:
		s.promote(w, state)
	default:
		s.seen.quiet++
	}
	if s.seen.quiet >= watchIdle {
		s.seen.quiet = 0
		s.watching.Store(false)
		// A call may have begun just before; it then relied on this watch.
		if phaseOf(s.leader.Load().state.Load()) != busy || !s.watching.CompareAndSwap(false, true) {
			return
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopping {
		s.timer.Reset(s.listener.slow)
	}
}

// promote makes another worker the leader, in place of one that has been at the
// same call for long. If all workers are taken, the old leader stays it.
func (s *server) promote(old *worker, state uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping || (len(s.spares) == 0 && s.workers >= s.maxWorkers()) {
		return
	}
	if !old.state.CompareAndSwap(state, state+demoted-busy) {
		return // it has just finished
	}
	s.turns.record(old, old.notification.Thread())
	if last := len(s.spares) - 1; last >= 0 {
		w := s.spares[last]
		s.spares = s.spares[:last]
		w.lead()
		s.leader.Store(w)
		w.promoted <- struct{}{}
		return
	}
	w := s.newWorkerLocked()
	s.leader.Store(w)
	go w.run()
}

// awaitPromotion returns when a promotion under way is complete.
func (s *server) awaitPromotion() {
	s.mu.Lock()
	defer s.mu.Unlock()
}

// park keeps a worker that is not the leader, and reports whether it became the
// leader again; if not, it must end.
func (s *server) park(w *worker) bool {
	s.mu.Lock()
	if s.stopping || len(s.spares) >= maxSpares {
		s.workers--
		s.mu.Unlock()
		return false
	}
	s.spares = append(s.spares, w)
	s.mu.Unlock()

	timeout := time.NewTimer(spareLife)
	defer timeout.Stop()
	select {
	case <-w.promoted:
		return true
	case <-s.done:
		return false
	case <-timeout.C:
		return !s.retire(w)
	}
}

// retire removes a spare, unless it has become the leader meanwhile.
func (s *server) retire(w *worker) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, spare := range s.spares {
		if spare == w {
			s.spares = append(s.spares[:i], s.spares[i+1:]...)
			s.workers--
			return true
		}
	}
	<-w.promoted
	return false
}
