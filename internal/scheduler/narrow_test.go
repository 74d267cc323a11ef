package scheduler

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	fwk "k8s.io/kube-scheduler/framework"
	"pgregory.net/rapid"

	"github.com/qgpu-project/qgpu/internal/placement/strategy"
)

// large is a cluster of so many nodes with two cards each.
func large(t testing.TB, nodes int, change func(i int, n *corev1.Node)) *cluster {
	c := newCluster(t, Args{NodePlacement: strategy.Spread, CardPlacement: strategy.Binpack})
	for i := range nodes {
		n := gpuNode(fmt.Sprintf("n%03d", i))
		change(i, n)
		c.nodes[n.Name] = &nodeInfo{node: n}
		c.touch(n.Name)
		c.report(n.Name, t4s(n.Name, 2)...)
	}
	return c
}

// The best of the nodes that are looked at is the best of all.
func TestNarrowedChoiceIsTheSame(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := large(t, 3*enough, func(int, *corev1.Node) {})
		for range rapid.IntRange(0, 100).Draw(rt, "pods") {
			p := c.pod([2]int{5 * rapid.IntRange(1, 20).Draw(rt, "core"), rapid.IntRange(1, 15).Draw(rt, "memory")})
			_, among, scores := c.choose(p)
			if len(scores) > enough {
				rt.Fatalf("%d nodes are rated", len(scores))
			}
			c.plugin.wide.put(p.UID)
			if _, all, scores := c.choose(p); all != among {
				rt.Fatalf("of the best nodes %s is chosen, of all %d %s", among, len(scores), all)
			}
			c.schedule(p)
		}
	})
}

// Nodes that would refuse the pod anyway do not count as good ones.
func TestNarrowLooksAtTheHost(t *testing.T) {
	const good = enough + 5 // is the only node that suits, whatever its rank
	for name, tc := range map[string]struct {
		node func(i int, n *corev1.Node)
		pod  func(p *corev1.Pod)
	}{
		"labels": {func(i int, n *corev1.Node) {
			if i == good {
				n.Labels["zone"] = "z"
			}
		}, func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"zone": "z"} }},
		"taint": {func(i int, n *corev1.Node) {
			if i != good {
				n.Spec.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}}
			}
		}, func(*corev1.Pod) {}},
		"memory": {func(i int, n *corev1.Node) {
			if i == good {
				n.Status.Allocatable[corev1.ResourceMemory] = resource.MustParse("2Gi")
			}
		}, func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests[corev1.ResourceMemory] = resource.MustParse("1Gi")
		}},
		"CPU": {func(i int, n *corev1.Node) {
			if i == good {
				n.Status.Allocatable[corev1.ResourceCPU] = resource.MustParse("2")
			}
		}, func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("1")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c := large(t, 2*enough, tc.node)
			p := c.pod([2]int{30, 5})
			tc.pod(p)
			if _, fit, _ := c.filter(p); len(fit) != 1 || fit[0].Node().Name != fmt.Sprintf("n%03d", good) {
				t.Errorf("%d nodes are looked at, want n%03d alone", len(fit), good)
			}
		})
	}
}

// What takes other plugins to tell is left to them.
func TestNarrowKnowsItsLimits(t *testing.T) {
	for name, change := range map[string]func(*corev1.Pod){
		"affinity to pods": func(p *corev1.Pod) { p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{}} },
		"spreading": func(p *corev1.Pod) {
			p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{TopologyKey: "zone"}}
		},
		"volume": func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{}}}}
		},
		"port":    func(p *corev1.Pod) { p.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: 80}} },
		"claim":   func(p *corev1.Pod) { p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "c"}} },
		"no node": func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"zone": "none"} },
	} {
		c := large(t, 2*enough, func(int, *corev1.Node) {})
		p := c.pod([2]int{30, 5})
		change(p)
		if _, fit, _ := c.filter(p); len(fit) != 2*enough {
			t.Errorf("%s: %d nodes are looked at, want all %d", name, len(fit), 2*enough)
		}
	}
}

// A pod that the best nodes refuse is tried on all, once, and nothing is preempted for it.
func TestNarrowedInVain(t *testing.T) {
	c := large(t, 2*enough, func(int, *corev1.Node) {})
	p := c.pod([2]int{30, 5})
	for i, want := range []struct {
		looked int
		code   fwk.Code
	}{{enough, fwk.Success}, {2 * enough, fwk.Unschedulable}, {enough, fwk.Success}} {
		state, fit, _ := c.filter(p)
		if len(fit) != want.looked {
			t.Errorf("try %d: %d nodes are looked at, want %d", i, len(fit), want.looked)
		}
		if _, status := c.plugin.PostFilter(context.Background(), state, p, nil); status.Code() != want.code {
			t.Errorf("try %d: PostFilter says %v, want %v", i, status.Code(), want.code)
		}
	}
	if got := c.plugin.handle.(*handle).activated; len(got) != 2 || got[0] != "default/pod1" {
		t.Errorf("woken: %v, want the pod after either try on the best nodes", got)
	}
}
