package chart

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/qgpu-project/qgpu/internal/cli/kubecmd"
	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/podshare"
	"github.com/qgpu-project/qgpu/internal/share"
)

// kubectl runs `kubectl qgpu` against the control plane.
func (s *site) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	c := kubecmd.NewPlugin()
	c.SetArgs(append(args, "--kubeconfig", s.kubeconfig))
	c.SetOut(&out)
	if err := c.ExecuteContext(t.Context()); err != nil {
		t.Fatalf("kubectl qgpu %s: %v", strings.Join(args, " "), err)
	}
	return out.String()
}

// The plugin against a real API server: an agent's cards, a pod that the scheduler
// bound, and one that waits.
func TestKubectlPlugin(t *testing.T) {
	s := shared
	s.install(t)
	s.ready(t)
	node := s.node(t, "node-a")
	inventory := exampleCards(node)
	if _, err := cards(t, s.agentOf(t, "node-a")).Apply(t.Context(), inventory, "qgpu-agent"); err != nil {
		t.Fatal(err)
	}
	placed := podshare.Placement{Node: "node-a", Policy: share.BestEffort, Containers: placement.Assignment{
		"c": {{Index: 0, UUID: inventory.Cards[0].UUID, Core: 60, Memory: 8 * share.GiB}},
	}}
	value, err := placed.Encode()
	if err != nil {
		t.Fatal(err)
	}
	running := s.create(t, pod("core=60 memory=8"), "train")
	if err := s.bind(t, client(t, s.as(t, "qgpu-scheduler", nil)), running, "node-a", value); err != nil {
		t.Fatal(err)
	}
	s.create(t, pod("core=50 memory=4"), "waits")

	for _, tt := range []struct {
		args string
		want []string
	}{
		{"nodes", []string{"node-a", "Tesla T4", "60/100%", "8Gi/15Gi", "Xid 79"}},
		{"pods", []string{"train", "60%", "8Gi", "waits", "Pending"}},
		{"top", []string{"all", "8Gi/30Gi 27%"}},
		{"explain waits", []string{"Pod default/waits waits", "card 0 (Tesla T4) has 40 % of core free, and 50 % is asked for", "card 1 (Tesla T4) is unhealthy: Xid 79"}},
		{"explain train", []string{"is on node node-a", "card 0"}},
	} {
		out := s.kubectl(t, strings.Fields(tt.args)...)
		for _, want := range tt.want {
			if !strings.Contains(out, want) {
				t.Errorf("kubectl qgpu %s lacks %q:\n%s", tt.args, want, out)
			}
		}
	}
	var rows []map[string]any
	if err := json.Unmarshal([]byte(s.kubectl(t, "pods", "-A", "-o", "json")), &rows); err != nil || len(rows) != 2 {
		t.Errorf("pods as JSON: %v, %v", rows, err)
	}
}
