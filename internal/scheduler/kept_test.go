package scheduler

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/qgpu-project/qgpu/internal/placement/strategy"
	"github.com/qgpu-project/qgpu/internal/podshare"
)

// turnedOver is a full cluster of 40 nodes with 8 cards, in which pods of whole nodes come and
// go, and of which the node that is returned has just become empty.
func turnedOver(t *testing.T, args Args) (c *cluster, empty string, clock *time.Time) {
	t.Helper()
	const nodes, turns = 40, 60
	c = newCluster(t, args)
	for i := range nodes {
		c.join(fmt.Sprintf("node-%02d", i), common, 8)
	}
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	c.plugin.view.clock = func() time.Time { return now }
	var placed []placedPod
	for range nodes {
		pod := c.pod([2]int{800, 0})
		placed = append(placed, placedPod{c.mustSchedule(pod), pod.UID})
	}
	for i := range turns {
		at := i % nodes
		c.remove(placed[at].node, placed[at].uid)
		pod := c.pod([2]int{800, 0})
		placed[at] = placedPod{c.mustSchedule(pod), pod.UID}
	}
	c.remove(placed[0].node, placed[0].uid)
	return c, placed[0].node, &now
}

func keeping() Args {
	return Args{NodePlacement: strategy.Frag, CardPlacement: strategy.Frag, KeepRoom: metav1.Duration{Duration: keepRoom}}
}

// TestRoomIsKeptForLargePods keeps the node that has just become empty from smaller pods, for
// a while, and from nobody else.
func TestRoomIsKeptForLargePods(t *testing.T) {
	small := func(c *cluster) *corev1.Pod { return c.pod([2]int{30, 2}) }
	class := func(class string, core corev1.ResourceName) func(*cluster) *corev1.Pod {
		return func(c *cluster) *corev1.Pod {
			p := c.pod([2]int{0, 2})
			p.Annotations = map[string]string{podshare.ClassLabel: class}
			if core != "" {
				p.Spec.Containers[0].Resources.Limits[core] = quantity(30)
			}
			return p
		}
	}
	for _, tt := range []struct {
		name string
		args func(*Args)
		pod  func(*cluster) *corev1.Pod
		wait time.Duration
		kept bool
	}{
		{"a part of a card", nil, small, time.Minute, true},
		{"one card", nil, func(c *cluster) *corev1.Pod { return c.pod([2]int{100, 0}) }, time.Minute, true},
		{"a whole node", nil, func(c *cluster) *corev1.Pod { return c.pod([2]int{800, 0}) }, time.Minute, false},
		{"two containers that need all of it", nil, func(c *cluster) *corev1.Pod { return c.pod([2]int{400, 0}, [2]int{400, 0}) }, time.Minute, false},
		{"after a while", nil, small, keepRoom, false},
		{"offline", nil, class("offline", podshare.CoreGreedy), time.Minute, true},
		{"online", nil, class("online", ""), time.Minute, false},
		{"with priority", nil, func(c *cluster) *corev1.Pod { p := small(c); p.Spec.Priority = new(int32(10)); return p }, time.Minute, false},
		{"not asked for", func(a *Args) { a.KeepRoom.Duration = 0 }, small, time.Minute, false},
		{"another placement", func(a *Args) { a.NodePlacement = strategy.Binpack }, small, time.Minute, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			args := keeping()
			if tt.args != nil {
				tt.args(&args)
			}
			c, empty, clock := turnedOver(t, args)
			pod := tt.pod(c)
			c.filter(small(c)) // sees that the node is empty
			*clock = clock.Add(tt.wait)
			_, _, why := c.filter(pod)
			if got := why[empty]; (got != nil) != tt.kept || tt.kept && !strings.Contains(got.Message(), "are kept for pods that need many") {
				t.Errorf("the empty node says %v, want it kept: %v", got, tt.kept)
			}
			if node, _ := c.schedule(pod); (node == "") != tt.kept || node != "" && node != empty {
				t.Errorf("it is placed on %q, and node %s is empty", node, empty)
			}
		})
	}
}

// A cluster whose scheduler has just begun has seen nothing come or go.
func TestNothingIsKeptAtFirst(t *testing.T) {
	c, empty, _ := turnedOver(t, keeping())
	c.restart()
	if node := c.mustSchedule(c.pod([2]int{30, 2})); node != empty {
		t.Errorf("it is placed on %q, and node %s is empty", node, empty)
	}
}
