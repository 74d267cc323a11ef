package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/qgpu-project/qgpu/internal/podshare"
	"github.com/qgpu-project/qgpu/internal/share"
	"github.com/qgpu-project/qgpu/internal/tenant"
	"github.com/qgpu-project/qgpu/kubernetes/cluster"
)

// parts is what pods of a node have of its cards' compute, in percent, as the cards
// account for it on their own clocks.
func (s *site) parts(t *testing.T, node *cluster.Node, pods ...*corev1.Pod) []float64 {
	t.Helper()
	output, err := node.Run(t.Context(), "qgpu-sim", "usage", "--window", "1500ms")
	if err != nil {
		t.Fatal(err)
	}
	var cards []struct {
		Processes map[int]struct{ Part float64 }
	}
	if err := json.Unmarshal([]byte(output), &cards); err != nil {
		t.Fatalf("%v in %s", err, output)
	}
	mediators := s.mediators(t, node)
	var parts []float64
	for _, pod := range pods {
		part := 0.0
		for _, card := range cards {
			part += 100 * card.Processes[mediators[string(pod.UID)]].Part
		}
		parts = append(parts, part)
	}
	t.Logf("parts of the card: %.1f %%", parts)
	return parts
}

// mediators are the process ids, on the node, of its tenants' mediators by pod.
func (s *site) mediators(t *testing.T, node *cluster.Node) map[string]int {
	t.Helper()
	output, err := node.Run(t.Context(), "qgpu", "ps", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var tenants []struct {
		Owner *tenant.Owner
		State struct{ Mediator int }
	}
	if err := json.Unmarshal([]byte(output), &tenants); err != nil {
		t.Fatalf("%v in %s", err, output)
	}
	pids := map[string]int{}
	for _, one := range tenants {
		if one.Owner != nil {
			pids[one.Owner.PodUID] = one.State.Mediator
		}
	}
	return pids
}

// The node's label says how a card's compute is divided. A busy machine delays programs
// and pacers: hence the tolerance, and as many windows as it takes.
func TestPolicyOfTheNode(t *testing.T) {
	const tolerance = 7.0
	node := shared.node(t, turing)
	if err := shared.Label(t.Context(), node.Name, map[string]string{podshare.PolicyLabel: "bs"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := shared.Label(context.Background(), node.Name, node.Labels); err != nil {
			t.Error(err)
		}
	})
	eventually(t, func() error { // until the scheduler has seen the label
		probe := shared.run(t, newPod("probe", node.Name, container("cuda", ask{core: 5, memory: 1}, "sleep", "600")))
		defer shared.remove(t, probe)
		if policy := placed(t, probe).Policy; policy != share.BurstShare {
			return fmt.Errorf("pods are placed for %s", policy)
		}
		return nil
	})
	work := []string{"cudaload", "load", "--blocks", "131072", "--seconds", "600"}
	var pods []*corev1.Pod
	for name, core := range map[string]int{"busy-small": 25, "busy-large": 75} {
		pod := newPod(name, node.Name, container("cuda", ask{core: core, memory: 2}, work...))
		pod.Annotations = map[string]string{podshare.CardPlacementNote: "binpack"}
		pods = append(pods, shared.run(t, pod))
	}
	if pods[0].Name != "busy-small" {
		pods[0], pods[1] = pods[1], pods[0]
	}
	if a, b := placed(t, pods[0]).Containers["cuda"][0], placed(t, pods[1]).Containers["cuda"][0]; a.UUID != b.UUID {
		t.Fatalf("they lie on two cards: %v, %v", a, b)
	}
	eventually(t, func() error {
		got := shared.parts(t, node, pods...)
		for i, want := range []float64{25, 75} {
			if math.Abs(got[i]-want) > tolerance {
				return fmt.Errorf("%s has %.1f %% of the card, want %.0f", pods[i].Name, got[i], want)
			}
		}
		return nil
	})
	shared.remove(t, pods[1])
	eventually(t, func() error { // under burst-share idle time is its own
		if alone := shared.parts(t, node, pods[0]); alone[0] < 100-tolerance {
			return fmt.Errorf("alone, the smaller has %.1f %% of the card", alone[0])
		}
		return nil
	})
}
