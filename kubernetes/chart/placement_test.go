package chart

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const note = "qgpu.io/placement"

// as is a client with a token of a service account of the chart, bound to a pod where
// one is given.
func (s *site) as(t *testing.T, account string, pod *corev1.Pod) *rest.Config {
	t.Helper()
	request := &authenticationv1.TokenRequest{}
	if pod != nil {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID}
	}
	token, err := s.admin.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), account, request, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(s.plane.Admin())
	config.BearerToken = token.Status.Token
	return config
}

func client(t *testing.T, config *rest.Config) *kubernetes.Clientset {
	t.Helper()
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// create makes a pod and removes it after the test.
func (s *site) create(t *testing.T, p *corev1.Pod, name string) *corev1.Pod {
	t.Helper()
	p.Name = name
	made, err := s.admin.CoreV1().Pods(p.Namespace).Create(t.Context(), p, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		now := int64(0)
		if err := s.admin.CoreV1().Pods(p.Namespace).Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
			t.Error(err)
		}
	})
	return made
}

func (s *site) bind(t *testing.T, client *kubernetes.Clientset, pod *corev1.Pod, node, value string) error {
	t.Helper()
	return client.CoreV1().Pods(pod.Namespace).Bind(t.Context(), &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace, Annotations: map[string]string{note: value}},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node},
	}, metav1.CreateOptions{})
}

func annotations(of map[string]any) []byte {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": of}})
	if err != nil {
		panic(err) // maps of strings have JSON
	}
	return patch
}

func TestPlacementIsTheSchedulersAlone(t *testing.T) {
	s := shared
	s.install(t)
	s.ready(t)
	s.node(t, "node-a")
	scheduler := client(t, s.as(t, "qgpu-scheduler", nil))

	_, err := s.try(t, pod("core=30 memory=5", annotation(note, "{}")))
	checkRefusal(t, err, "annotation qgpu.io/placement: the scheduler alone writes it")
	_, err = s.try(t, pod("cpu=1", annotation(note, "{}")))
	checkRefusal(t, err, "annotation qgpu.io/placement: the scheduler alone writes it")

	made := s.create(t, pod("core=30 memory=5", annotation("qgpu.io/container-cards", "same")), "placed")
	checkRefusal(t, s.bind(t, s.admin, made, "node-a", "forged"), "only system:serviceaccount:kube-system:qgpu-scheduler binds with it, and this is kubernetes-admin")
	err = s.admin.CoreV1().RESTClient().Post().Namespace("default").Resource("bindings").Body(&corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: made.Name, Annotations: map[string]string{note: "forged"}}, Target: corev1.ObjectReference{Kind: "Node", Name: "node-a"},
	}).Do(t.Context()).Error()
	checkRefusal(t, err, "only system:serviceaccount:kube-system:qgpu-scheduler binds with it")
	if err := s.bind(t, scheduler, made, "node-a", "true"); err != nil {
		t.Fatalf("the scheduler binds: %v", err)
	}
	pods := s.admin.CoreV1().Pods("default")
	bound, err := pods.Get(t.Context(), made.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if bound.Annotations[note] != "true" || bound.Spec.NodeName != "node-a" {
		t.Fatalf("bound to %q with placement %q", bound.Spec.NodeName, bound.Annotations[note])
	}

	const kept = "cannot be added, changed or removed"
	for _, subresource := range []string{"", "status"} {
		for name, tt := range map[string]struct {
			patch map[string]any
			want  string
		}{
			"changed":         {map[string]any{note: "forged"}, kept},
			"removed":         {map[string]any{note: nil}, kept},
			"container cards": {map[string]any{"qgpu.io/container-cards": "different"}, "the pod was placed by it"},
			"class":           {map[string]any{"tke.cloud.tencent.com/app-class": "online"}, "the pod was placed by it"},
			"another":         {map[string]any{"note": "x"}, ""},
		} {
			t.Run(fmt.Sprintf("%s %s", name, subresource), func(t *testing.T) {
				var subresources []string
				if subresource != "" {
					subresources = []string{subresource}
				}
				_, err := pods.Patch(t.Context(), made.Name, types.MergePatchType, annotations(tt.patch), metav1.PatchOptions{}, subresources...)
				checkRefusal(t, err, tt.want)
			})
		}
	}
	plain := s.create(t, pod("cpu=1"), "plain")
	_, err = pods.Patch(t.Context(), plain.Name, types.MergePatchType, annotations(map[string]any{note: "added"}), metav1.PatchOptions{})
	checkRefusal(t, err, kept)
	_, err = pods.Patch(t.Context(), plain.Name, types.MergePatchType, annotations(map[string]any{"tke.cloud.tencent.com/app-class": "online"}), metav1.PatchOptions{})
	checkRefusal(t, err, "") // it has no share
}

// A container that is added to a running pod is held to the same rules.
func TestEphemeralContainers(t *testing.T) {
	s := shared
	s.install(t)
	s.ready(t)
	made := s.create(t, pod("core=30 memory=5"), "debugged")
	add := func(name string, context *corev1.SecurityContext) error {
		p := made.DeepCopy()
		p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			Name: name, Image: "image", SecurityContext: context, TerminationMessagePolicy: corev1.TerminationMessageReadFile, ImagePullPolicy: corev1.PullNever,
		}}}
		_, err := s.admin.CoreV1().Pods("default").UpdateEphemeralContainers(t.Context(), made.Name, p, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	yes := true
	checkRefusal(t, add("sysadmin", &corev1.SecurityContext{Privileged: &yes}), `container "sysadmin": privileged`)
	checkRefusal(t, add("debugger", nil), "")
}

// node makes sure that there is a node of that name.
func (s *site) node(t *testing.T, name string) *corev1.Node {
	t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/hostname": name, "qgpu-device-enable": "enable"}}}
	made, err := s.admin.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.admin.CoreV1().Nodes().Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	return made
}
