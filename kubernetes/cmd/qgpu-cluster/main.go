// Command qgpu-cluster runs a Kubernetes cluster with simulated GPUs and qGPU on this machine,
// until it is interrupted. Nothing of it is left then.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/qgpu-project/qgpu/kubernetes/cluster"
	"github.com/qgpu-project/qgpu/kubernetes/sandbox"
)

func main() {
	root := flag.String("root", ".", "folder of the repository, with what was built in it")
	kubeconfig := flag.String("kubeconfig", ".cache/cluster.kubeconfig", "file to write the administrator's kubeconfig to, while the cluster runs")
	demo := flag.Bool("demo", false, "show pods sharing a card, then end")
	verbose := flag.Bool("v", false, "log more")
	flag.Parse()

	level := slog.LevelInfo
	if *verbose {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	options := sandbox.Options{Log: log}
	if !*demo {
		options.Outside = func(ctx context.Context, s *sandbox.Sandbox) { cluster.Expose(ctx, s, *kubeconfig, log) }
	}
	os.Exit(sandbox.Main(options, func(s *sandbox.Sandbox) int {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		if err := run(ctx, s, *root, *kubeconfig, *demo, log); err != nil && !errors.Is(err, context.Canceled) {
			fmt.Fprintln(os.Stderr, "qgpu-cluster:", err)
			return 1
		}
		return 0
	}))
}

func run(ctx context.Context, s *sandbox.Sandbox, root, kubeconfig string, demo bool, log *slog.Logger) (err error) {
	if root, err = filepath.Abs(root); err != nil {
		return err
	}
	c, err := cluster.Start(ctx, s, cluster.Default(root, log))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	log.Info("installing qGPU's chart")
	if err := c.Install(ctx); err != nil {
		return err
	}
	if demo {
		return show(ctx, c, os.Stdout)
	}
	fmt.Printf(welcome, kubeconfig, root)
	return c.Serve(ctx)
}

const welcome = `
The cluster runs. Its nodes are turing (2 T4, fixed-share) and ampere (2 A100, best-effort).
In another terminal, with any kubectl:

  export KUBECONFIG=%[1]s
  kubectl get nodes -o wide
  kubectl get cardinventories
  kubectl apply -f %[2]s/kubernetes/cmd/qgpu-cluster/try.yaml   # two pods share a card
  kubectl exec half -- nvidia-smi                     # sees its share as the card
  kubectl exec half -- cudaload fill                  # takes memory until its quota is full
  %[2]s/bin/kubectl-qgpu nodes                        # who has what of which card

Logs of kubelets, containerd and the control plane are in /tmp/qgpu-sandbox-*/logs.
Ctrl-C ends the cluster and removes it.

`
