package chart

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Short forms of the names of shares in the tables below.
var resourceNames = map[string]corev1.ResourceName{
	"core": "tke.cloud.tencent.com/qgpu-core", "memory": "tke.cloud.tencent.com/qgpu-memory",
	"greedy":  "tke.cloud.tencent.com/qgpu-core-greedy",
	"elastic": "elasticgpu.io/gpu-core", "elasticMiB": "elasticgpu.io/gpu-memory", "nano": "nano-gpu/gpu-percent",
	"nvidia": "nvidia.com/gpu", "cpu": "cpu",
}

// amounts reads "core=30 memory=5".
func amounts(text string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for _, field := range strings.Fields(text) {
		name, value, _ := strings.Cut(field, "=")
		list[resourceNames[name]] = resource.MustParse(value)
	}
	return list
}

type change func(*corev1.Pod)

// pod is a pod of one container "c" with these limits, and changes.
func pod(limits string, changes ...change) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default", Annotations: map[string]string{}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{container("c", limits)}},
	}
	for _, c := range changes {
		c(p)
	}
	return p
}

func container(name, limits string) corev1.Container {
	return corev1.Container{Name: name, Image: "image", Resources: corev1.ResourceRequirements{Limits: amounts(limits)}}
}

func requests(text string) change {
	return func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = amounts(text) }
}

func class(name string) change { return annotation("tke.cloud.tencent.com/app-class", name) }

func annotation(key, value string) change {
	return func(p *corev1.Pod) { p.Annotations[key] = value }
}

func and(name, limits string) change {
	return func(p *corev1.Pod) { p.Spec.Containers = append(p.Spec.Containers, container(name, limits)) }
}

func initially(name, limits string) change {
	return func(p *corev1.Pod) { p.Spec.InitContainers = append(p.Spec.InitContainers, container(name, limits)) }
}

func security(set func(*corev1.SecurityContext)) change {
	return func(p *corev1.Pod) {
		last := &p.Spec.Containers[len(p.Spec.Containers)-1]
		last.SecurityContext = &corev1.SecurityContext{}
		set(last.SecurityContext)
	}
}

func capability(name corev1.Capability) change {
	return security(func(s *corev1.SecurityContext) {
		s.Capabilities = &corev1.Capabilities{Add: []corev1.Capability{name}}
	})
}

func privileged(s *corev1.SecurityContext) { yes := true; s.Privileged = &yes }

func hostPath(path string) change {
	return func(p *corev1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path}}})
	}
}

func spec(set func(*corev1.PodSpec)) change { return func(p *corev1.Pod) { set(&p.Spec) } }

// try asks the API server to create a pod, without keeping it.
func (s *site) try(t *testing.T, p *corev1.Pod) (*corev1.Pod, error) {
	t.Helper()
	return s.admin.CoreV1().Pods(p.Namespace).Create(t.Context(), p, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
}

// ready waits until the API server knows the chart's policies.
func (s *site) ready(t *testing.T) {
	t.Helper()
	eventually(t, func() error {
		if _, err := s.try(t, pod("core=33 memory=5")); err == nil {
			return fmt.Errorf("the policy qgpu-shares does not hold")
		}
		got, err := s.try(t, pod("core=30 memory=5"))
		if err != nil {
			return err
		}
		if got.Spec.SchedulerName != "qgpu-scheduler" {
			return fmt.Errorf("the policy qgpu-defaults does not hold")
		}
		return nil
	})
}

var errNotYet = errors.New("the API server does not hold to the changed policies yet")

// runtimeClass makes sure that there is a RuntimeClass: without one the API server
// refuses a pod before any policy sees it.
func (s *site) runtimeClass(t *testing.T, name string) {
	t.Helper()
	_, err := s.admin.NodeV1().RuntimeClasses().Create(t.Context(), &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Handler: name}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}
