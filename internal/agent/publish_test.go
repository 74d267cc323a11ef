package agent

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/qgpu-project/qgpu/internal/discovery"
	"github.com/qgpu-project/qgpu/internal/inventory"
	"github.com/qgpu-project/qgpu/internal/nvclient"
	"github.com/qgpu-project/qgpu/internal/podshare"
)

// amounts waits until the node has these amounts; -1 means none.
func (s *site) amounts(want map[corev1.ResourceName]int64) {
	s.t.Helper()
	s.until("advertised", func() error {
		n, err := s.api.CoreV1().Nodes().Get(s.t.Context(), thisNode, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for name, value := range want {
			for what, list := range map[string]corev1.ResourceList{"capacity": n.Status.Capacity, "allocatable": n.Status.Allocatable} {
				q, has := list[name]
				if has != (value >= 0) || has && q.Value() != value {
					return fmt.Errorf("%s: %s is %v, %v", what, name, has, q.Value())
				}
			}
		}
		return nil
	})
}

var twoCards = map[corev1.ResourceName]int64{
	podshare.Core: 200, podshare.Memory: 32, podshare.CoreGreedy: 3200, podshare.ElasticCore: -1, "cpu": 4,
}

var noCards = map[corev1.ResourceName]int64{podshare.Core: -1, podshare.Memory: -1, podshare.CoreGreedy: -1, "cpu": 4}

func withCPU(n *corev1.Node) *corev1.Node {
	amounts := corev1.ResourceList{"cpu": *resource.NewQuantity(4, resource.DecimalSI)}
	n.Status.Capacity, n.Status.Allocatable = amounts, amounts.DeepCopy()
	return n
}

func TestAdvertise(t *testing.T) {
	s := newSite(t, withCPU(node("uid-1")))
	s.amounts(twoCards)

	t.Log("a kubelet that starts sets them to zero")
	n, err := s.api.CoreV1().Nodes().Get(t.Context(), thisNode, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n = n.DeepCopy()
	n.Status.Capacity[podshare.Core], n.Status.Allocatable[podshare.Memory] = resource.Quantity{}, resource.Quantity{}
	if _, err := s.api.CoreV1().Nodes().UpdateStatus(t.Context(), n, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.amounts(twoCards)

	t.Log("the node is made anew")
	if err := s.api.CoreV1().Nodes().Delete(t.Context(), thisNode, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.api.CoreV1().Nodes().Create(t.Context(), withCPU(node("uid-2")), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.amounts(twoCards)
	s.inventory("owned by the new node", func(i *inventory.CardInventory) bool { return i.OwnerReferences[0].UID == "uid-2" })

	t.Log("an unhealthy card counts on: the kubelet would throw out pods")
	s.driver.set(discovery.Inventory{Version: "550.163.01", Cards: []nvclient.Card{chip(0)}, Lost: []discovery.LostCard{{Minor: 1, Address: chip(1).Address, Reason: "lost"}}}, nil)
	s.inventory("with a lost card", func(i *inventory.CardInventory) bool { return i.Cards[1].Unhealthy == "lost" })
	s.amounts(twoCards)

	t.Log("the node takes part no longer")
	s.label("")
	s.amounts(noCards)
	s.inventory("disabled", func(i *inventory.CardInventory) bool {
		return i.Cards[0].Unhealthy == disabled && i.Cards[1].Unhealthy == disabled
	})
	s.label(Enabled)
	s.amounts(twoCards)
}

func (s *site) label(value string) {
	s.t.Helper()
	n, err := s.api.CoreV1().Nodes().Get(s.t.Context(), thisNode, metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	n = n.DeepCopy()
	n.Labels[podshare.EnableLabel] = value
	if _, err := s.api.CoreV1().Nodes().Update(s.t.Context(), n, metav1.UpdateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// An agent that ends leaves what it advertised, unless the label is gone by which its
// DaemonSet had it there.
func TestLeave(t *testing.T) {
	s := newSite(t, withCPU(node("uid-1")))
	s.amounts(twoCards)
	s.stop()
	s.amounts(twoCards)
	s.start()
	s.ready()
	gone := make(chan struct{})
	s.api.PrependReactor("patch", "nodes", blockUntil(gone)) // the DaemonSet's controller is faster
	s.label("")
	close(gone)
	s.stop()
	s.amounts(noCards)
}

// inventory waits until what is published is so.
func (s *site) inventory(what string, so func(*inventory.CardInventory) bool) *inventory.CardInventory {
	s.t.Helper()
	var inv *inventory.CardInventory
	s.until("published "+what, func() (err error) {
		if inv, err = s.cards.Get(s.t.Context(), thisNode); err != nil {
			return err
		}
		if !so(inv) {
			return fmt.Errorf("it is %+v", inv)
		}
		return nil
	})
	return inv
}

func TestPublish(t *testing.T) {
	s := newSite(t)
	inv := s.inventory("whole", func(i *inventory.CardInventory) bool { return len(i.Cards) == 2 })
	want := inventory.Card{Index: 1, UUID: uuid(1), Model: "Tesla T4", Address: "0000:02:00.0", MemoryMiB: 16 << 10}
	if inv.Cards[1] != want || inv.Driver != discovery.Simulated || inv.DriverVersion != "550.163.01" || inv.Agent != "test" ||
		inv.Summary != (inventory.Summary{Cards: 2, Model: "Tesla T4", Memory: "32Gi"}) {
		t.Errorf("inventory %+v", inv)
	}
	if owner := inv.OwnerReferences; len(owner) != 1 || owner[0].Kind != "Node" || owner[0].Name != thisNode || owner[0].UID != "uid-1" {
		t.Errorf("owner %+v", owner)
	}

	t.Log("the driver does not answer, and does again")
	whole := s.driver.inv
	s.driver.set(whole, errors.New("the module is not loaded"))
	s.inventory("silent", func(i *inventory.CardInventory) bool {
		return len(i.Cards) == 2 && i.Cards[0].Unhealthy == "the driver cannot be asked: the module is not loaded" && i.Summary.Unhealthy == 2
	})
	s.driver.mu.Lock()
	s.driver.err = nil
	s.driver.mu.Unlock()
	s.inventory("healthy again", func(i *inventory.CardInventory) bool { return i.Summary.Unhealthy == 0 })

	t.Log("somebody deletes it")
	if err := s.cards.Delete(t.Context(), thisNode); err != nil {
		t.Fatal(err)
	}
	s.inventory("again", func(i *inventory.CardInventory) bool { return len(i.Cards) == 2 })

	t.Log("the agent begins anew while a card is lost: it knows the card from before")
	s.stop()
	s.driver.inv = discovery.Inventory{Version: "550.163.01", Cards: []nvclient.Card{chip(0)}, Lost: []discovery.LostCard{{Minor: 1, Address: chip(1).Address, Reason: "fell off the bus"}}}
	s.start()
	lost := s.inventory("with a lost card", func(i *inventory.CardInventory) bool { return i.Summary.Unhealthy == 1 })
	if want.Unhealthy = "fell off the bus"; lost.Cards[1] != want {
		t.Errorf("the lost card is %+v", lost.Cards[1])
	}
	s.ready()
	s.amounts(map[corev1.ResourceName]int64{podshare.Core: 200, podshare.Memory: 32})

	t.Log("a card that was taken out of the machine is forgotten")
	s.driver.set(discovery.Inventory{Version: "550.163.01", Cards: []nvclient.Card{chip(0)}}, nil)
	s.inventory("with one card", func(i *inventory.CardInventory) bool { return len(i.Cards) == 1 })
	s.amounts(map[corev1.ResourceName]int64{podshare.Core: 100, podshare.Memory: 16})
}

func TestLostCardThatNobodyKnows(t *testing.T) {
	s := quietSite(t)
	s.driver.inv.Cards = s.driver.inv.Cards[:1]
	s.driver.inv.Lost = []discovery.LostCard{{Minor: 1, Address: "0000:02:00.0", Reason: "fell off the bus"}}
	s.start()
	s.event("CardLost", "card 1 at 0000:02:00.0")
	s.inventory("with one card", func(i *inventory.CardInventory) bool { return len(i.Cards) == 1 })
}

func TestResourcePatch(t *testing.T) {
	n := withCPU(node("u"))
	if p := resourcePatch(n, nil); p != nil {
		t.Errorf("nothing is to be done: %s", p)
	}
	want := resources([]inventory.Card{{MemoryMiB: 15<<10 + 900}, {MemoryMiB: 80 << 10}}, true)
	if want[podshare.Memory] != 95 || want[podshare.ElasticMemory] != 95<<10+900 || want[podshare.NanoPercent] != 200 {
		t.Errorf("resources %v", want)
	}
	n.Status.Capacity[podshare.Core] = *resource.NewQuantity(200, resource.DecimalSI)
	n.Status.Allocatable[podshare.Memory] = *resource.NewQuantity(7, resource.DecimalSI)
	got := string(resourcePatch(n, map[corev1.ResourceName]int64{podshare.Core: 200}))
	if got != `{"status":{"allocatable":{"tke.cloud.tencent.com/qgpu-core":"200","tke.cloud.tencent.com/qgpu-memory":null}}}` {
		t.Errorf("patch %s", got)
	}
}
