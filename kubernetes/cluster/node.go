package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/qgpu-project/qgpu/internal/nodeinstall"
	"github.com/qgpu-project/qgpu/kubernetes/sandbox"
)

// Node is a node of the cluster: a machine with its services.
type Node struct {
	NodeConfig
	Machine    *sandbox.Machine
	Simulator  *Service
	Containerd *Service
	Kubelet    *Service

	cluster *Cluster
	dir     string
	cgroup  string
	address net.IP
	pods    *net.IPNet // the addresses of its pods
}

// Folders of a node that programs outside of it reach, too, below the node's own folder.
const (
	stateDir     = "/run/qgpu"
	simulatorDir = "/run/qgpu-sim"
)

func (c *Cluster) newNode(i int, config NodeConfig) *Node {
	return &Node{
		NodeConfig: config,
		cluster:    c,
		dir:        c.sandbox.Path(config.Name),
		address:    net.IPv4(10, 88, 0, byte(10+i)),
		pods:       &net.IPNet{IP: net.IPv4(10, 89, byte(i), 0), Mask: net.CIDRMask(24, 32)},
	}
}

// Start boots the node and returns when it is ready for pods.
func (n *Node) Start(ctx context.Context) error {
	begin := time.Now()
	for _, step := range []func(context.Context) error{n.boot, n.install, n.startSimulator, n.StartContainerd, n.importImages, n.StartKubelet, n.WaitReady, n.label} {
		if err := step(ctx); err != nil {
			return fmt.Errorf("start node %s: %w", n.Name, err)
		}
	}
	n.cluster.Log.Info("the node is ready", "node", n.Name, "cards", n.Cards, "model", n.Model, "after", time.Since(begin).Round(time.Millisecond))
	return nil
}

// boot makes the node's machine with its network. What is below /run is empty after it.
func (n *Node) boot(context.Context) (err error) {
	runFolders := map[string]string{
		stateDir:          filepath.Join(n.dir, "state"),
		simulatorDir:      filepath.Join(n.dir, "sim"),
		"/run/containerd": filepath.Join(n.dir, "containerd-state"),
	}
	binds := map[string]string{
		// Overlay file systems of containers cannot lie on the machine's own overlay.
		"/var/lib/containerd": filepath.Join(n.dir, "containerd"),
		"/var/lib/kubelet":    filepath.Join(n.dir, "kubelet"),
	}
	for target, source := range runFolders {
		if err := os.RemoveAll(source); err != nil {
			return err
		}
		binds[target] = source
	}
	if err := os.RemoveAll(filepath.Join(n.dir, "upper", "run")); err != nil {
		return err
	}
	if n.cgroup, err = n.cluster.sandbox.NewCgroup(n.Name); err != nil {
		return err
	}
	if n.Machine, err = n.cluster.sandbox.NewMachine(n.Name, n.dir, binds); err != nil {
		return err
	}
	return n.cluster.network.Connect(n.Machine, n.address, n.pods)
}

// Off ends the node's processes all at once, as when its power fails.
func (n *Node) Off() {
	if n.Machine != nil {
		n.Machine.Close()
		n.Machine = nil
	}
}

// Reboot is Off and Start.
func (n *Node) Reboot(ctx context.Context) error {
	n.Off()
	return n.Start(ctx)
}

// install puts the runtime on the node, as its administrator would before containerd
// starts.
func (n *Node) install(context.Context) error {
	plan := nodeinstall.Plan{
		Root:       n.Machine.Path(""),
		InstallDir: "/opt/qgpu",
		Programs:   []string{n.cluster.program("qgpu-runtime"), n.cluster.program("qgpu-sim")},
		Settings:   nodeinstall.Settings{Driver: "simulated", Runc: runc(), StateDir: stateDir, SimDir: simulatorDir, Userspace: n.cluster.UserSpace},
		Handler:    "qgpu",
		Configure:  true,
	}
	if _, err := plan.Apply(); err != nil {
		return fmt.Errorf("install the runtime: %w", err)
	}
	return nil
}

func runc() string {
	path, err := exec.LookPath("runc")
	if err != nil {
		return "runc" // Start has looked for it
	}
	return path
}

// service is a program of the built ones that runs on the node.
func (n *Node) service(name string, overrides map[string]string, args ...string) *Service {
	return &Service{
		Name: n.Name + "-" + name, log: n.cluster.Logs(),
		command: func() *exec.Cmd {
			return n.Command(context.Background(), n.cluster.program(name), args...)
		},
		start: func(cmd *exec.Cmd) error { return n.Machine.Start(cmd, overrides) },
	}
}

// Command is a command on the node, to be started with Machine.Start. It sees the node's
// simulator and tenants, and the cluster's programs.
func (n *Node) Command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = []string{
		"PATH=" + n.cluster.Bin + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=/root",
		"QGPU_STATE_DIR=" + stateDir, "QGPU_SIM_DIR=" + simulatorDir, "QGPU_NVIDIA_USERSPACE=" + n.cluster.UserSpace,
	}
	return cmd
}

// Run runs one of the built programs on the node to its end and returns what it prints.
func (n *Node) Run(ctx context.Context, name string, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := n.Command(ctx, n.cluster.program(name), args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := n.Machine.Start(cmd, nil)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return stdout.String(), fmt.Errorf("on node %s: %s %s: %w: %s", n.Name, name, strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

func (n *Node) startSimulator(ctx context.Context) error {
	n.Simulator = n.service("qgpu-sim", nil, "serve", "--cards", fmt.Sprint(n.Cards), "--model", n.Model, "--driver-version", n.Driver)
	if err := n.Simulator.Start(); err != nil {
		return err
	}
	return wait(ctx, "the simulated driver", n.Simulator, func() error {
		_, err := n.Run(ctx, "qgpu-sim", "status")
		return err
	})
}

// StartContainerd starts containerd and returns when it serves.
func (n *Node) StartContainerd(ctx context.Context) error {
	if err := n.write("/etc/containerd/config.toml", containerdConfig()); err != nil {
		return err
	}
	if err := n.write("/etc/cni/net.d/10-bridge.conflist", networkConfig(n.pods)); err != nil {
		return err
	}
	if n.Containerd == nil {
		n.Containerd = n.service("containerd", nil, "--config", "/etc/containerd/config.toml")
	}
	if err := n.Containerd.Start(); err != nil {
		return err
	}
	return wait(ctx, "containerd", n.Containerd, func() error {
		_, err := n.Run(ctx, "ctr", "version")
		return err
	})
}

// importImages puts the images in containerd, where they are not there already.
func (n *Node) importImages(ctx context.Context) error {
	have, err := n.Run(ctx, "ctr", "--namespace", "k8s.io", "images", "list", "--quiet")
	if err != nil {
		return err
	}
	for _, image := range n.cluster.images() {
		if slices.Contains(strings.Fields(have), image.Name) {
			continue
		}
		if _, err := n.Run(ctx, "ctr", "--namespace", "k8s.io", "images", "import", "--local", n.cluster.imageFile(image)); err != nil {
			return fmt.Errorf("import image %s: %w", image.Name, err)
		}
	}
	return nil
}

// StartKubelet starts the kubelet and does not wait for the node to be ready.
func (n *Node) StartKubelet(context.Context) error {
	config := kubeletConfig(n.cgroup, n.cluster.sandbox.Path("plane", "pki", "ca.crt"))
	if err := n.write("/etc/kubernetes/kubelet.yaml", config); err != nil {
		return err
	}
	overrides, err := n.kernelSettings()
	if err != nil {
		return err
	}
	if n.Kubelet == nil {
		n.Kubelet = n.service("kubelet", overrides,
			"--config=/etc/kubernetes/kubelet.yaml",
			"--kubeconfig="+n.cluster.sandbox.Path("plane", n.Name+".kubeconfig"),
			"--hostname-override="+n.Name,
			"--node-ip="+n.address.String(),
			"--root-dir=/var/lib/kubelet",
			"--v=2")
	}
	return n.Kubelet.Start()
}

// kernelSettings are files for the kubelet to write in place of the kernel's: these
// settings are the whole machine's, which a test must not change.
func (n *Node) kernelSettings() (map[string]string, error) {
	overrides := map[string]string{}
	for _, name := range []string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes"} {
		setting := filepath.Join("/proc/sys", name)
		value, err := os.ReadFile(setting)
		if err != nil {
			return nil, err
		}
		file := filepath.Join(n.dir, "sysctl", strings.ReplaceAll(name, "/", "."))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(file, value, 0o644); err != nil {
			return nil, err
		}
		overrides[setting] = file
	}
	return overrides, nil
}

// WaitReady returns when the API server says that the node is ready.
func (n *Node) WaitReady(ctx context.Context) error {
	return wait(ctx, "the kubelet", n.Kubelet, func() error {
		node, err := n.cluster.Client.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return errors.New("the node is not ready")
	})
}

// label gives the node the labels of its configuration.
func (n *Node) label(ctx context.Context) error {
	return n.cluster.Label(ctx, n.Name, n.Labels)
}

// KillAll kills the node's processes that execute a program of that name, as kill -9
// does. It is an error if there is none.
func (n *Node) KillAll(program string) error {
	links, err := filepath.Glob(n.Machine.Path("/proc/[0-9]*/exe"))
	if err != nil {
		return err
	}
	killed := 0
	for _, link := range links {
		target, err := os.Readlink(link)
		if err != nil || filepath.Base(target) != program {
			continue // it has ended, or is another
		}
		kill := n.Command(context.Background(), "/bin/kill", "-9", filepath.Base(filepath.Dir(link)))
		if err := n.Machine.Start(kill, nil); err != nil {
			return err
		}
		if kill.Wait() == nil {
			killed++
		}
	}
	if killed == 0 {
		return fmt.Errorf("no process on node %s executes %s", n.Name, program)
	}
	return nil
}

// write writes a file of the node's.
func (n *Node) write(name, content string) error {
	path := n.Machine.Path(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(content), 0o644)
}
