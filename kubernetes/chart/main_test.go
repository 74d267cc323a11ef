package chart

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"

	"github.com/qgpu-project/qgpu/kubernetes/controlplane"
)

var update = flag.Bool("update", false, "write golden files anew")

const (
	chartDir  = "../../deploy/helm/qgpu"
	namespace = "kube-system"
	release   = "qgpu"
)

// site is what all tests of this package share: Kubernetes' feature gates are global to
// a process, so there is one control plane, without nodes.
type site struct {
	helm       string // path of the program
	dir        string
	kubeconfig string
	plane      *controlplane.ControlPlane
	admin      *kubernetes.Clientset
	objects    *dynamic.DynamicClient
}

var shared *site

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == schedulerArgument {
		os.Exit(schedulerMain())
	}
	flag.Parse()
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard) // the API server's log
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	dir, err := os.MkdirTemp("", "qgpu-chart-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	if strings.HasPrefix(version.Get().GitVersion, "v0.0.0") {
		return 0, errors.New("this test was linked without Kubernetes' version, which charts ask for: run it by `make e2e`, or with its -ldflags")
	}
	s := &site{dir: dir}
	if s.helm, err = program("helm"); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	if s.plane, err = controlplane.Start(ctx, controlplane.Config{Dir: filepath.Join(dir, "plane"), Log: log}); err != nil {
		return 0, err
	}
	defer func() {
		// A busy machine may take longer than it is given; the process ends anyway.
		if err := s.plane.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "chart: stop the control plane:", err)
		}
	}()
	s.kubeconfig = filepath.Join(dir, "kubeconfig")
	if err := s.plane.Kubeconfig(s.kubeconfig, "", "kubernetes-admin", "system:masters"); err != nil {
		return 0, err
	}
	if s.admin, err = kubernetes.NewForConfig(s.plane.Admin()); err != nil {
		return 0, err
	}
	if s.objects, err = dynamic.NewForConfig(s.plane.Admin()); err != nil {
		return 0, err
	}
	shared = s
	return m.Run(), nil
}

// program finds a tool of this module: among those that make builds, or else by building
// it.
func program(name string) (string, error) {
	if path, err := filepath.Abs(filepath.Join("../../bin", name)); err == nil {
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	cmd := exec.Command("go", "tool", "-n", name)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("build %s: %w", name, err)
	}
	return strings.TrimSpace(string(out)), nil
}

func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := program(name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// runHelm returns what helm prints. It sees no settings but those of the test.
func (s *site) runHelm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), s.helm, args...)
	cmd.Env = []string{"HOME=" + s.dir, "PATH=" + os.Getenv("PATH"), "KUBECONFIG=" + s.kubeconfig}
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("helm %s: %w\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String(), nil
}

// install makes the release what values say, whatever it was before.
func (s *site) install(t *testing.T, values ...string) {
	t.Helper()
	args := []string{"upgrade", release, chartDir, "--install", "--namespace", namespace, "--reset-values"}
	if _, err := s.runHelm(t, append(args, values...)...); err != nil {
		t.Fatal(err)
	}
}

// eventually waits for a condition that the API server reaches by itself: it learns of
// policies by watching them. The condition says what is still missing.
func eventually(t *testing.T, condition func() error) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		err := condition()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
