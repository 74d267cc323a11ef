package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/qgpu-project/qgpu/internal/podshare"
	"github.com/qgpu-project/qgpu/kubernetes/cluster"
)

const namespace = metav1.NamespaceDefault

// Names of the nodes, as cluster.Default has them.
const (
	turing = "turing" // 2 T4, fixed-share
	ampere = "ampere" // 2 A100-SXM4-40GB, best-effort
)

// ask is what a container asks for, in the units of TKE's names. Zero: not at all.
type ask struct{ core, memory, greedy int }

func (a ask) limits() corev1.ResourceList {
	limits := corev1.ResourceList{}
	for name, amount := range map[corev1.ResourceName]int{podshare.Core: a.core, podshare.Memory: a.memory, podshare.CoreGreedy: a.greedy} {
		if amount != 0 {
			limits[name] = *resource.NewQuantity(int64(amount), resource.DecimalSI)
		}
	}
	return limits
}

// container runs command, or waits, with a share.
func container(name string, a ask, command ...string) corev1.Container {
	if len(command) == 0 {
		command = []string{"sleep", "1000000"}
	}
	return corev1.Container{
		Name: name, Image: cluster.CUDAImage, ImagePullPolicy: corev1.PullNever,
		Command: command, Resources: corev1.ResourceRequirements{Limits: a.limits()},
	}
}

// newPod is a pod as a user writes it: it names no scheduler and no runtime class.
// An empty node lets the scheduler choose.
func newPod(name, node string, containers ...corev1.Container) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: corev1.PodSpec{
			Containers:                    containers,
			TerminationGracePeriodSeconds: new(int64), // sleep does not hear SIGTERM
			RestartPolicy:                 corev1.RestartPolicyNever,
		},
	}
	if node != "" {
		pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	}
	return pod
}

// tryCreate creates pod. It is removed at the test's end.
func (s *site) tryCreate(t *testing.T, pod *corev1.Pod) (*corev1.Pod, error) {
	t.Helper()
	made, err := s.Client.CoreV1().Pods(pod.Namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	if err == nil {
		t.Cleanup(func() {
			if t.Failed() {
				t.Log(s.tell(made))
			}
			s.remove(t, made)
		})
	}
	return made, err
}

func (s *site) create(t *testing.T, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	made, err := s.tryCreate(t, pod)
	if err != nil {
		t.Fatalf("create pod %s: %v", pod.Name, err)
	}
	return made
}

// run creates pod and waits until it runs.
func (s *site) run(t *testing.T, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	return s.running(t, s.create(t, pod))
}

// remove deletes pod and waits until it is gone, or another one has its name. It works
// at the end of a test, too.
func (s *site) remove(t testing.TB, pod *corev1.Pod) {
	t.Helper()
	ctx := context.Background()
	pods := s.Client.CoreV1().Pods(pod.Namespace)
	if err := pods.Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}}); err != nil {
		if !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			t.Errorf("delete pod %s: %v", pod.Name, err)
		}
		return
	}
	eventually(t, func() error {
		is, err := pods.Get(ctx, pod.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && is.UID != pod.UID {
			return nil
		}
		return fmt.Errorf("pod %s is still there (%v)", pod.Name, err)
	})
}

// get reads pod anew.
func (s *site) get(t testing.TB, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	is, err := s.Client.CoreV1().Pods(pod.Namespace).Get(context.Background(), pod.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return is
}

// becomes waits until pod is as condition says, which tells what is still missing.
func (s *site) becomes(t testing.TB, pod *corev1.Pod, condition func(*corev1.Pod) error) *corev1.Pod {
	t.Helper()
	var is *corev1.Pod
	eventually(t, func() error {
		var err error
		if is, err = s.Client.CoreV1().Pods(pod.Namespace).Get(context.Background(), pod.Name, metav1.GetOptions{}); err != nil {
			return err
		}
		return condition(is)
	})
	return is
}

func (s *site) running(t testing.TB, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	return s.becomes(t, pod, func(is *corev1.Pod) error {
		for _, condition := range is.Status.Conditions {
			if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("pod %s is not ready: %s", is.Name, status(is))
	})
}

// succeeded waits until all containers of pod have ended well.
func (s *site) succeeded(t testing.TB, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	return s.becomes(t, pod, func(is *corev1.Pod) error {
		switch is.Status.Phase {
		case corev1.PodSucceeded:
			return nil
		case corev1.PodFailed:
			t.Fatalf("pod %s failed: %s", is.Name, status(is))
		}
		return fmt.Errorf("pod %s has not ended: %s", is.Name, status(is))
	})
}

// waiting waits until the scheduler has said why pod has no node, and returns that.
func (s *site) waiting(t testing.TB, pod *corev1.Pod) string {
	t.Helper()
	var reason string
	s.becomes(t, pod, func(is *corev1.Pod) error {
		for _, condition := range is.Status.Conditions {
			if condition.Type == corev1.PodScheduled && condition.Reason == corev1.PodReasonUnschedulable {
				reason = condition.Message
				return nil
			}
		}
		return fmt.Errorf("pod %s does not wait for room: %s", is.Name, status(is))
	})
	return reason
}

// status says in a line how a pod is.
func status(pod *corev1.Pod) string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s on %q %s %s", pod.Status.Phase, pod.Spec.NodeName, pod.Status.Reason, pod.Status.Message)
	for _, condition := range pod.Status.Conditions {
		if condition.Status != corev1.ConditionTrue && condition.Message != "" {
			fmt.Fprintf(&text, "; %s: %s", condition.Type, condition.Message)
		}
	}
	for _, c := range append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...) {
		switch {
		case c.State.Waiting != nil:
			fmt.Fprintf(&text, "; %s waits: %s %s", c.Name, c.State.Waiting.Reason, c.State.Waiting.Message)
		case c.State.Terminated != nil:
			fmt.Fprintf(&text, "; %s ended with %d: %s %s", c.Name, c.State.Terminated.ExitCode, c.State.Terminated.Reason, c.State.Terminated.Message)
		}
	}
	return text.String()
}

// tell is all that helps to understand a pod: status, events and logs.
func (s *site) tell(pod *corev1.Pod) string {
	ctx := context.Background()
	var text strings.Builder
	if is, err := s.Client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{}); err == nil {
		fmt.Fprintf(&text, "pod %s: %s\n  annotations %v\n", pod.Name, status(is), is.Annotations)
	}
	events, err := s.Client.CoreV1().Events(pod.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + pod.Name})
	if err == nil {
		for _, e := range events.Items {
			fmt.Fprintf(&text, "  %s %s: %s\n", e.Source.Component+e.ReportingController, e.Reason, e.Message)
		}
	}
	for _, c := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
		if log, err := s.logs(pod, c.Name); err == nil && log != "" {
			fmt.Fprintf(&text, "  %s printed:\n%s\n", c.Name, log[max(0, len(log)-2000):])
		}
	}
	return text.String()
}

func (s *site) logs(pod *corev1.Pod, container string) (string, error) {
	log, err := s.Client.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{Container: container}).DoRaw(context.Background())
	return string(log), err
}

// exec runs command in a container of pod.
func (s *site) exec(t testing.TB, pod *corev1.Pod, container string, command ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	output, err := s.Exec(ctx, pod.Namespace, pod.Name, container, command...)
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	return output
}

// plugin runs kubectl qgpu as the cluster's administrator.
func (s *site) plugin(t testing.TB, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(s.Bin, "kubectl-qgpu"), append(args, "--kubeconfig", s.Kubeconfig)...)
	output, err := cmd.Output()
	if err != nil {
		t.Fatalf("kubectl qgpu %s: %v", strings.Join(args, " "), err)
	}
	return string(output)
}

// node is the node called name.
func (s *site) node(t testing.TB, name string) *cluster.Node {
	t.Helper()
	for _, node := range s.Nodes {
		if node.Name == name {
			return node
		}
	}
	t.Fatalf("there is no node %s", name)
	return nil
}

// placed is where pod lies.
func placed(t testing.TB, pod *corev1.Pod) *podshare.Placement {
	t.Helper()
	p, err := podshare.Of(pod)
	if err != nil {
		t.Fatalf("pod %s has no placement: %v", pod.Name, err)
	}
	return p
}

// eventually waits until condition holds. The condition says what is still missing.
func eventually(t testing.TB, condition func() error) {
	t.Helper()
	if err := poll(context.Background(), condition); err != nil {
		t.Fatal(err)
	}
}

func poll(ctx context.Context, condition func() error) error {
	deadline := time.Now().Add(patience)
	for {
		err := condition()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return errors.Join(fmt.Errorf("in vain: %w", err), ctx.Err())
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// waitForCards waits until every node advertises its cards.
func (s *site) waitForCards(ctx context.Context) error {
	for _, node := range s.Nodes {
		err := poll(ctx, func() error {
			inv, err := s.inventories.Get(ctx, node.Name)
			if err != nil {
				return err
			}
			if len(inv.Cards) != node.Cards {
				return fmt.Errorf("the inventory of node %s has %d cards, not %d", node.Name, len(inv.Cards), node.Cards)
			}
			is, err := s.Client.CoreV1().Nodes().Get(ctx, node.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if core := is.Status.Allocatable[podshare.Core]; core.Value() != int64(100*node.Cards) {
				return fmt.Errorf("node %s advertises %v of %s", node.Name, core.String(), podshare.Core)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// describe is what helps to understand a failure: the parts' pods and the ends of logs.
func describe(ctx context.Context, c *cluster.Cluster) string {
	s := &site{Cluster: c}
	var text strings.Builder
	if pods, err := c.Client.CoreV1().Pods(cluster.Namespace).List(ctx, metav1.ListOptions{}); err == nil {
		for i := range pods.Items {
			text.WriteString(s.tell(&pods.Items[i]))
		}
	}
	logs, _ := filepath.Glob(filepath.Join(c.Logs(), "*.log"))
	for _, path := range logs {
		if log, err := os.ReadFile(path); err == nil {
			fmt.Fprintf(&text, "=== the end of %s\n%s\n", filepath.Base(path), log[max(0, len(log)-1500):])
		}
	}
	return text.String()
}
