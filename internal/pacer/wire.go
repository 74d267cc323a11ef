package pacer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Between a mediator and its pacer go packets of JSON. The pacer's are orders, or empty for
// the present state; the mediator's are its tenant's state, whenever that changes, or the
// answer to the one order that is under way.
type packet struct {
	Order   *Order   `json:"order,omitempty"`
	Tenant  *Tenant  `json:"tenant,omitempty"`
	Applied *Applied `json:"applied,omitempty"`
	Error   string   `json:"error,omitempty"`
}

// maxPacket bounds packets, in bytes, maxFiles the files that come with one, maxChannels the
// channels that are named in one.
const (
	maxPacket   = 128 << 10
	maxFiles    = 2
	maxChannels = 2048
)

func send(conn *net.UnixConn, p packet, files ...*os.File) error {
	data, err := json.Marshal(p)
	if err != nil {
		return err
	}
	var fds []int
	for _, f := range files {
		if f == nil {
			break
		}
		fds = append(fds, int(f.Fd()))
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	_, _, err = conn.WriteMsgUnix(data, rights, nil)
	return err
}

// receive reads a packet; io.EOF is the other side's end.
func receive(conn *net.UnixConn, buf []byte) (p packet, files []*os.File, err error) {
	rights := make([]byte, unix.CmsgSpace(4*maxFiles))
	n, rn, _, _, err := conn.ReadMsgUnix(buf, rights)
	if err != nil || n == 0 {
		if err == nil || errors.Is(err, unix.ECONNRESET) {
			err = io.EOF
		}
		return p, nil, err
	}
	if messages, err := unix.ParseSocketControlMessage(rights[:rn]); err == nil {
		for i := range messages {
			if fds, err := unix.ParseUnixRights(&messages[i]); err == nil {
				for _, fd := range fds {
					unix.CloseOnExec(fd)
					files = append(files, os.NewFile(uintptr(fd), "received"))
				}
			}
		}
	}
	if err := json.Unmarshal(buf[:n], &p); err != nil {
		closeAll(files)
		return p, nil, fmt.Errorf("a packet is damaged: %w", err)
	}
	return p, files, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// link is a pacer's side of the connection.
type link struct {
	conn    *net.UnixConn
	ordered sync.Mutex // one order at a time
	answers chan Applied
	gone    chan struct{} // closed when the mediator has ended
	failed  string        // of the last answer
}

func newLink(conn *net.UnixConn) *link {
	return &link{conn: conn, answers: make(chan Applied), gone: make(chan struct{})}
}

// errMediatorGone is for orders that nobody takes.
var errMediatorGone = errors.New("the mediator has ended")

// read hands out what comes, until the mediator ends.
func (l *link) read(tell func(Tenant)) error {
	defer close(l.gone)
	buf := make([]byte, maxPacket)
	for {
		p, files, err := receive(l.conn, buf)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed):
			return nil
		case err != nil:
			return fmt.Errorf("hear the mediator: %w", err)
		case p.Tenant != nil:
			tell(*p.Tenant)
		case p.Applied != nil:
			if len(files) == maxFiles {
				p.Applied.File, p.Applied.Process = files[0], files[1]
				files = nil
			}
			l.failed = p.Error
			l.answers <- *p.Applied
		}
		closeAll(files)
	}
}

// hello asks for the tenant's state. A mediator that has ended is no error: read will tell.
func (l *link) hello() error {
	if err := send(l.conn, packet{}); err != nil && !errors.Is(err, unix.EPIPE) {
		return fmt.Errorf("ask the mediator: %w", err)
	}
	return nil
}

// order has the mediator apply o.
func (l *link) order(o Order) (Applied, error) {
	l.ordered.Lock()
	defer l.ordered.Unlock()
	if err := send(l.conn, packet{Order: &o}); err != nil {
		return Applied{}, errMediatorGone
	}
	select {
	case <-l.gone:
		return Applied{}, errMediatorGone
	case a := <-l.answers:
		if l.failed != "" {
			a.Close()
			return Applied{}, errors.New(l.failed)
		}
		return a, nil
	}
}

// Mediator is what a mediator does for its pacer.
type Mediator interface {
	Tenant() Tenant
	Apply(Order) (Applied, error)
}

// Server is a mediator's side of the connection.
type Server struct {
	conn    *net.UnixConn
	m       Mediator
	mu      sync.Mutex // of writes
	changed chan struct{}
}

// NewServer serves m on conn, once Serve is called.
func NewServer(conn *net.UnixConn, m Mediator) *Server {
	return &Server{conn: conn, m: m, changed: make(chan struct{}, 1)}
}

// Changed has the pacer told that the tenant's state is another. It never blocks.
func (s *Server) Changed() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// tellPause is the time between two packets with the tenant's state, which the tenant can
// change as often as it likes: the pacer, which comes first for a processor, reads each.
const tellPause = 2 * time.Millisecond

// Serve answers until the pacer ends or the connection is closed.
func (s *Server) Serve() error {
	done := make(chan struct{})
	defer close(done)
	go func() {
		for {
			select {
			case <-done:
				return
			case <-s.changed:
				s.tell()
				time.Sleep(tellPause)
			}
		}
	}()
	buf := make([]byte, maxPacket)
	for {
		p, files, err := receive(s.conn, buf)
		closeAll(files)
		switch {
		case errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed):
			return nil
		case err != nil:
			return fmt.Errorf("hear the pacer: %w", err)
		case p.Order == nil:
			s.Changed()
		default:
			if err := s.answer(*p.Order); err != nil {
				return fmt.Errorf("answer the pacer: %w", err)
			}
		}
	}
}

func (s *Server) tell() {
	t := s.m.Tenant()
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = send(s.conn, packet{Tenant: &t}) // its end is Serve's to notice
}

func (s *Server) answer(o Order) error {
	a, err := s.m.Apply(o)
	out := packet{Applied: &a}
	if err != nil {
		out.Error = err.Error()
	}
	defer a.Close()
	a.Channels = a.Channels[:min(len(a.Channels), maxChannels)]
	s.mu.Lock()
	defer s.mu.Unlock()
	return send(s.conn, out, a.File, a.Process)
}
