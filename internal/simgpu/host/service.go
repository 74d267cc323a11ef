package host

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/qgpu-project/qgpu/internal/devfs"
	"github.com/qgpu-project/qgpu/internal/seccomp"
	"github.com/qgpu-project/qgpu/internal/simgpu"
)

// socketName is the service's socket in its state folder.
const socketName = "simgpu.sock"

// The service's protocol: one line of JSON from the client, one back; after an
// attach the client sends its listener.
type request struct {
	Op   string `json:"op"`
	From uint64 `json:"from,omitempty"` // of opHistory, in ns of the cards' clocks
	Card int    `json:"card,omitempty"` // of opLose and opRecover
}

type reply struct {
	Error string             `json:"error,omitempty"`
	Info  *Info              `json:"info,omitempty"`
	Usage []simgpu.CardUsage `json:"usage,omitempty"`

	History []simgpu.CardHistory `json:"history,omitempty"`
}

const (
	opAttach = "attach"
	opInfo   = "info"
	opStop   = "stop"
	opUsage  = "usage"

	opHistory = "history"
	opLose    = "lose"
	opRecover = "recover"
)

// Info describes a running service.
type Info struct {
	PID     int               `json:"pid"`
	Version string            `json:"version"`
	Models  []string          `json:"models"`
	Nodes   []devfs.Node      `json:"nodes"`
	Files   map[string][]byte `json:"files"` // not all of them are text
}

// Service is a host that other processes attach to.
type Service struct {
	Host    *Host
	Version string
	Models  []string
}

// Listen makes the service's socket in dir. It fails when a service runs there.
func Listen(dir string) (*net.UnixListener, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the simulator's folder: %w", err)
	}
	path := filepath.Join(dir, socketName)
	if conn, err := net.Dial("unix", path); err == nil {
		conn.Close()
		return nil, fmt.Errorf("a simulator runs in %s already; end it with qgpu-sim stop", dir)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove the socket of an ended simulator: %w", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen for clients: %w", err)
	}
	return l, nil
}

// Serve answers clients on l until one asks to stop or ctx ends.
func (s *Service) Serve(ctx context.Context, l *net.UnixListener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return nil
			}
			return fmt.Errorf("accept a client: %w", err)
		}
		go func() {
			defer conn.Close()
			if err := s.serveClient(ctx, conn, cancel); err != nil {
				s.Host.log.Warn("client failed", "err", err)
			}
		}()
	}
}

func (s *Service) serveClient(ctx context.Context, conn *net.UnixConn, stop func()) error {
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	var req request
	if err := readLine(conn, &req); err != nil {
		if errors.Is(err, io.EOF) {
			return nil
		}
		return err
	}
	switch req.Op {
	case opInfo:
		view := s.Host.View()
		files := make(map[string][]byte, len(view.Files))
		for path, content := range view.Files {
			files[path] = []byte(content)
		}
		return json.NewEncoder(conn).Encode(reply{Info: &Info{
			PID: os.Getpid(), Version: s.Version, Models: s.Models, Nodes: view.Nodes, Files: files,
		}})
	case opUsage:
		return json.NewEncoder(conn).Encode(reply{Usage: s.Host.driver.Usage()})
	case opHistory:
		return json.NewEncoder(conn).Encode(reply{History: s.Host.driver.History(req.From)})
	case opLose, opRecover:
		var out reply
		if err := s.Host.driver.SetLost(req.Card, req.Op == opLose); err != nil {
			out.Error = err.Error()
		}
		return json.NewEncoder(conn).Encode(out)
	case opStop:
		defer stop()
		return json.NewEncoder(conn).Encode(reply{})
	case opAttach:
		return s.attach(ctx, conn)
	}
	return json.NewEncoder(conn).Encode(reply{Error: fmt.Sprintf("unknown request %q", req.Op)})
}

func (s *Service) attach(ctx context.Context, conn *net.UnixConn) error {
	if err := json.NewEncoder(conn).Encode(reply{}); err != nil {
		return err
	}
	listener, peer, err := seccomp.ReceiveListener(conn)
	if err != nil {
		return fmt.Errorf("receive a client's listener: %w", err)
	}
	defer listener.Close()
	if err := seccomp.Acknowledge(conn, nil); err != nil {
		return fmt.Errorf("acknowledge process %d: %w", peer.PID, err)
	}
	conn.Close()
	return s.Host.Supervise(ctx, listener)
}

// Client talks to a service.
type Client struct {
	Dir string
}

// ErrNotRunning says that no service runs in the client's folder.
var ErrNotRunning = errors.New("no simulator runs; start one with qgpu-sim start")

func (c Client) dial() (*net.UnixConn, error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: filepath.Join(c.Dir, socketName), Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("%w (%v)", ErrNotRunning, err)
	}
	return conn, nil
}

func (c Client) ask(conn *net.UnixConn, op string) (reply, error) {
	return c.send(conn, request{Op: op})
}

func (c Client) send(conn *net.UnixConn, req request) (reply, error) {
	var out reply
	if err := json.NewEncoder(conn).Encode(req); err != nil {
		return out, fmt.Errorf("ask the simulator: %w", err)
	}
	if err := readLine(conn, &out); err != nil {
		return out, fmt.Errorf("the simulator did not answer: %w", err)
	}
	if out.Error != "" {
		return out, fmt.Errorf("the simulator refused: %s", out.Error)
	}
	return out, nil
}

// Info asks the service what it simulates.
func (c Client) Info() (*Info, error) {
	conn, err := c.dial()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	out, err := c.ask(conn, opInfo)
	if err != nil {
		return nil, err
	}
	if out.Info == nil {
		return nil, errors.New("the simulator sent no description")
	}
	return out.Info, nil
}

// Usage is what the processes of the service's cards had of them.
func (c Client) Usage() ([]simgpu.CardUsage, error) {
	conn, err := c.dial()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	out, err := c.ask(conn, opUsage)
	return out.Usage, err
}

// History is what the processes of the service's cards had of them since a time of the
// cards' clocks, in ns.
func (c Client) History(from uint64) ([]simgpu.CardHistory, error) {
	conn, err := c.dial()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	out, err := c.send(conn, request{Op: opHistory, From: from})
	return out.History, err
}

// SetLost takes a card of the service off the bus, or puts it back.
func (c Client) SetLost(card int, lost bool) error {
	conn, err := c.dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	op := opRecover
	if lost {
		op = opLose
	}
	_, err = c.send(conn, request{Op: op, Card: card})
	return err
}

// Stop ends the service.
func (c Client) Stop() error {
	conn, err := c.dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = c.ask(conn, opStop)
	return err
}

// Attach makes a connection over which the calling process can send its listener.
func (c Client) Attach() (*net.UnixConn, error) {
	conn, err := c.dial()
	if err != nil {
		return nil, err
	}
	if _, err := c.ask(conn, opAttach); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// readLine reads one line and nothing after it, since a descriptor may follow.
func readLine(conn net.Conn, v any) error {
	const maxLine = 1 << 20
	line, err := bufio.NewReaderSize(oneByte{io.LimitReader(conn, maxLine)}, 16).ReadBytes('\n')
	if err != nil {
		return err
	}
	return json.Unmarshal(line, v)
}

// oneByte reads single bytes, so that a buffer above it never reads ahead.
type oneByte struct{ r io.Reader }

func (o oneByte) Read(p []byte) (int, error) { return o.r.Read(p[:min(1, len(p))]) }
