// Package cluster runs a Kubernetes cluster with simulated GPUs in a sandbox: a control
// plane, and nodes that are machines of the sandbox with a real kubelet, containerd and
// runc, and with simulated cards. It owns how these are set up, started, ended and
// restarted. It knows nothing of tests; qGPU comes in by its chart, as in any cluster.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/qgpu-project/qgpu/kubernetes/sandbox"
)

// Config says what to run.
type Config struct {
	Bin       string // folder of the built programs
	UserSpace string // folder with NVIDIA's user space of a branch each
	Chart     string // folder of qGPU's chart
	Nodes     []NodeConfig
	Log       *slog.Logger
}

// NodeConfig is a node with its simulated cards.
type NodeConfig struct {
	Name   string
	Cards  int
	Model  string // as qgpu-sim names it
	Driver string // branch of NVIDIA's driver
	Labels map[string]string
}

// Cluster is a running cluster.
type Cluster struct {
	Config
	Plane      *Service
	Nodes      []*Node
	Admin      *rest.Config // may do everything
	Client     kubernetes.Interface
	Kubeconfig string // of the administrator, in the sandbox

	sandbox *sandbox.Sandbox
	network *sandbox.Switch
}

const (
	planeAddress = "10.88.0.1"
	planeCIDR    = planeAddress + "/24"
	startTimeout = 5 * time.Minute // also on a busy machine
)

// serviceAddress is the cluster IP of the API server, which pods use. There is no
// kube-proxy: the sandbox has the address itself.
var serviceAddress = net.IPv4(10, 96, 0, 1)

// Start runs a cluster and returns when its nodes are ready.
func Start(ctx context.Context, s *sandbox.Sandbox, cfg Config) (*Cluster, error) {
	c := &Cluster{Config: cfg, sandbox: s}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context) (err error) {
	if err := c.check(); err != nil {
		return err
	}
	if err := os.MkdirAll(c.Logs(), 0o755); err != nil {
		return err
	}
	if c.network, err = c.sandbox.NewSwitch(planeCIDR, serviceAddress); err != nil {
		return err
	}
	images := make(chan error, 1)
	go func() { images <- c.buildImages() }()
	if err := c.startPlane(ctx); err != nil {
		return errors.Join(err, <-images)
	}
	if err := <-images; err != nil {
		return err
	}
	results := make(chan error)
	for i, config := range c.Config.Nodes {
		node := c.newNode(i, config)
		c.Nodes = append(c.Nodes, node)
		go func() { results <- node.Start(ctx) }()
	}
	for range c.Nodes {
		err = errors.Join(err, <-results)
	}
	return err
}

// check says what is missing before anything is started.
func (c *Cluster) check() error {
	for _, name := range []string{"kplane", "kubelet", "containerd", "containerd-shim-runc-v2", "ctr", "helm",
		"pause", "qgpu-runtime", "qgpu-sim", "cudaload", "qgpu-agent", "qgpu-scheduler"} {
		if _, err := os.Stat(c.program(name)); err != nil {
			return fmt.Errorf("the programs are not built (%w); run: make cluster-programs", err)
		}
	}
	for _, name := range []string{"runc", "busybox"} {
		if _, err := exec.LookPath(name); err != nil {
			return fmt.Errorf("a node needs %s (%w); run: hack/ensure-tools cluster", name, err)
		}
	}
	if _, err := os.Stat(filepath.Join(cniPlugins, "bridge")); err != nil {
		return fmt.Errorf("a node needs CNI's plugins (%w); run: hack/ensure-tools cluster", err)
	}
	return nil
}

func (c *Cluster) program(name string) string { return filepath.Join(c.Bin, name) }

// Logs is the folder of the parts' logs.
func (c *Cluster) Logs() string { return c.sandbox.Path("logs") }

// Path joins names to the folder of the cluster's files. Each node has one in it.
func (c *Cluster) Path(names ...string) string { return c.sandbox.Path(names...) }

func (c *Cluster) startPlane(ctx context.Context) error {
	dir := c.sandbox.Path("plane")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	var names string
	for _, node := range c.Config.Nodes {
		names += node.Name + ","
	}
	c.Plane = &Service{
		Name: "kplane", log: c.Logs(),
		command: func() *exec.Cmd {
			return exec.Command(c.program("kplane"), "--dir", dir, "--listen", "0.0.0.0:443", "--advertise", planeAddress, "--nodes", names)
		},
		start: (*exec.Cmd).Start,
	}
	if err := c.Plane.Start(); err != nil {
		return err
	}
	c.Kubeconfig = filepath.Join(dir, "admin.kubeconfig")
	err := wait(ctx, "the control plane", c.Plane, func() error {
		_, err := os.Stat(c.Kubeconfig)
		return err
	})
	if err != nil {
		return err
	}
	if c.Admin, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig); err != nil {
		return err
	}
	c.Admin.QPS, c.Admin.Burst = 1000, 2000
	c.Client, err = kubernetes.NewForConfig(c.Admin)
	return err
}

// WaitPlane returns when the API server answers, as after a restart of it.
func (c *Cluster) WaitPlane(ctx context.Context) error {
	return wait(ctx, "the API server", c.Plane, func() error {
		_, err := c.Client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceDefault, metav1.GetOptions{})
		return err
	})
}

// Stop ends all parts, the nodes' processes at once.
func (c *Cluster) Stop() error {
	for _, node := range c.Nodes {
		node.Off()
	}
	if c.Plane == nil {
		return nil
	}
	return c.Plane.Stop()
}

// wait polls until condition holds for what, or service has ended.
func wait(ctx context.Context, what string, service *Service, condition func() error) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		err := condition()
		if err == nil {
			return nil
		}
		select {
		case <-service.Ended():
			return fmt.Errorf("%s ended while it was waited for: %w\n%s", what, err, service.LogTail())
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w\n%s", what, errors.Join(ctx.Err(), err), service.LogTail())
		case <-time.After(50 * time.Millisecond):
		}
	}
}
