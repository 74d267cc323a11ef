package runtimecmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/qgpu-project/qgpu/internal/mediator"
	"github.com/qgpu-project/qgpu/internal/seccomp"
)

// maxListeners bounds the listeners of one tenant: those of processes that are executed
// in a container and run at one time.
const maxListeners = 1024

// handoverPatience is how long a launcher may take to hand its listener over.
const handoverPatience = time.Minute

// sessions are a tenant's listeners: that of its first process and, in a container, one
// more for each process that joins it. They end when the last of them has ended; who
// comes later is refused.
type sessions struct {
	answer func(context.Context, *seccomp.Listener) error // until the listener has ended
	log    *slog.Logger

	mu     sync.Mutex
	open   int  // listeners, and handovers of which one will come
	ended  bool // open was 0 after the first
	done   chan struct{}
	joins  *net.UnixListener
	failed []error
}

func newSessions(m *mediator.Mediator, log *slog.Logger) *sessions {
	return &sessions{log: log, done: make(chan struct{}), answer: func(ctx context.Context, l *seccomp.Listener) error {
		if !l.WaitKillable {
			m.Interruptible()
		}
		return l.Serve(ctx, handler{m})
	}}
}

// serve takes the first listener over conn and returns when all have ended. check is
// asked whether the thread that hands it over may be the tenant's.
func (s *sessions) serve(ctx context.Context, conn *net.UnixConn, check func(thread int) error) error {
	defer s.closeJoins()
	if err := s.begin(); err != nil {
		return err
	}
	listener, err := takeListener(conn, check)
	if err != nil {
		s.end(nil)
		return err
	}
	s.end(s.run(ctx, listener))
	<-s.done
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.failed...)
}

// join takes further listeners over connections to l until the tenant has ended.
func (s *sessions) join(ctx context.Context, l *net.UnixListener) {
	s.mu.Lock()
	s.joins = l
	ended := s.ended
	s.mu.Unlock()
	if ended {
		l.Close()
	}
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				s.log.Error("no more processes can join the container", "err", err)
				l.Close() // so that they are told, and do not wait
			}
			return
		}
		if err := s.begin(); err != nil {
			s.log.Warn("a process cannot join the container", "err", err)
			conn.Close()
			continue
		}
		go func() {
			listener, err := takeListener(conn, func(int) error { return nil })
			if err != nil {
				s.log.Warn("a process did not join the container", "err", err)
				s.end(nil)
				return
			}
			s.end(s.run(ctx, listener))
		}()
	}
}

func (s *sessions) begin() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ended:
		return errors.New("the tenant has ended")
	case s.open >= maxListeners:
		return fmt.Errorf("%d processes have joined it, and no more may at one time", s.open)
	}
	s.open++
	return nil
}

func (s *sessions) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.failed = append(s.failed, err)
	}
	if s.open--; s.open == 0 {
		s.ended = true
		close(s.done)
	}
}

func (s *sessions) run(ctx context.Context, l *seccomp.Listener) error {
	defer l.Close()
	err := s.answer(ctx, l)
	if err != nil {
		s.log.Error("calls of some of the tenant's processes are not answered any more", "err", err)
	}
	return err
}

func (s *sessions) closeJoins() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	if s.joins != nil {
		s.joins.Close()
	}
}

// errNobody says that a launcher ended before it had anything to hand over.
var errNobody = errors.New("the program was never started")

// takeListener takes a listener over conn, which it closes, from root. check refuses
// threads.
func takeListener(conn *net.UnixConn, check func(thread int) error) (*seccomp.Listener, error) {
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(handoverPatience))
	listener, peer, err := seccomp.ReceiveListener(conn)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, unix.ECONNRESET) {
		return nil, errNobody
	}
	if err != nil {
		return nil, fmt.Errorf("receive the program's listener: %w", err)
	}
	if peer.UID != 0 {
		err = errors.New("only root may hand a program over")
	} else {
		err = check(peer.Thread)
	}
	if ackErr := seccomp.Acknowledge(conn, err); err == nil {
		err = ackErr
	}
	if err != nil {
		listener.Close()
		return nil, err
	}
	return listener, nil
}

// handler adapts a mediator to notifications.
type handler struct{ m *mediator.Mediator }

func (h handler) Handle(n *seccomp.Notification) seccomp.Answer { return h.m.Handle(n) }

func (h handler) Lost(n *seccomp.Notification, a seccomp.Answer) { h.m.Lost(n, a) }
