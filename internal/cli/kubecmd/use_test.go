package kubecmd

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/qgpu-project/qgpu/internal/agentapi"
	"github.com/qgpu-project/qgpu/internal/share"
)

// agents are the chart's agents on nodes, among other pods.
func agents(nodes ...string) []corev1.Pod {
	pods := []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "other", Labels: map[string]string{"app.kubernetes.io/name": "other"}}}}
	for _, n := range nodes {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: "qgpu-agent-" + n, Namespace: "kube-system",
			Labels: map[string]string{"app.kubernetes.io/name": "qgpu", "app.kubernetes.io/component": "agent"},
		}}
		p.Spec.NodeName = n
		p.Spec.Containers = []corev1.Container{{Name: "agent", Ports: []corev1.ContainerPort{{Name: "use", ContainerPort: 5678}}}}
		p.Status.Phase = corev1.PodRunning
		pods = append(pods, p)
	}
	return pods
}

func p(v float64) *float64 { return &v }

// exampleUse is what the agents of the example tell.
func exampleUse(_ context.Context, agent *corev1.Pod, port int32) ([]byte, error) {
	if port != 5678 || agent.Namespace != "kube-system" {
		return nil, errors.New("no such agent")
	}
	container := func(pod string, slices ...agentapi.SliceUse) agentapi.ContainerUse {
		return agentapi.ContainerUse{Container: agentapi.Container{PodUID: "uid-" + pod, PodNamespace: "default", PodName: pod, Name: "main"}, Slices: slices}
	}
	use := agentapi.Use{}
	if agent.Spec.NodeName == "gpu-1" {
		use.Cards = []agentapi.CardUse{{UUID: uuid("gpu-1", 0), Used: 7 * share.GiB, Busy: p(63)}}
		use.Containers = []agentapi.ContainerUse{
			container("serve", agentapi.SliceUse{UUID: uuid("gpu-1", 0), Used: 3 * share.GiB, Quota: 4 * share.GiB, Busy: p(0)}),
			container("train", agentapi.SliceUse{UUID: uuid("gpu-1", 0), Used: 4 * share.GiB, Quota: 8 * share.GiB}),
		}
	} else {
		use.Cards = []agentapi.CardUse{{UUID: uuid("gpu-2", 0), Used: share.GiB / 2, Busy: p(99.5)}}
		use.Containers = []agentapi.ContainerUse{container("whole", agentapi.SliceUse{UUID: uuid("gpu-2", 0), Used: share.GiB / 2, Quota: 15 * share.GiB, Busy: p(99.5)})}
	}
	return json.Marshal(use)
}

// TestUseNotKnown tells which agents did not answer, and why, and takes what is not known for
// that and not for nothing.
func TestUseNotKnown(t *testing.T) {
	pods := agents("a", "b", "c", "d", "gone")
	pods[3].Spec.Containers[0].Ports = nil // c
	pods[5].Status.Phase = corev1.PodFailed
	u := readUses(t.Context(), pods, nil, func(_ context.Context, agent *corev1.Pod, _ int32) ([]byte, error) {
		switch agent.Spec.NodeName {
		case "a":
			return nil, errors.New("connection refused")
		case "b":
			return []byte("<html>"), nil
		}
		return json.Marshal(agentapi.Use{Containers: []agentapi.ContainerUse{
			{Container: agentapi.Container{PodUID: "u", PodNamespace: "ns", PodName: "p", Name: "mute"}, Error: "its mediator is dead"},
			{Container: agentapi.Container{PodUID: "u", PodNamespace: "ns", PodName: "p", Name: "two"}, Slices: []agentapi.SliceUse{
				{UUID: "GPU-1", Used: 1 << 30, Busy: p(30)}, {UUID: "GPU-2", Used: 2 << 30, Busy: p(12.5)}}},
			{Container: agentapi.Container{PodUID: "u", PodNamespace: "ns", PodName: "p", Name: "half"}, Slices: []agentapi.SliceUse{
				{UUID: "GPU-1", Used: 1 << 30, Busy: p(30)}, {UUID: "GPU-2", Used: 2 << 30}}},
		}})
	})
	want := []string{
		"a: what is used there is not known: connection refused",
		"b: what is used there is not known: the agent's answer is damaged",
		"c: what is used there is not known: the chart's agent.port is 0",
	}
	if !slices.EqualFunc(u.problems, want, strings.HasPrefix) {
		t.Errorf("problems %q, want %q", u.problems, want)
	}
	for _, tt := range []struct {
		container, used, busy, problem string
	}{
		{"two", "3Gi", "42.5%", ""}, {"half", "3Gi", "-", ""}, {"unheard", "-", "-", ""},
		{"mute", "-", "-", "what it uses is not known: its mediator is dead"},
	} {
		used, busy, problem := u.container("u", tt.container)
		if usedText(used) != tt.used || busyText(busy) != tt.busy || problem != tt.problem {
			t.Errorf("%s: %s and %s and %q, want %+v", tt.container, usedText(used), busyText(busy), problem, tt)
		}
	}
	if used, busy := u.card("a", "GPU-0"); used != nil || busy != nil {
		t.Error("a card of an agent that did not answer has use")
	}
	if used, busy := u.card("d", "GPU-0"); used == nil || *used != 0 || busy == nil || *busy != 0 {
		t.Error("a card without tenants has use")
	}
}
