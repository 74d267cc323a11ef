package kubecmd

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/qgpu-project/qgpu/internal/clusterview"
	"github.com/qgpu-project/qgpu/internal/inventory"
	"github.com/qgpu-project/qgpu/internal/replay"
	"github.com/qgpu-project/qgpu/internal/share"
)

// A trace tells which models a pod's nodeSelector leaves it.
func TestTraceModels(t *testing.T) {
	const product = "nvidia.com/gpu.product"
	selecting := func(value string, p corev1.Pod) corev1.Pod {
		p.Spec.NodeSelector = map[string]string{product: value}
		return p
	}
	o := clusterview.Objects{
		Nodes:       []corev1.Node{exampleNode("gpu-1", "", 1), exampleNode("gpu-2", "", 2)},
		Inventories: []inventory.CardInventory{exampleInventory("gpu-1", 1), exampleInventory("gpu-2", 2)},
		Pods: []corev1.Pod{
			examplePod(t, "a-any", "", amounts("core", 10, "memory", 1)),
			selecting("A100", examplePod(t, "b-waits", "", amounts("core", 20, "memory", 1))),
			selecting("A100", examplePod(t, "c-runs", "", amounts("core", 30, "memory", 1), slice("gpu-2", 0, 30, 1, share.Ordinary))),
			selecting("H100", examplePod(t, "d-no-node", "", amounts("core", 40, "memory", 1))),
			selecting("H100", examplePod(t, "e-relabelled", "", amounts("core", 50, "memory", 1), slice("gpu-1", 0, 50, 1, share.Ordinary))),
		},
	}
	o.Nodes[1].Labels[product] = "A100"
	o.Inventories[1].Cards[0].Model = "NVIDIA A100" // and the other is a T4: a trace knows the first
	dir := t.TempDir()
	if err := replay.Write(dir, trace(clusterview.Of(o))); err != nil {
		t.Fatal(err)
	}
	got, err := replay.Open(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	a100 := []string{"NVIDIA A100"}
	want := map[int64][]string{100: nil, 200: a100, 300: a100, 500: nil}
	if len(got.Pods) != len(want) {
		t.Errorf("%d pods, want %d", len(got.Pods), len(want))
	}
	for _, p := range got.Pods {
		if models, known := want[p.CoreMilli]; !known || !slices.Equal(p.Models, models) {
			t.Errorf("the pod with core %d‰ takes %q, want %q", p.CoreMilli, p.Models, models)
		}
	}
}
