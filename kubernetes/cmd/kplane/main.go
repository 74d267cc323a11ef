// Command kplane runs a Kubernetes control plane in one process, for tests.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"k8s.io/client-go/rest"

	"github.com/qgpu-project/qgpu/kubernetes/controlplane"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "kplane:", err)
		os.Exit(1)
	}
}

func run() error {
	dir := flag.String("dir", "", "folder of the control plane's data, keys and kubeconfigs (required)")
	listen := flag.String("listen", "127.0.0.1:0", "address and port of the API server")
	advertise := flag.String("advertise", "127.0.0.1", "address at which nodes and pods reach it")
	nodes := flag.String("nodes", "", "names of nodes to write a kubeconfig for, separated by commas")
	flag.Parse()
	address := net.ParseIP(*advertise)
	if *dir == "" || address == nil || flag.NArg() > 0 {
		return fmt.Errorf("--dir and a valid --advertise address are needed, and no arguments; see --help")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	rest.SetDefaultWarningHandler(rest.NoWarnings{}) // components warn each other of deprecations

	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	plane, err := controlplane.Start(ctx, controlplane.Config{Dir: *dir, Listen: *listen, Advertise: address, Scheduler: true, Log: log})
	if err != nil {
		return err
	}
	if err := writeKubeconfigs(plane, *dir, address, *nodes); err != nil {
		return err
	}
	err = plane.Wait(ctx)
	if stopErr := plane.Stop(); err == nil {
		err = stopErr
	}
	return err
}

// writeKubeconfigs writes those of the nodes and last the administrator's, whose
// presence says that all is ready.
func writeKubeconfigs(plane *controlplane.ControlPlane, dir string, address net.IP, nodes string) error {
	_, port, _ := strings.Cut(strings.TrimPrefix(plane.URL(), "https://"), ":")
	for node := range strings.SplitSeq(nodes, ",") {
		if node == "" {
			continue
		}
		path := filepath.Join(dir, node+".kubeconfig")
		if err := plane.Kubeconfig(path, "https://"+net.JoinHostPort(address.String(), port), "system:node:"+node, "system:nodes"); err != nil {
			return err
		}
	}
	temporary := filepath.Join(dir, "admin.kubeconfig.new")
	if err := plane.Kubeconfig(temporary, "", "kubernetes-admin", "system:masters"); err != nil {
		return err
	}
	return os.Rename(temporary, filepath.Join(dir, "admin.kubeconfig"))
}
