package chart

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"

	"github.com/qgpu-project/qgpu/internal/podshare"
)

// What the API server lets in the scheduler and the agent can read, and what they can
// read it lets in, so that nobody is told "no" late, or without need.
func TestPoliciesAgreeWithTheReader(t *testing.T) {
	s := shared
	s.install(t, "--set", "resourceNames.nano=true")
	s.ready(t)
	eventually(t, func() error {
		if _, err := s.try(t, pod("elastic=33 elasticMiB=500")); err == nil {
			return errNotYet
		}
		return nil
	})
	families := [][]string{{"core", "memory"}, {"core"}, {"greedy", "memory"}, {"memory"}, {"elastic", "elasticMiB"}, {"nano"},
		{"core", "memory", "greedy"}, {"memory", "nano"}}
	usual := []int64{1, 5, 30, 33, 50, 95, 100, 101, 120, 155, 160, 196, 200, 240, 300}
	reader := podshare.Reader{Nano: true}
	letIn := 0
	rapid.Check(t, func(rt *rapid.T) {
		p := pod("")
		p.Annotations["tke.cloud.tencent.com/app-class"] = rapid.SampledFrom([]string{"", "", "online", "offline"}).Draw(rt, "class")
		limits := corev1.ResourceList{}
		for _, name := range rapid.SampledFrom(families).Draw(rt, "names") {
			n := rapid.OneOf(rapid.SampledFrom(usual), rapid.SampledFrom(usual), rapid.Int64Range(1, 310)).Draw(rt, name)
			limits[resourceNames[name]] = *resource.NewQuantity(n, resource.DecimalSI)
		}
		p.Spec.Containers[0].Resources.Limits = limits
		_, refusal := s.try(t, p)
		_, err := reader.Request(p)
		if (refusal == nil) != (err == nil) && !unevenMemory(limits) {
			rt.Fatalf("limits %v, class %q:\nthe API server: %v\nthe reader: %v", limits, p.Annotations["tke.cloud.tencent.com/app-class"], refusal, err)
		}
		if refusal == nil && err != nil {
			rt.Fatalf("let in, and cannot be read: %v", err)
		}
		if refusal == nil {
			letIn++
		}
	})
	if letIn == 0 {
		t.Error("no pod was let in: nothing was compared")
	}
}

// unevenMemory reports whether the memory of a share of several cards leaves a remainder.
// Policies refuse it, since memory is asked for in whole units; the reader splits it.
func unevenMemory(limits corev1.ResourceList) bool {
	for _, of := range [][2]string{{"core", "memory"}, {"elastic", "elasticMiB"}} {
		core, memory := limits[resourceNames[of[0]]], limits[resourceNames[of[1]]]
		if cards := (core.Value() + 99) / 100; cards > 1 && memory.Value()%cards != 0 {
			return true
		}
	}
	return false
}
