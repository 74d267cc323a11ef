package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/qgpu-project/qgpu/internal/podshare"
	"github.com/qgpu-project/qgpu/kubernetes/cluster"
)

// The examples run as they are written. Their images' names are those of the test's own.
func TestExamples(t *testing.T) {
	for _, name := range []string{"share", "whole-card", "two-cards", "online", "offline", "two-containers", "init-and-sidecar", "elasticgpu", "nano"} {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("..", "..", "examples", name+".yaml"))
			if err != nil {
				t.Fatal(err)
			}
			var pod corev1.Pod
			if err := yaml.UnmarshalStrict(text, &pod); err != nil {
				t.Fatal(err)
			}
			pod.Namespace = namespace
			pod.Spec.TerminationGracePeriodSeconds = new(int64) // only to end sooner
			made := shared.create(t, &pod)
			shared.becomes(t, made, func(is *corev1.Pod) error {
				if is.Status.Phase == corev1.PodSucceeded || ready(is) {
					return nil
				}
				if is.Status.Phase == corev1.PodFailed {
					t.Fatalf("it failed: %s", status(is))
				}
				return fmt.Errorf("it neither runs nor has ended: %s", status(is))
			})
		})
	}
}

func TestRefusedAtCreation(t *testing.T) {
	privileged := container("cuda", ask{core: 30, memory: 5})
	yes := true
	privileged.SecurityContext = &corev1.SecurityContext{Privileged: &yes}
	for name, c := range map[string]corev1.Container{
		"core-in-steps":      container("cuda", ask{core: 33, memory: 5}),
		"core-alone":         container("cuda", ask{core: 30}),
		"whole-with-memory":  container("cuda", ask{core: 200, memory: 5}),
		"privileged":         privileged,
		"greedy-not-offline": container("cuda", ask{greedy: 10, memory: 5}),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := shared.tryCreate(t, newPod("refused-"+name, "", c))
			if err == nil {
				t.Fatal("it was created")
			}
			t.Log(err)
		})
	}
}

// Nobody but the scheduler says where a share lies.
func TestForgedPlacement(t *testing.T) {
	honest := shared.run(t, newPod("honest", turing, container("cuda", ask{core: 20, memory: 2})))
	note := honest.Annotations[podshare.PlacementNote]

	forged := newPod("forged", "", container("cuda", ask{core: 20, memory: 2}))
	forged.Annotations = map[string]string{podshare.PlacementNote: note}
	if _, err := shared.tryCreate(t, forged); err == nil {
		t.Error("a pod was created with a placement")
	}
	pods := shared.Client.CoreV1().Pods(namespace)
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, podshare.PlacementNote, strings.Replace(note, `"index":0`, `"index":1`, 1)+" ")
	if _, err := pods.Patch(t.Context(), honest.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err == nil {
		t.Error("a placement was changed")
	}
	if _, err := pods.Patch(t.Context(), honest.Name, types.JSONPatchType,
		[]byte(`[{"op":"remove","path":"/metadata/annotations/qgpu.io~1placement"}]`), metav1.PatchOptions{}); err == nil {
		t.Error("a placement was removed")
	}
	unbound := newPod("unbound", "", container("cuda", ask{core: 20, memory: 2}))
	unbound.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "test/gate"}}
	unbound = shared.create(t, unbound)
	err := pods.Bind(t.Context(), &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: unbound.Name, Namespace: namespace, Annotations: map[string]string{podshare.PlacementNote: note}},
		Target:     corev1.ObjectReference{Kind: "Node", Name: turing},
	}, metav1.CreateOptions{})
	if err == nil {
		t.Error("an administrator bound a pod to cards")
	}
	if is := shared.get(t, honest); is.Annotations[podshare.PlacementNote] != note {
		t.Error("the placement is another one now")
	}
}

// A pod that was given a node by hand has no cards: it does not start, and says why.
func TestNodeNameByHand(t *testing.T) {
	pod := newPod("by-hand", "", container("cuda", ask{core: 20, memory: 2}))
	pod.Spec.NodeName = turing
	made, err := shared.tryCreate(t, pod)
	if err != nil {
		t.Logf("refused at once: %v", err)
		return
	}
	shared.becomes(t, made, func(is *corev1.Pod) error {
		if ready(is) {
			t.Fatal("it runs")
		}
		if is.Status.Phase == corev1.PodFailed {
			return nil
		}
		for _, c := range is.Status.ContainerStatuses {
			if c.State.Waiting != nil && strings.Contains(c.State.Waiting.Message, "placement") {
				return nil
			}
			if c.State.Terminated != nil && strings.Contains(c.State.Terminated.Message, "placement") {
				return nil
			}
		}
		return fmt.Errorf("it does not say what is wrong: %s", status(is))
	})
}

// An agent's token is good for its own node's objects only.
func TestAgentWritesItsOwnNodeOnly(t *testing.T) {
	agents, err := shared.Client.CoreV1().Pods(cluster.Namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=agent", FieldSelector: "spec.nodeName=" + turing})
	if err != nil || len(agents.Items) != 1 {
		t.Fatalf("the agents of %s are %v, %v", turing, agents, err)
	}
	agent := agents.Items[0]
	review, err := shared.Client.CoreV1().ServiceAccounts(cluster.Namespace).CreateToken(t.Context(), "qgpu-agent", &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: agent.Name, UID: agent.UID}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(shared.Admin)
	config.BearerToken = review.Status.Token
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	for node, allowed := range map[string]bool{turing: true, ampere: false} {
		patch, _ := json.Marshal(map[string]any{"status": map[string]any{"capacity": map[string]string{podshare.Core: "200"}}})
		_, err := client.CoreV1().Nodes().Patch(t.Context(), node, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		if (err == nil) != allowed {
			t.Errorf("the agent of %s patches node %s: %v", turing, node, err)
		}
	}
}
