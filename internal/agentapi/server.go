package agentapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"
)

// Granter decides what a container gets. An error that is no *Refusal is the agent's own
// fault, and temporary.
type Granter interface {
	Grant(ctx context.Context, c Container) (Grant, error)
	// Ready is why no container can be answered for yet, or nil.
	Ready() error
}

// Bounds on what one question may be and how long its answer may take.
const (
	maxQuestion   = 64 << 10 // bytes; names in Kubernetes have at most 253 characters
	answerTimeout = 30 * time.Second
)

// Handler is the agent's HTTP interface to g.
func Handler(g Granter, log *slog.Logger) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+GrantPath, func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), answerTimeout)
		defer cancel()
		c, err := readQuestion(w, r)
		if err != nil {
			answer(w, http.StatusBadRequest, &Refusal{Reason: err.Error()}, log)
			return
		}
		grant, err := g.Grant(ctx, c)
		var refusal *Refusal
		switch {
		case err == nil:
			answer(w, http.StatusOK, grant, log)
		case errors.As(err, &refusal) && !refusal.Temporary:
			answer(w, http.StatusForbidden, refusal, log)
		default:
			answer(w, http.StatusServiceUnavailable, &Refusal{Reason: err.Error(), Temporary: true}, log)
		}
	})
	mux.HandleFunc("GET "+HealthPath, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET "+ReadyPath, func(w http.ResponseWriter, _ *http.Request) {
		if err := g.Ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	return mux
}

// readQuestion reads one container's name, whole and with nothing beside it.
func readQuestion(w http.ResponseWriter, r *http.Request) (Container, error) {
	var c Container
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxQuestion))
	if err := decoder.Decode(&c); err != nil {
		return c, fmt.Errorf("the question is no container in JSON: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return c, errors.New("the question has something after the container")
	}
	for _, field := range []struct{ name, value string }{
		{"podUID", c.PodUID}, {"podNamespace", c.PodNamespace}, {"podName", c.PodName}, {"name", c.Name},
	} {
		if field.value == "" {
			return c, fmt.Errorf("the question lacks %s", field.name)
		}
	}
	return c, nil
}

func answer(w http.ResponseWriter, status int, v any, log *slog.Logger) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(v); err != nil {
		log.Warn("an answer did not reach its asker", "err", err)
	}
}

// Listen makes the agent's socket at path, for root alone. A socket of an agent that has
// ended is replaced; one that answers is left, and an error.
func Listen(path string) (*net.UnixListener, error) {
	if conn, err := net.Dial("unix", path); err == nil {
		conn.Close()
		return nil, fmt.Errorf("another agent answers on %s; end it first", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove the socket of an ended agent: %w", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen for the runtime: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, fmt.Errorf("close the agent's socket to others: %w", err)
	}
	return l, nil
}

// Serve answers on l until ctx ends, and then lets running answers end.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	server := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, IdleTimeout: time.Minute}
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if server.Shutdown(end) != nil {
			server.Close()
		}
	})
	err := server.Serve(l)
	if stop() { // it ended by itself
		return fmt.Errorf("serve on %v: %w", l.Addr(), err)
	}
	<-stopped
	return nil
}
