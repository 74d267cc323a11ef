package agent

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/qgpu-project/qgpu/internal/discovery"
	"github.com/qgpu-project/qgpu/internal/nvclient"
	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/podshare"
	"github.com/qgpu-project/qgpu/internal/share"
)

func TestGrant(t *testing.T) {
	s := newSite(t)
	p := s.create(pod("a", 1, 30, 5))
	first := s.granted(p, "main", 1)
	if first.Share != (share.Share{Core: 30, Memory: 5 * share.GiB}) || first.Policy != share.BestEffort || first.Driver != discovery.Simulated {
		t.Errorf("grant %+v", first)
	}
	if again := s.granted(p, "main", 1); again.Slices[0] != first.Slices[0] {
		t.Errorf("asked again it is %+v", again)
	}
	if grant, refusal := s.ask(p, "helper"); refusal != nil || grant.Slices != nil || !grant.Outsider {
		t.Errorf("a container without a share: %+v, %+v", grant, refusal)
	}
	plain := s.create(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "plain", UID: "u"},
		Spec: corev1.PodSpec{NodeName: thisNode, Containers: []corev1.Container{{Name: "main"}}}})
	if grant, refusal := s.ask(plain, "main"); refusal != nil || grant.Slices != nil || grant.Outsider {
		t.Errorf("a pod without a share: %+v, %+v", grant, refusal)
	}
}

func TestRefusals(t *testing.T) {
	lies := func(p *corev1.Pod, change func(*podshare.Placement)) *corev1.Pod {
		placed, err := podshare.Of(p)
		if err != nil {
			t.Fatal(err)
		}
		change(placed)
		return place(p, *placed)
	}
	with := func(change func(*corev1.Pod)) *corev1.Pod { p := pod("x", 0, 30, 5); change(p); return p }
	for _, tc := range []struct {
		name, container, want string
		pod                   *corev1.Pod
	}{
		{"nodeName set by hand", "main", "qgpu-scheduler did not place it", with(func(p *corev1.Pod) { p.Annotations = nil })},
		{"no placement", "main", "is no placement", with(func(p *corev1.Pod) { p.Annotations[podshare.PlacementNote] = "{" })},
		{"another node's placement", "main", "is for node node-2", lies(pod("x", 0, 30, 5), func(p *podshare.Placement) { p.Node = "node-2" })},
		{"on another node", "main", `is on node "node-2"`, with(func(p *corev1.Pod) { p.Spec.NodeName = "node-2" })},
		{"more than it asks for", "main", "not this pod's", lies(pod("x", 0, 30, 5), func(p *podshare.Placement) { p.Containers["main"][0].Memory *= 2 })},
		{"a card that is not here", "main", "no card", lies(pod("x", 0, 30, 5), func(p *podshare.Placement) { p.Containers["main"][0].UUID = "GPU-x" })},
		{"another card's number", "main", "lies on card 1", lies(pod("x", 0, 30, 5), func(p *podshare.Placement) { p.Containers["main"][0].Index = 1 })},
		{"for a container that asks for nothing", "main", "not this pod's", lies(pod("x", 0, 30, 5), func(p *podshare.Placement) { p.Containers["helper"] = p.Containers["main"] })},
		{"a request against the rules", "main", "not valid", with(func(p *corev1.Pod) { delete(p.Spec.Containers[0].Resources.Limits, podshare.Memory) })},
		{"no such container", "other", "no container", pod("x", 0, 30, 5)},
		{"a static pod", "main", "static pod", with(func(p *corev1.Pod) { p.Annotations[corev1.MirrorPodAnnotationKey] = "x" })},
		{"more than a card has", "main", "card 0 has 16Gi", pod("x", 0, 30, 17)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newSite(t)
			s.refusedFor(s.create(tc.pod), tc.container, tc.want, false)
			if tc.name != "on another node" {
				s.event("CardRefused", tc.want)
			}
		})
	}
}

func TestUnknownPods(t *testing.T) {
	s := newSite(t)
	s.refusedFor(pod("never", 0, 30, 5), "main", "not known to the API server", false)
	old := s.create(pod("web-0", 0, 30, 5))
	s.granted(old, "main", 0)
	s.delete(old)
	young := pod("web-0", 1, 50, 8) // as a StatefulSet makes it anew
	young.UID = "another"
	s.create(young)
	s.refusedFor(old, "main", "another has its name", false)
	if g := s.granted(young, "main", 1); g.Share.Core != 50 {
		t.Errorf("the new pod inherits: %+v", g)
	}
}

// What the agent grants never adds up to more than a card has, whoever was placed there.
func TestNeverOverCapacity(t *testing.T) {
	s := newSite(t)
	a, b := s.create(pod("a", 0, 60, 8)), s.create(pod("b", 0, 60, 8))
	s.granted(a, "main", 0)
	s.refusedFor(b, "main", "its place is taken", false)
	end := s.begin("a", a, s.granted(a, "main", 0).Slices)
	s.delete(a)
	s.until("a wait for the end of a", func() error {
		if _, r := s.ask(b, "main"); r == nil || !r.Temporary {
			return errors.New("b need not wait")
		}
		return nil
	})
	end()
	s.until("granted", func() error {
		if _, r := s.ask(b, "main"); r != nil {
			return r
		}
		return nil
	})
	whole := s.create(pod("w", 0, 100, 0))
	s.refusedFor(whole, "main", "asked for as a whole", false)
}

// A restarted agent gives the places of those who run to nobody else, also to none who
// came before them.
func TestRestart(t *testing.T) {
	s := newSite(t)
	early := pod("early", 0, 60, 8)
	early.CreationTimestamp = metav1.Unix(500, 0)
	late := s.create(pod("late", 0, 60, 8))
	s.begin("late", late, s.granted(late, "main", 0).Slices)
	s.stop()
	s.create(early)
	s.start()
	s.ready()
	s.refusedFor(early, "main", "its place is taken", false)
	s.granted(late, "main", 0)
}

func TestGrantWaitsUntilEverythingIsKnown(t *testing.T) {
	s := quietSite(t)
	s.driver.err = errors.New("no driver")
	p := s.create(pod("a", 0, 30, 5))
	s.start()
	s.until("listening", func() error {
		_, err := s.client().Get("http://agent/healthz")
		return err
	})
	s.refusedFor(p, "main", "the agent", true)
	s.driver.set(s.driver.inv, nil)
	s.ready()
	s.granted(p, "main", 0)
}

func TestUnhealthyCardTakesNobody(t *testing.T) {
	s := newSite(t)
	p, q := s.create(pod("a", 0, 30, 5)), s.create(pod("b", 1, 30, 5))
	s.granted(p, "main", 0)
	s.driver.set(discovery.Inventory{Version: "550.163.01", Cards: []nvclient.Card{chip(1)},
		Lost: []discovery.LostCard{{Minor: 0, Address: chip(0).Address, Reason: "fell off the bus"}}}, nil)
	s.until("refused", func() error {
		if _, r := s.ask(p, "main"); r == nil {
			return errors.New("granted")
		}
		return nil
	})
	s.refusedFor(p, "main", "card 0 is unhealthy: fell off the bus", false)
	s.granted(q, "main", 1)
	s.event("CardUnhealthy", "card 0 (Tesla T4, "+uuid(0)+") takes no new tenants: fell off the bus")
	s.driver.set(discovery.Inventory{Version: "550.163.01", Cards: []nvclient.Card{chip(0), chip(1)}}, nil)
	s.event("CardHealthy", "card 0 (Tesla T4, "+uuid(0)+") takes tenants again")
	s.granted(p, "main", 0)
}

// A pod keeps the policy that its node had when it was placed, and a card is shared by
// one policy at a time.
func TestPolicyOfTheCard(t *testing.T) {
	s := newSite(t)
	running := s.create(pod("a", 0, 30, 5))
	s.begin("a", running, s.granted(running, "main", 0).Slices)
	placedFor := func(name string, card int, policy share.Policy) *corev1.Pod {
		p := pod(name, card, 30, 5)
		placed, err := podshare.Of(p)
		if err != nil {
			t.Fatal(err)
		}
		placed.Policy = policy
		return s.create(place(p, *placed))
	}
	s.refusedFor(placedFor("b", 0, share.FixedShare), "main", "shared by policy best-effort", false)
	if got := s.granted(placedFor("c", 1, share.FixedShare), "main", 1).Policy; got != share.FixedShare {
		t.Errorf("on an empty card the policy is %s, and was placed for %s", got, share.FixedShare)
	}
	s.refusedFor(placedFor("d", 1, share.BestEffort), "main", "shared by policy fixed-share", false)
	s.granted(running, "main", 0)
	s.granted(s.create(pod("e", 0, 30, 5)), "main", 0)
}

// Init containers take turns with what follows: together they need no more than the most.
func TestInitContainersShareTheirPlace(t *testing.T) {
	s := newSite(t)
	p := pod("a", 0, 60, 10)
	p.Spec.InitContainers = []corev1.Container{{Name: "init", Resources: p.Spec.Containers[0].Resources}}
	slice := []placement.Slice{{Index: 0, UUID: uuid(0), Core: 60, Memory: 10 * share.GiB}}
	p = s.create(place(p, podshare.Placement{Node: thisNode, Policy: share.BestEffort, Containers: placement.Assignment{"init": slice, "main": slice}}))
	s.granted(p, "init", 0)
	s.granted(p, "main", 0)
	s.refusedFor(s.create(pod("b", 0, 60, 5)), "main", "its place is taken", false)
	s.granted(s.create(pod("c", 0, 40, 6)), "main", 0)
}
