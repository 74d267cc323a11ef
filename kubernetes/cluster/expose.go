package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/qgpu-project/qgpu/kubernetes/sandbox"
)

// The API server listens in the sandbox's network. A socket in the sandbox's folder
// leads there from the machine.
const apiSocket = "api.sock"

// Serve lets programs outside of the sandbox reach the API server, until ctx ends. See
// Expose for their side.
func (c *Cluster) Serve(ctx context.Context) error {
	listener, err := net.Listen("unix", c.sandbox.Path(apiSocket))
	if err != nil {
		return err
	}
	return forward(ctx, listener, "tcp", "127.0.0.1:443")
}

// Expose runs outside of the sandbox: once the cluster serves, it listens on a port of
// the machine's loopback interface and writes an administrator's kubeconfig with that
// port to path. It returns when ctx ends, and removes the kubeconfig.
func Expose(ctx context.Context, s *sandbox.Sandbox, path string, log *slog.Logger) {
	if err := expose(ctx, s, path); err != nil && !errors.Is(err, context.Canceled) {
		log.Error("the cluster cannot be reached from outside of its sandbox", "error", err)
	}
}

func expose(ctx context.Context, s *sandbox.Sandbox, path string) error {
	for {
		_, err := os.Stat(s.Path(apiSocket))
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	config, err := clientcmd.LoadFromFile(s.Path("plane", "admin.kubeconfig"))
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	for _, cluster := range config.Clusters {
		cluster.Server = fmt.Sprintf("https://%v", listener.Addr())
	}
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return errors.Join(err, listener.Close())
	}
	defer os.Remove(path)
	return forward(ctx, listener, "unix", s.Path(apiSocket))
}

// forward passes each connection of listener on to address, until ctx ends.
func forward(ctx context.Context, listener net.Listener, network, address string) error {
	stop := context.AfterFunc(ctx, func() { listener.Close() })
	defer stop()
	for {
		from, err := listener.Accept()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return err
		}
		go func() {
			defer from.Close()
			to, err := net.Dial(network, address)
			if err != nil {
				return // the caller sees its connection closed
			}
			defer to.Close()
			join(from, to)
		}()
	}
}

// join copies both ways until one side has no more.
func join(a, b net.Conn) {
	done := make(chan struct{}, 2)
	for _, pair := range [][2]net.Conn{{a, b}, {b, a}} {
		go func() {
			io.Copy(pair[0], pair[1])
			done <- struct{}{}
		}()
	}
	<-done
}
