package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Namespace is where the chart is installed.
const Namespace = "kube-system"

// Install installs qGPU's chart, or upgrades it, and returns when its parts are ready.
// values are further ones, as helm's --set takes them.
func (c *Cluster) Install(ctx context.Context, values ...string) error {
	args := []string{"upgrade", "qgpu", c.Chart, "--install", "--namespace", Namespace, "--reset-values", "--wait", "--timeout", startTimeout.String()}
	for _, value := range append([]string{
		"driver=simulated",
		"images.registry=" + registry, "images.tag=" + imageTag, "images.pullPolicy=Never",
		"runtime.systemdCgroup=false", "runtime.runc=" + runc(),
		"scheduler.replicas=1",
	}, values...) {
		args = append(args, "--set", value)
	}
	return c.helm(ctx, args...)
}

// Uninstall removes qGPU.
func (c *Cluster) Uninstall(ctx context.Context) error {
	return c.helm(ctx, "uninstall", "qgpu", "--namespace", Namespace, "--wait")
}

func (c *Cluster) helm(ctx context.Context, args ...string) error {
	var output bytes.Buffer
	cmd := exec.CommandContext(ctx, c.program("helm"), args...)
	cmd.Env = []string{"HOME=" + c.sandbox.Dir, "KUBECONFIG=" + c.Kubeconfig, "PATH=/usr/bin:/bin"}
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("helm %s: %w\n%s", strings.Join(args, " "), err, output.String())
	}
	return nil
}

// Label sets labels of a node. An empty value removes the label.
func (c *Cluster) Label(ctx context.Context, node string, labels map[string]string) error {
	set := map[string]any{}
	for name, value := range labels {
		set[name] = value
		if value == "" {
			set[name] = nil
		}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": set}})
	if err != nil {
		return err
	}
	if _, err := c.Client.CoreV1().Nodes().Patch(ctx, node, types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("label node %s: %w", node, err)
	}
	return nil
}
