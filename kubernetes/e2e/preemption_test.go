package e2e

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestPreemption has a pod of higher priority take the place of just as many others as it
// needs, on their cards, once their memory is free; who is not in its way stays.
func TestPreemption(t *testing.T) {
	classes := shared.Client.SchedulingV1().PriorityClasses()
	_, err := classes.Create(t.Context(), &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "urgent"}, Value: 1000}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { classes.Delete(context.Background(), "urgent", metav1.DeleteOptions{}) })
	// Two cards of 15 GiB: one pod on each, and a small one beside one of them.
	hold := func(name string, core, gib int) *corev1.Pod {
		return shared.run(t, newPod(name, turing, container("cuda", ask{core: core, memory: gib}, "sh", "-c", "sleep 1000000 | cudaload fill --hold --limit 1Gi")))
	}
	one, two, small := hold("low-1", 60, 10), hold("low-2", 60, 10), hold("low-small", 10, 1)
	urgent := newPod("high", turing, container("cuda", ask{core: 50, memory: 9}))
	urgent.Spec.PriorityClassName = "urgent"
	urgent = shared.running(t, shared.create(t, urgent))
	shared.sees(t, urgent, "cuda", 1, 9)
	shared.fills(t, urgent, "cuda", 9)
	var left []string
	for _, pod := range []*corev1.Pod{one, two, small} {
		now, err := shared.Client.CoreV1().Pods(pod.Namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && now.DeletionTimestamp != nil {
			left = append(left, pod.Name)
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if len(left) != 1 || left[0] == small.Name {
		t.Errorf("%q made room, want one of the two that were in the way", left)
	}
	for _, victim := range []*corev1.Pod{one, two} {
		if victim.Name == left[0] && placed(t, victim).Containers["cuda"][0].UUID != placed(t, urgent).Containers["cuda"][0].UUID {
			t.Errorf("%s made room on another card than was needed", victim.Name)
		}
	}
}
