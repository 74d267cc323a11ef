package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/qgpu-project/qgpu/internal/tenant"
)

// tenants are those of a node.
func (s *site) tenants(t testing.TB, node string) []tenant.Tenant {
	t.Helper()
	tenants, err := tenant.At(s.Path(node, "state")).List()
	if err != nil {
		t.Fatal(err)
	}
	return tenants
}

// tenantOf is the tenant of a container, or nil.
func (s *site) tenantOf(t testing.TB, pod *corev1.Pod) *tenant.Tenant {
	t.Helper()
	for _, one := range s.tenants(t, pod.Spec.NodeName) {
		if one.Owner != nil && one.Owner.PodUID == string(pod.UID) {
			return &one
		}
	}
	return nil
}

// A pod that comes back under its name is another pod: its old place is free and it has
// a tenant of its own.
func TestStatefulSet(t *testing.T) {
	replicas := int32(2)
	labels := map[string]string{"app": "model"}
	pod := newPod("", turing, container("cuda", ask{core: 100}))
	pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "model", Namespace: namespace},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, ServiceName: "model", Selector: &metav1.LabelSelector{MatchLabels: labels},
			PodManagementPolicy: appsv1.ParallelPodManagement,
			Template:            corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod.Spec},
		},
	}
	sets := shared.Client.AppsV1().StatefulSets(namespace)
	if _, err := sets.Create(t.Context(), set, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	first := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "model-0", Namespace: namespace}}
	second := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "model-1", Namespace: namespace}}
	t.Cleanup(func() {
		if err := sets.Delete(context.Background(), set.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		for _, pod := range []*corev1.Pod{first, second} {
			eventually(t, func() error {
				_, err := shared.Client.CoreV1().Pods(namespace).Get(context.Background(), pod.Name, metav1.GetOptions{})
				if apierrors.IsNotFound(err) {
					return nil
				}
				return fmt.Errorf("pod %s is still there", pod.Name)
			})
		}
	})
	before := shared.running(t, first)
	shared.running(t, second)
	old := shared.tenantOf(t, before)
	shared.remove(t, before)
	after := shared.running(t, first)
	if after.UID == before.UID {
		t.Fatal("the pod is the old one")
	}
	if output := shared.exec(t, after, "cuda", "nvidia-smi", "-L"); strings.Count(output, "Tesla T4") != 1 {
		t.Errorf("it sees %s", output)
	}
	if is := shared.tenantOf(t, after); is == nil || old == nil || is.ID == old.ID {
		t.Errorf("the tenants are %v and %v", old, is)
	}
}

// Eviction ends a pod as deletion does; what it had is free at once.
func TestEviction(t *testing.T) {
	pod := shared.run(t, newPod("evicted", turing, container("cuda", ask{core: 100})))
	waiting := shared.create(t, newPod("evicted-for", turing, container("cuda", ask{core: 200})))
	shared.waiting(t, waiting)
	if err := shared.Client.PolicyV1().Evictions(namespace).Evict(t.Context(), &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: namespace},
	}); err != nil {
		t.Fatal(err)
	}
	shared.running(t, waiting)
	if left := shared.tenantOf(t, pod); left != nil {
		t.Errorf("the evicted pod's tenant is left: %+v", left)
	}
}

// A container that ends is started again in its place, as a new tenant.
func TestContainerRestart(t *testing.T) {
	pod := newPod("restarted", turing, container("cuda", ask{core: 30, memory: 5}, "sh", "-c", "test -e /data/once || { touch /data/once; exit 1; }; sleep 1000000"))
	pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
	pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	made := shared.create(t, pod)
	shared.becomes(t, made, func(is *corev1.Pod) error {
		if ready(is) && is.Status.ContainerStatuses[0].RestartCount == 1 {
			return nil
		}
		return fmt.Errorf("it was not started again: %s", status(is))
	})
	shared.sees(t, made, "cuda", 1, 5)
}

// What ends while the agent is away is free when it is back, and what was created in the
// meantime then starts.
func TestPodEndsWithoutAgent(t *testing.T) {
	pod := shared.run(t, newPod("ending", turing, container("cuda", ask{core: 200})))
	for range 3 { // after that the kubelet takes its time to start a successor
		eventually(t, func() error { return shared.node(t, turing).KillAll("qgpu-agent") })
	}
	shared.remove(t, pod)
	next := shared.create(t, newPod("ending-next", turing, container("cuda", ask{core: 200})))
	shared.running(t, next)
	shared.partsReady(t)
}

// Two pods want the last slice, again and again: one gets it, and never both.
func TestRaceForTheLastSlice(t *testing.T) {
	rounds := 200
	if testing.Short() {
		rounds = 20
	}
	// What cannot run does not matter here: the image is not there, so that a round
	// costs no container.
	racer := func(name string) *corev1.Pod {
		pod := newPod(name, turing, container("cuda", ask{core: 60, memory: 9}))
		pod.Spec.Containers[0].Image = "registry.local/missing:1"
		return pod
	}
	shared.run(t, newPod("holder", turing, container("cuda", ask{core: 60, memory: 9})))
	pods := shared.Client.CoreV1().Pods(namespace)
	for round := range rounds {
		var names []string
		var group sync.WaitGroup
		for i := range 2 {
			name := fmt.Sprintf("racer-%d-%d", round, i)
			names = append(names, name)
			group.Go(func() {
				if _, err := pods.Create(t.Context(), racer(name), metav1.CreateOptions{}); err != nil {
					t.Errorf("create %s: %v", name, err)
				}
			})
		}
		group.Wait()
		eventually(t, func() error { return oneOf(t, names) })
		now := int64(0)
		for _, name := range names {
			if err := pods.Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
				t.Error(err)
			}
		}
		if t.Failed() {
			return
		}
	}
}

// oneOf reports whether just one of the pods is bound and all others were found to have
// no room. Two that are bound fail the test.
func oneOf(t *testing.T, names []string) error {
	t.Helper()
	var bound, waiting int
	for _, name := range names {
		is, err := shared.Client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if is.Spec.NodeName != "" {
			bound++
			continue
		}
		for _, condition := range is.Status.Conditions {
			if condition.Type == corev1.PodScheduled && condition.Reason == corev1.PodReasonUnschedulable {
				waiting++
			}
		}
	}
	if bound > 1 {
		t.Fatalf("all of %v were bound", names)
	}
	if bound+waiting < len(names) || bound == 0 {
		return fmt.Errorf("of %v %d are bound and %d wait", names, bound, waiting)
	}
	return nil
}
