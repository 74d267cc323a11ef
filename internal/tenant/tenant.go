// Package tenant owns the life of tenants on one machine: the registry under
// the state folder, one folder a tenant, and the control socket through which a
// tenant's mediator tells its state. It knows nothing of driver calls.
//
// A tenant's folder is all there is to remember of it. Its lock file is held by
// the tenant's mediator for as long as that lives. A folder whose lock is free, and
// whose program has ended too, is stale and is swept by whoever comes next. While the
// program lives it may hold memory of the card, and so its place stays taken.
package tenant

import (
	"time"

	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/share"
)

// DefaultDir is the state folder of a machine.
const DefaultDir = "/run/qgpu"

// Tenant is what the registry keeps of a tenant, as JSON in its folder.
type Tenant struct {
	ID        string            `json:"id"`
	Share     share.Share       `json:"share"`
	Policy    share.Policy      `json:"policy"` // of its cards
	Placement []placement.Slice `json:"placement"`
	Program   []string          `json:"program"`
	PID       int               `json:"pid"`     // of the first process
	Started   uint64            `json:"started"` // when that began, in clock ticks since boot
	UID       int               `json:"uid"`     // of the mediator, its alone
	Driver    string            `json:"driver"`
	Version   string            `json:"version,omitempty"` // of the driver
	Since     time.Time         `json:"since"`
	// Owner is the container of a pod that the tenant is, or nil.
	Owner *Owner `json:"owner,omitempty"`
	// Container: the tenant is an OCI container, and ID is the container's.
	Container bool `json:"container,omitempty"`
}

// Owner names a container of a pod.
type Owner struct {
	PodUID    string `json:"podUID"`
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	Container string `json:"container"`
}

// State is what a mediator tells of its tenant.
type State struct {
	Mediator  int         `json:"mediator"` // process id
	Cards     []CardState `json:"cards"`
	Processes []int       `json:"processes"`         // that use the card
	Calls     uint64      `json:"calls"`             // executed at the driver
	Refused   []Refusal   `json:"refused,omitempty"` // by name
}

// Used sums what a state's cards have in use.
func (s State) Used() (used, quota share.Memory) {
	for _, c := range s.Cards {
		used += c.Used
		quota += c.Quota
	}
	return used, quota
}

// CardState is a tenant's use of one card.
type CardState struct {
	UUID  string       `json:"uuid"`
	Quota share.Memory `json:"quota"`
	Used  share.Memory `json:"used"`
	// Counted is the driver's own count of what the tenant holds, without managed
	// memory, which the driver does not count.
	Counted share.Memory `json:"counted"`
	Managed share.Memory `json:"managed"` // the part of Used that is managed memory
	// Groups are the tenant's channel groups on the compute engine: without one nothing
	// of it runs. They are not counted for a tenant of whole cards.
	Groups  int      `json:"groups"`
	Compute *Compute `json:"compute,omitempty"` // nil: the driver does not tell
}

// Compute is the use of a card's compute engine over the last second, as the driver
// measures it.
type Compute struct {
	// Busy is the part of the time in which the engine worked, for anybody, in percent.
	Busy float64 `json:"busy"`
	// Own: the driver saw no process on the engine but the tenant's.
	Own bool `json:"own"`
}

// Refusal counts the refused calls of one name.
type Refusal struct {
	Call  string `json:"call"`
	Count uint64 `json:"count"`
}
