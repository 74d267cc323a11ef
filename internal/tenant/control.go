package tenant

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/qgpu-project/qgpu/internal/share"
)

// The control protocol is one line of JSON each way a connection.
type request struct {
	Op    string       `json:"op"`
	Share *share.Share `json:"share,omitempty"` // of opResize
}

type reply struct {
	Error string `json:"error,omitempty"`
	State *State `json:"state,omitempty"`
}

const (
	opState        = "state"
	opResize       = "resize"
	controlTimeout = 5 * time.Second
	maxLine        = 1 << 20
)

// Stater tells a tenant's state. It may be a [Resizer], too.
type Stater interface {
	State() State
}

// ServeControl answers on the control socket l until it is closed. Only root may
// ask: a tenant must not reach its own mediator's control.
func ServeControl(l *net.UnixListener, s Stater, log *slog.Logger) {
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				log.Error("control socket ended", "err", err)
			}
			return
		}
		go func() {
			defer conn.Close()
			conn.SetDeadline(time.Now().Add(controlTimeout))
			if err := answer(conn, s); err != nil {
				log.Warn("control request failed", "err", err)
			}
		}()
	}
}

func answer(conn *net.UnixConn, s Stater) error {
	var out reply
	req, err := readLine[request](conn)
	switch {
	case err != nil:
		return err
	case !fromRoot(conn):
		out.Error = "only root may ask a mediator"
	case req.Op == opState:
		state := s.State()
		out.State = &state
	case req.Op == opResize:
		if err := resize(s, req.Share); err != nil {
			out.Error = err.Error()
		}
	default:
		out.Error = fmt.Sprintf("unknown request %q", req.Op)
	}
	return json.NewEncoder(conn).Encode(out)
}

func fromRoot(conn *net.UnixConn) bool {
	raw, err := conn.SyscallConn()
	if err != nil {
		return false
	}
	var cred *unix.Ucred
	ctlErr := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	return ctlErr == nil && err == nil && cred.Uid == 0
}

func readLine[T any](conn net.Conn) (T, error) {
	var v T
	scanner := bufio.NewScanner(conn)
	scanner.Buffer(nil, maxLine)
	if !scanner.Scan() {
		if err := scanner.Err(); err != nil {
			return v, err
		}
		return v, errors.New("the connection closed without a message")
	}
	return v, json.Unmarshal(scanner.Bytes(), &v)
}

// State asks the mediator of tenant id for its state.
func (r *Registry) State(ctx context.Context, id string) (State, error) {
	out, err := r.ask(ctx, id, request{Op: opState})
	if err != nil {
		return State{}, err
	}
	if out.State == nil {
		return State{}, fmt.Errorf("tenant %s's mediator sent no state", id)
	}
	return *out.State, nil
}
