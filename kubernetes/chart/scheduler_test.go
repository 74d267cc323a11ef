package chart

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/retry"
	"k8s.io/component-base/cli"

	"github.com/qgpu-project/qgpu/internal/placement/strategy"
	"github.com/qgpu-project/qgpu/internal/podshare"
	"github.com/qgpu-project/qgpu/kubernetes/schedulercmd"
)

// The scheduler of the chart, with the chart's configuration and with no right but those
// of its ServiceAccount, places a pod by the rules of the policies.
func TestSchedulerOfTheChart(t *testing.T) {
	s := shared
	s.install(t)
	s.ready(t)
	node := s.node(t, "node-a")
	if _, err := cards(t, s.agentOf(t, "node-a")).Apply(t.Context(), exampleCards(node), "qgpu-agent"); err != nil {
		t.Fatal(err)
	}
	s.makeReady(t, "node-a")
	s.runScheduler(t)

	s.create(t, pod("core=30 memory=5"), "share")
	s.create(t, pod("cpu=1", spec(func(s *corev1.PodSpec) { s.SchedulerName = "qgpu-scheduler" })), "plain")
	s.create(t, pod("core=200"), "large")
	pods := s.admin.CoreV1().Pods("default")
	eventually(t, func() error {
		share, err := pods.Get(t.Context(), "share", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if share.Spec.NodeName == "" {
			return fmt.Errorf("the share waits: %v", share.Status.Conditions)
		}
		placed, err := podshare.Of(share)
		if err != nil {
			t.Fatal(err)
		}
		if placed.Node != "node-a" || len(placed.Containers["c"]) != 1 || placed.Containers["c"][0].Index != 0 {
			t.Fatalf("placed as %+v, want card 0 of node-a, the only healthy one", placed)
		}
		return nil
	})
	eventually(t, func() error {
		plain, err := pods.Get(t.Context(), "plain", metav1.GetOptions{})
		if err == nil && plain.Spec.NodeName == "" {
			err = fmt.Errorf("the pod without a share waits: %v", plain.Status.Conditions)
		}
		return err
	})
	eventually(t, func() error {
		large, err := pods.Get(t.Context(), "large", metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range large.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && strings.Contains(c.Message, "0/1 nodes are available") {
				return nil
			}
		}
		return fmt.Errorf("the large pod does not say why it waits: %v", large.Status.Conditions)
	})
	if out := s.kubectl(t, "explain", "large"); !strings.Contains(out, "card 1 (Tesla T4) is unhealthy") {
		t.Errorf("explain large:\n%s", out)
	}
}

// makeReady gives a node what its kubelet and its agent would.
func (s *site) makeReady(t *testing.T, name string) {
	t.Helper()
	nodes := s.admin.CoreV1().Nodes()
	amounts := corev1.ResourceList{"cpu": resource.MustParse("8"), "memory": resource.MustParse("32Gi"), "pods": resource.MustParse("110")}
	for name, q := range map[string]string{"core": "200", "memory": "30", "greedy": "3200"} {
		amounts[resourceNames[name]] = resource.MustParse(q)
	}
	// Controllers write nodes, too.
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		n, err := nodes.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		n.Status.Capacity, n.Status.Allocatable = amounts, amounts
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now()}}
		if n, err = nodes.UpdateStatus(t.Context(), n, metav1.UpdateOptions{}); err != nil {
			return err
		}
		n.Spec.Taints = nil
		_, err = nodes.Update(t.Context(), n, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// runScheduler runs the scheduler until the test ends.
func (s *site) runScheduler(t *testing.T) {
	t.Helper()
	configMap, err := s.admin.CoreV1().ConfigMaps(namespace).Get(t.Context(), "qgpu-scheduler", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	kubeconfig, config := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "scheduler.yaml")
	writeKubeconfig(t, kubeconfig, s.as(t, "qgpu-scheduler", nil))
	// In a pod it finds the API server by itself.
	const connection = "clientConnection: {"
	text := configMap.Data["scheduler.yaml"]
	if !strings.Contains(text, connection) {
		t.Fatalf("no %q in\n%s", connection, text)
	}
	text = strings.Replace(text, connection, connection+"kubeconfig: "+kubeconfig+", ", 1)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, schedulerArgument, "--config="+config, "--secure-port=0")
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); t.Failed() {
			t.Logf("the scheduler: %v\n%s", err, log.String())
		}
	})
}

// schedulerArgument makes this test's program a qgpu-scheduler: one ends its process when
// it loses its lease.
const schedulerArgument = "qgpu-scheduler"

func schedulerMain() int {
	os.Args = os.Args[1:]
	return cli.Run(schedulercmd.New())
}

func writeKubeconfig(t *testing.T, path string, config *rest.Config) {
	t.Helper()
	c := clientcmdapi.NewConfig()
	c.Clusters["c"] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	c.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: config.BearerToken}
	c.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	c.CurrentContext = "x"
	if err := clientcmd.WriteToFile(*c, path); err != nil {
		t.Fatal(err)
	}
}

// What can be chosen in values and by annotation is what the scheduler knows.
func TestStrategiesAreThoseOfTheScheduler(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(chartDir, "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	var schema map[string]any
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	listed, _, err := unstructured.NestedStringSlice(schema, "$defs", "strategy", "enum")
	if err != nil {
		t.Fatal(err)
	}
	known := strategy.Names()
	slices.Sort(listed)
	slices.Sort(known)
	if !slices.Equal(listed, known) {
		t.Errorf("values.schema.json lists %v, the scheduler knows %v", listed, known)
	}
	policy := shared.template(t)
	for _, name := range known {
		if !strings.Contains(policy, "'"+name+"'") {
			t.Errorf("the policy qgpu-shares does not know %s", name)
		}
	}
}
