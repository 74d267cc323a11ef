// Package inventory is the typed record of a node's cards in the cluster: one
// CardInventory object a node, named after it. The node's agent writes it; the
// scheduler and the command line read it. It knows Kubernetes' object conventions
// and nothing of drivers or placements.
package inventory

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	Agent string `json:"agent,omitempty"`
	Cards []Card `json:"cards"`
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
