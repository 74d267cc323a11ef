package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/qgpu-project/qgpu/kubernetes/cluster"
)

// part is a part of the system that may end at any moment.
type part struct {
	name  string
	isAPI bool // nothing can be created without it
	kill  func(t *testing.T, s *site)
	// back brings it back, where nobody else does, and waits until it works.
	back func(t *testing.T, s *site)
}

// parts are killed as kill -9 does.
func parts() []part {
	ctx := context.Background()
	must := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	return []part{
		{
			name: "kubelet",
			kill: func(t *testing.T, s *site) { must(t, s.node(t, turing).Kubelet.Kill()) },
			back: func(t *testing.T, s *site) { must(t, s.node(t, turing).StartKubelet(ctx)) },
		},
		{
			name: "containerd",
			kill: func(t *testing.T, s *site) { must(t, s.node(t, turing).Containerd.Kill()) },
			back: func(t *testing.T, s *site) { must(t, s.node(t, turing).StartContainerd(ctx)) },
		},
		{
			name: "control plane", isAPI: true,
			kill: func(t *testing.T, s *site) { must(t, s.Plane.Kill()) },
			back: func(t *testing.T, s *site) {
				must(t, s.Plane.Start())
				must(t, s.WaitPlane(ctx))
			},
		},
		{
			name: "agent",
			kill: func(t *testing.T, s *site) { s.killProgram(t, turing, "qgpu-agent") },
			back: func(t *testing.T, s *site) { s.partsReady(t) },
		},
		{
			name: "scheduler",
			kill: func(t *testing.T, s *site) { s.killProgram(t, s.whereScheduler(t), "qgpu-scheduler") },
			back: func(t *testing.T, s *site) { s.partsReady(t) },
		},
	}
}

// killProgram kills the node's processes that execute program.
func (s *site) killProgram(t *testing.T, node, program string) {
	t.Helper()
	if err := s.node(t, node).KillAll(program); err != nil {
		t.Fatal(err)
	}
}

// whereScheduler is the node on which the scheduler runs.
func (s *site) whereScheduler(t *testing.T) string {
	t.Helper()
	pods, err := s.Client.CoreV1().Pods(cluster.Namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=scheduler"})
	if err != nil || len(pods.Items) != 1 {
		t.Fatalf("the scheduler's pods are %v, %v", pods, err)
	}
	return pods.Items[0].Spec.NodeName
}

// partsReady waits until all pods of qGPU's own are ready.
func (s *site) partsReady(t testing.TB) {
	t.Helper()
	eventually(t, func() error {
		pods, err := s.Client.CoreV1().Pods(cluster.Namespace).List(context.Background(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range pods.Items {
			if !ready(&pods.Items[i]) {
				return fmt.Errorf("pod %s is not ready: %s", pods.Items[i].Name, status(&pods.Items[i]))
			}
		}
		return nil
	})
}

func ready(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// worker is a pod that holds card memory and keeps working.
func (s *site) worker(t *testing.T, name string, a ask) *corev1.Pod {
	t.Helper()
	return s.run(t, newPod(name, turing, container("cuda", a, "cudaload", "loop", "--every", "200ms")))
}

// works checks that pod's container has run on without a break since it was looked at
// first, still makes progress, and is still held to its share.
func (s *site) works(t *testing.T, pod *corev1.Pod, gib int) {
	t.Helper()
	is := s.get(t, pod)
	if is.UID != pod.UID || is.Status.ContainerStatuses[0].RestartCount != 0 || is.Status.Phase != corev1.PodRunning {
		t.Errorf("pod %s did not run on: %s", pod.Name, status(is))
		return
	}
	before, err := s.logs(pod, "cuda")
	if err != nil {
		t.Error(err)
	}
	eventually(t, func() error {
		after, err := s.logs(pod, "cuda")
		if err == nil && strings.Count(after, "\n") <= strings.Count(before, "\n") {
			return fmt.Errorf("pod %s makes no progress", pod.Name)
		}
		return err
	})
	s.sees(t, pod, "cuda", 1, gib)
}

// Whatever part is killed: tenants run on and are held, a pod that is created while it is
// away starts in the end, and nothing is given away twice (the observer sees to that).
func TestKilledParts(t *testing.T) {
	for _, part := range parts() {
		t.Run(part.name, func(t *testing.T) {
			before := shared.worker(t, "before", ask{core: 30, memory: 6})
			part.kill(t, shared)
			during := newPod("during", turing, container("cuda", ask{core: 30, memory: 6}))
			if !part.isAPI {
				during = shared.create(t, during)
			}
			part.back(t, shared)
			if part.isAPI {
				during = shared.create(t, during)
			}
			shared.running(t, during)
			shared.sees(t, during, "cuda", 1, 6)
			shared.works(t, before, 6)
			shared.partsReady(t)
		})
	}
}

// All of a node's stack ends at once, but for the containers, and is started again.
func TestNodeStackRestart(t *testing.T) {
	node := shared.node(t, turing)
	pod := shared.worker(t, "stack", ask{core: 30, memory: 6})
	shared.killProgram(t, turing, "qgpu-agent")
	for _, end := range []func() error{node.Kubelet.Stop, node.Containerd.Stop} {
		if err := end(); err != nil {
			t.Fatal(err)
		}
	}
	for _, start := range []func(context.Context) error{node.StartContainerd, node.StartKubelet} {
		if err := start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	shared.sees(t, shared.run(t, newPod("stack-after", turing, container("cuda", ask{core: 30, memory: 6}))), "cuda", 1, 6)
	shared.works(t, pod, 6)
	shared.partsReady(t)
}

// A node that is started anew has none of its tenants any more. Its pods' containers are
// started again, in the places that the pods have.
func TestReboot(t *testing.T) {
	pod := newPod("rebooted", turing, container("cuda", ask{core: 30, memory: 6}))
	pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
	pod = shared.run(t, pod)
	if err := shared.node(t, turing).Reboot(t.Context()); err != nil {
		t.Fatal(err)
	}
	shared.becomes(t, pod, func(is *corev1.Pod) error {
		if len(is.Status.ContainerStatuses) == 0 || is.Status.ContainerStatuses[0].RestartCount == 0 || !ready(is) {
			return fmt.Errorf("pod %s was not started again: %s", is.Name, status(is))
		}
		return nil
	})
	shared.sees(t, pod, "cuda", 1, 6)
	shared.partsReady(t)
}

// A new version of the agent replaces the old one: tenants run on.
func TestAgentUpgrade(t *testing.T) {
	pod := shared.worker(t, "upgraded", ask{core: 30, memory: 6})
	agents := shared.Client.AppsV1().DaemonSets(cluster.Namespace)
	old, err := agents.Get(t.Context(), "qgpu-agent", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := shared.Install(t.Context(), append(chartValues, "agent.logLevel=debug")...); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		is, err := agents.Get(t.Context(), "qgpu-agent", metav1.GetOptions{})
		if err != nil {
			return err
		}
		return rolledOut(is, old.Generation)
	})
	shared.works(t, pod, 6)
	shared.sees(t, shared.run(t, newPod("after-upgrade", turing, container("cuda", ask{core: 30, memory: 6}))), "cuda", 1, 6)
}

func rolledOut(is *appsv1.DaemonSet, old int64) error {
	if is.Generation == old || is.Status.ObservedGeneration != is.Generation ||
		is.Status.UpdatedNumberScheduled != is.Status.DesiredNumberScheduled || is.Status.NumberReady != is.Status.DesiredNumberScheduled {
		return fmt.Errorf("the new agents are not there yet: %+v", is.Status)
	}
	return nil
}

// What the scheduler learns of the pods that come outlives it.
func TestLearnedIsKept(t *testing.T) {
	shared.run(t, newPod("lesson", "", container("cuda", ask{core: 15, memory: 3}, "sleep", "600")))
	eventually(t, func() error {
		kept, err := shared.Client.CoreV1().ConfigMaps(cluster.Namespace).Get(t.Context(), "qgpu-scheduler-learned", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if data := kept.Data["qgpu-scheduler.json"]; !strings.Contains(data, `"core":15,"memory":3221225472`) {
			return fmt.Errorf("the ConfigMap has %q", data)
		}
		return nil
	})
}
