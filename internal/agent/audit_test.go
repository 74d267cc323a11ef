package agent

import (
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/share"
)

// blockUntil holds back actions until a channel is closed, and then fails them.
func blockUntil(c <-chan struct{}) clienttesting.ReactionFunc {
	first := make(chan struct{}, 1)
	return func(clienttesting.Action) (bool, runtime.Object, error) {
		select {
		case first <- struct{}{}:
			<-c
			return true, nil, errors.New("too late")
		default:
			return false, nil, nil
		}
	}
}

// A tenant whose pod is gone everywhere is told of, and ended by nobody. While the kubelet
// has the pod still, all is well.
func TestOrphans(t *testing.T) {
	s := newSite(t)
	p := s.create(pod("a", 0, 30, 5))
	s.kubelet.set(map[string]int{"default/a": 1}, nil)
	s.begin("tenant-a", p, s.granted(p, "main", 0).Slices)
	s.delete(p)
	for range 3 {
		s.touch()
	}
	if events, err := s.api.CoreV1().Events("").List(t.Context(), metav1.ListOptions{}); err != nil || len(events.Items) != 0 {
		t.Errorf("events %v, %v", events.Items, err)
	}
	s.kubelet.set(nil, nil)
	for range 3 {
		s.touch()
	}
	s.event("TenantDiffers", "gone from the API server and the kubelet")
	s.refusedFor(s.create(pod("b", 0, 80, 12)), "main", "card 0", true)
}

// touch gives the audit a reason to look, and time to.
func (s *site) touch() {
	s.t.Helper()
	p := pod("touch", 1, 5, 1)
	s.create(p)
	time.Sleep(20 * time.Millisecond)
	s.delete(p)
	time.Sleep(20 * time.Millisecond)
}

func TestTenantsThatDiffer(t *testing.T) {
	s := newSite(t)
	p := s.create(pod("a", 0, 30, 5))
	s.begin("tenant-a", p, []placement.Slice{{Index: 1, UUID: uuid(1), Core: 30, Memory: 6 * share.GiB}})
	s.touch()
	s.event("TenantDiffers", "it runs with 30 % and 6Gi of card 1, and was placed with 30 % and 5Gi of card 0")
}

// A promise to a pod that the API server has forgotten holds while the kubelet has the pod.
func TestPromiseToForgottenPod(t *testing.T) {
	s := newSite(t)
	s.kubelet.set(map[string]int{"default/a": 1}, nil)
	a := s.create(pod("a", 0, 60, 8))
	s.granted(a, "main", 0)
	s.delete(a)
	s.touch()
	b := s.create(pod("b", 0, 60, 8))
	s.refusedFor(b, "main", "a pod that ends has its place still", true)
	s.kubelet.set(nil, nil)
	s.touch()
	s.until("granted", func() error {
		if _, r := s.ask(b, "main"); r != nil {
			return r
		}
		return nil
	})
}
