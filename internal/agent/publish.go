package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/qgpu-project/qgpu/internal/inventory"
	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/podshare"
	"github.com/qgpu-project/qgpu/internal/share"
)

// Enabled is the value of podshare.EnableLabel on nodes that take part.
const Enabled = "enable"

// disabled is why nothing may be placed on the cards of a node without the label.
const disabled = "the node is not labelled " + podshare.EnableLabel + "=" + Enabled

func enabled(n *corev1.Node) bool { return n.Labels[podshare.EnableLabel] == Enabled }

// publishCards makes the node's inventory say what the cards are.
func (a *Agent) publishCards(ctx context.Context) error {
	if !a.cards.isSeeded() {
		was, err := a.Inventories.Get(ctx, a.Node)
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("read what was published before: %w", err)
		}
		a.cards.seed(was)
	}
	node := a.ownNode()
	if node == nil {
		return nil // its event will come
	}
	want, known := a.inventory(node)
	if !known {
		return nil
	}
	if object, exists, err := a.inventories.GetStore().GetByKey(a.Node); err == nil && exists && want.Same(object.(*inventory.CardInventory)) {
		return nil
	}
	if _, err := a.Inventories.Apply(ctx, want, Name); err != nil {
		return err
	}
	a.Log.Info("published the node's cards", "cards", len(want.Cards))
	return nil
}

// inventory is what should be published of the node's cards, if they are known.
func (a *Agent) inventory(node *corev1.Node) (*inventory.CardInventory, bool) {
	driver, version, list := a.cards.snapshot()
	if driver == "" {
		return nil, false
	}
	if !enabled(node) {
		for i := range list {
			list[i].Unhealthy = disabled
		}
	}
	return &inventory.CardInventory{
		ObjectMeta: metav1.ObjectMeta{
			Name:            a.Node,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}},
		},
		Driver: driver, DriverVersion: version, Agent: a.Version, Summary: inventory.Summarize(list), Cards: list,
	}, true
}

// greedyPerCard is what a card offers of core to offline pods, in percent: every tenant
// that it takes may ask for all of it, since their core reserves nothing.
const greedyPerCard = share.Whole * placement.MaxTenants

// resources are what cards add up to. Cards that are not healthy count: the kubelet
// compares these sums with the pods that it has whenever it starts, and would throw out
// pods whose card is only ill. That nothing new comes to such a card is the scheduler's part.
func resources(list []inventory.Card, nano bool) map[corev1.ResourceName]int64 {
	var mib, gib int64
	for _, c := range list {
		mib += c.MemoryMiB
		gib += c.MemoryMiB >> 10 // a share lies on one card: the rest of a GiB is nobody's
	}
	core := int64(len(list)) * share.Whole
	out := map[corev1.ResourceName]int64{
		podshare.Core:       core,
		podshare.Memory:     gib,
		podshare.CoreGreedy: int64(len(list)) * greedyPerCard,
	}
	if nano {
		maps.Copy(out, map[corev1.ResourceName]int64{
			podshare.ElasticCore: core, podshare.ElasticMemory: mib, podshare.NanoPercent: core,
		})
	}
	return out
}

// advertised are all names that an agent may put on a node.
func advertised() []corev1.ResourceName {
	return []corev1.ResourceName{
		podshare.Core, podshare.Memory, podshare.CoreGreedy,
		podshare.ElasticCore, podshare.ElasticMemory, podshare.NanoPercent,
	}
}

// advertiseResources makes the node's status say what its cards add up to.
func (a *Agent) advertiseResources(ctx context.Context) error {
	node := a.ownNode()
	if node == nil {
		return nil
	}
	want := map[corev1.ResourceName]int64{}
	if enabled(node) {
		if !a.cards.ready() {
			return nil
		}
		_, _, list := a.cards.snapshot()
		want = resources(list, a.NanoNames)
	}
	patch := resourcePatch(node, want)
	if patch == nil {
		return nil
	}
	if err := a.patchStatus(ctx, patch); err != nil {
		return err
	}
	a.Log.Info("advertised the node's resources", "patch", string(patch))
	return nil
}

func (a *Agent) patchStatus(ctx context.Context, patch []byte) error {
	_, err := a.Client.CoreV1().Nodes().Patch(ctx, a.Node, types.StrategicMergePatchType, patch, metav1.PatchOptions{FieldManager: Name}, "status")
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("write the node's resources: %w", err)
	}
	return nil
}

// resourcePatch is a merge patch that makes node's capacity and allocatable say want of
// all names that are the agent's, or nil if they do. The kubelet copies allocatable from
// capacity, so both are written. A resource that is not wanted is taken away and not set
// to zero: a kubelet that starts admits running pods again, and skips what its node lacks.
func resourcePatch(node *corev1.Node, want map[corev1.ResourceName]int64) []byte {
	changes := func(have corev1.ResourceList) map[string]any {
		out := map[string]any{}
		for _, name := range advertised() {
			quantity, has := have[name]
			value, wanted := want[name]
			switch {
			case wanted && (!has || quantity.Cmp(*resource.NewQuantity(value, resource.DecimalSI)) != 0):
				out[string(name)] = strconv.FormatInt(value, 10)
			case !wanted && has:
				out[string(name)] = nil
			}
		}
		return out
	}
	status := map[string]any{}
	if c := changes(node.Status.Capacity); len(c) > 0 {
		status["capacity"] = c
	}
	if c := changes(node.Status.Allocatable); len(c) > 0 {
		status["allocatable"] = c
	}
	if len(status) == 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		panic(err) // strings and nil
	}
	return patch
}

// leave withdraws what the agent advertised if it ends because the node is no longer
// enabled: the label that is gone is the one that its DaemonSet selects nodes by.
func (a *Agent) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for {
		err := a.withdraw(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			a.Log.Error("the agent could not withdraw the node's resources", "err", err)
			return
		case <-time.After(firstRetry):
		}
	}
}

// withdraw takes back what was advertised of a node that is not enabled.
func (a *Agent) withdraw(ctx context.Context) error {
	node, err := a.Client.CoreV1().Nodes().Get(ctx, a.Node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil || enabled(node) {
		return err
	}
	if patch := resourcePatch(node, nil); patch != nil {
		if err := a.patchStatus(ctx, patch); err != nil {
			return err
		}
	}
	if want, known := a.inventory(node); known {
		_, err = a.Inventories.Apply(ctx, want, Name)
	}
	return err
}
