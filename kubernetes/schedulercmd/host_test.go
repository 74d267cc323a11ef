package schedulercmd

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/qgpu-project/qgpu/internal/podshare"
)

func TestHostResourcesAreLeft(t *testing.T) {
	h := &host{shares: podshare.Reader{Nano: true}.Resources()}
	one := resource.MustParse("1")
	pod := &corev1.Pod{}
	for _, name := range append(h.shares, corev1.ResourceCPU, "example.com/plain") {
		c := corev1.Container{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{name: one}}}
		pod.Spec.Containers = append(pod.Spec.Containers, c)
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
	}
	before := pod.DeepCopy()
	stripped := h.withoutShares(pod)
	for _, containers := range [][]corev1.Container{stripped.Spec.Containers, stripped.Spec.InitContainers} {
		var left []corev1.ResourceName
		for _, c := range containers {
			for name := range c.Resources.Requests {
				left = append(left, name)
			}
		}
		if len(left) != 2 || left[0] != corev1.ResourceCPU || left[1] != "example.com/plain" {
			t.Errorf("left are %v, want cpu and example.com/plain", left)
		}
	}
	for i := range before.Spec.Containers {
		if len(pod.Spec.Containers[i].Resources.Requests) != len(before.Spec.Containers[i].Resources.Requests) {
			t.Error("the pod itself has changed")
		}
	}
}
