// Package inventory is the typed record of a node's cards in the cluster: one
// CardInventory object a node, named after it. The node's agent writes it; the
// scheduler and the command line read it. It knows Kubernetes' object conventions
// and nothing of drivers or placements.
package inventory

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion of the inventory.
var GroupVersion = schema.GroupVersion{Group: "qgpu.io", Version: "v1alpha1"}

// Resource is the plural name under which the API server has inventories.
var Resource = GroupVersion.WithResource("cardinventories")

// Kind of an inventory object.
const Kind = "CardInventory"

// CardInventory is the cards of one node. It is cluster-scoped, has the node's name
// and is owned by the Node, so that it goes with it.
type CardInventory struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Driver is "kernel" or "simulated", and DriverVersion as NVIDIA writes it.
	Driver        string `json:"driver"`
	DriverVersion string `json:"driverVersion"`
	// Agent is the version of the agent that wrote this.
	Agent   string  `json:"agent,omitempty"`
	Summary Summary `json:"summary"`
	Cards   []Card  `json:"cards"`
}

// Summary says of a node's cards together what kubectl get shows.
type Summary struct {
	Cards     int    `json:"cards"`
	Model     string `json:"model,omitempty"`  // of all cards, or "mixed"
	Memory    string `json:"memory,omitempty"` // of all cards
	Unhealthy int    `json:"unhealthy"`        // cards
}

// Summarize sums cards up.
func Summarize(cards []Card) Summary {
	s := Summary{Cards: len(cards)}
	var mib int64
	for i, c := range cards {
		mib += c.MemoryMiB
		switch {
		case i == 0:
			s.Model = c.Model
		case s.Model != c.Model:
			s.Model = "mixed"
		}
		if c.Unhealthy != "" {
			s.Unhealthy++
		}
	}
	if len(cards) > 0 {
		s.Memory = fmt.Sprintf("%dGi", mib>>10)
	}
	return s
}

// Card is one card of a node.
type Card struct {
	Index     int    `json:"index"` // minor number of /dev/nvidiaN
	UUID      string `json:"uuid"`  // as NVIDIA writes it: GPU-…
	Model     string `json:"model"` // as NVML names it
	Address   string `json:"address,omitempty"`
	MemoryMiB int64  `json:"memoryMiB"` // what tenants can have in all
	// Unhealthy is why nothing may be placed on the card; empty: it is healthy.
	Unhealthy string `json:"unhealthy,omitempty"`
}

// CardInventoryList is many nodes' cards.
type CardInventoryList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CardInventory `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (c *CardInventory) DeepCopyObject() runtime.Object { return c.DeepCopy() }

// DeepCopy is c with nothing shared.
func (c *CardInventory) DeepCopy() *CardInventory {
	if c == nil {
		return nil
	}
	out := *c
	c.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Cards = slices.Clone(c.Cards)
	return &out
}

// DeepCopyObject implements runtime.Object.
func (l *CardInventoryList) DeepCopyObject() runtime.Object {
	out := *l
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = make([]CardInventory, len(l.Items))
	for i := range l.Items {
		out.Items[i] = *l.Items[i].DeepCopy()
	}
	return &out
}

// Same reports whether two inventories say the same of the same node, whatever the
// API server keeps beside it.
func (c *CardInventory) Same(other *CardInventory) bool {
	return c.Name == other.Name && c.Driver == other.Driver && c.DriverVersion == other.DriverVersion && c.Agent == other.Agent && c.Summary == other.Summary &&
		slices.Equal(c.Cards, other.Cards) &&
		slices.EqualFunc(c.OwnerReferences, other.OwnerReferences, func(a, b metav1.OwnerReference) bool { return a.UID == b.UID && a.Name == b.Name })
}

// FromUnstructured reads an inventory as the dynamic client has it.
func FromUnstructured(u *unstructured.Unstructured) (*CardInventory, error) {
	if kind := u.GroupVersionKind(); kind != GroupVersion.WithKind(Kind) {
		return nil, fmt.Errorf("object %s is a %s, not a %s of %s", u.GetName(), kind, Kind, GroupVersion)
	}
	c := &CardInventory{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, c); err != nil {
		return nil, fmt.Errorf("the inventory of node %s cannot be read: %w", u.GetName(), err)
	}
	return c, nil
}

// Unstructured is c as the dynamic client takes it.
func (c *CardInventory) Unstructured() (*unstructured.Unstructured, error) {
	out := c.DeepCopy()
	out.TypeMeta = metav1.TypeMeta{APIVersion: GroupVersion.String(), Kind: Kind}
	if out.Cards == nil {
		out.Cards = []Card{} // the schema wants a list
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(out)
	if err != nil {
		return nil, fmt.Errorf("the inventory of node %s cannot be written: %w", c.Name, err)
	}
	u := &unstructured.Unstructured{Object: object}
	unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
	return u, nil
}
