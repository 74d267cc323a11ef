// Package agentcmd is the qgpu-agent command: it reads the flags of a node's agent, makes
// what the agent works with, and asks a running one how it is.
package agentcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/qgpu-project/qgpu/internal/agent"
	"github.com/qgpu-project/qgpu/internal/agentapi"
	"github.com/qgpu-project/qgpu/internal/cli/installcmd"
	"github.com/qgpu-project/qgpu/internal/discovery"
	"github.com/qgpu-project/qgpu/internal/inventory"
	"github.com/qgpu-project/qgpu/internal/tenant"
)

// options are the agent's flags.
type options struct {
	node         string
	kubeconfig   string
	driver       string
	stateDir     string
	simDir       string
	bin          string
	podResources string
	nano         bool
	listen       string
	level        slog.Level
}

// New makes the command.
func New() *cobra.Command {
	o := &options{}
	root := &cobra.Command{
		Use:   "qgpu-agent",
		Short: "A node's part of qGPU in Kubernetes",
	}
	root.PersistentFlags().StringVar(&o.stateDir, "state-dir", cmp.Or(os.Getenv("QGPU_STATE_DIR"), tenant.DefaultDir), "state folder, which the runtime shares (QGPU_STATE_DIR)")
	root.AddCommand(o.runCommand(), o.probeCommand(), installcmd.New())
	return root
}

func (o *options) runCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "run",
		Short: "Publish the node's cards and grant containers their slices of them",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return o.run(c.Context()) },
	}
	f := c.Flags()
	f.StringVar(&o.node, "node", os.Getenv("NODE_NAME"), "name of this machine's Node (NODE_NAME)")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "how to reach the API server; empty: as a pod does")
	f.StringVar(&o.driver, "driver", discovery.Auto, "auto, kernel or simulated")
	f.StringVar(&o.simDir, "sim-dir", cmp.Or(os.Getenv("QGPU_SIM_DIR"), "/run/qgpu-sim"), "folder of the simulated driver (QGPU_SIM_DIR)")
	f.StringVar(&o.bin, "bin-dir", "", "folder of qgpu-runtime and qgpu-sim; empty: the agent's own")
	f.StringVar(&o.podResources, "pod-resources", "/var/lib/kubelet/pod-resources/kubelet.sock", "the kubelet's socket; empty: it is not asked")
	f.BoolVar(&o.nano, "nano", false, "know the resource names of Nano GPU, too")
	f.StringVar(&o.listen, "listen", "", "address to tell on what tenants use, such as :5678; empty: nowhere")
	f.TextVar(&o.level, "log-level", slog.LevelInfo, "debug, info, warn or error")
	return c
}

func (o *options) run(ctx context.Context) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: o.level}))
	if o.node == "" {
		return errors.New("--node is missing; in a pod, set NODE_NAME from spec.nodeName")
	}
	if o.bin == "" {
		exe, err := os.Executable()
		if err != nil {
			return err
		}
		o.bin = filepath.Dir(exe)
	}
	config := agent.Config{
		Node: o.node, StateDir: o.stateDir, NanoNames: o.nano, Listen: o.listen, Version: version(), Log: log,
		Driver: discovery.Finder{Driver: o.driver, SimDir: o.simDir, Bin: o.bin},
	}
	if err := o.connect(&config); err != nil {
		return err
	}
	if o.podResources != "" {
		kubelet, err := agent.NewPodResources(o.podResources)
		if err != nil {
			return err
		}
		defer kubelet.Close()
		config.Kubelet = kubelet
	}
	a, err := agent.New(config)
	if err != nil {
		return err
	}
	log.Info("the agent begins", "node", o.node, "version", config.Version, "state", o.stateDir)
	return a.Run(ctx)
}

// connect makes the clients of the API server.
func (o *options) connect(c *agent.Config) error {
	config, err := restConfig(o.kubeconfig)
	if err != nil {
		return err
	}
	config.UserAgent = agent.Name + "/" + c.Version
	config.QPS, config.Burst = 20, 40 // of one node
	if c.Client, err = kubernetes.NewForConfig(config); err != nil {
		return fmt.Errorf("make a client of the API server: %w", err)
	}
	d, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make a client of the API server: %w", err)
	}
	c.Inventories = inventory.NewClient(d)
	return nil
}

func restConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("reach the API server as a pod does (else give --kubeconfig): %w", err)
		}
		return config, nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", kubeconfig, err)
	}
	return config, nil
}

// version is the agent's own, as the build recorded it.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return s.Value[:12]
		}
	}
	return strings.Trim(info.Main.Version, "()")
}

// probeCommand is what a pod's probes run: the agent is asked for containers on a unix
// socket.
func (o *options) probeCommand() *cobra.Command {
	var ready bool
	c := &cobra.Command{
		Use:   "probe",
		Short: "Ask the running agent whether it lives or is ready",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			path := agentapi.HealthPath
			if ready {
				path = agentapi.ReadyPath
			}
			return probe(c.Context(), filepath.Join(o.stateDir, agentapi.DefaultSocket), path)
		},
	}
	c.Flags().BoolVar(&ready, "ready", false, "whether it can answer for containers")
	return c
}

func probe(ctx context.Context, socket, path string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	client := http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent"+path, nil)
	if err != nil {
		return err
	}
	res, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("the agent does not answer: %w", err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, 4<<10))
	if err != nil {
		return fmt.Errorf("the agent does not answer: %w", err)
	}
	if res.StatusCode != http.StatusOK {
		return errors.New(strings.TrimSpace(string(text)))
	}
	return nil
}
