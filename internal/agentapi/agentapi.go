// Package agentapi is what a node's agent is asked, in HTTP with JSON: by the runtime
// wrapper, over a unix socket, what a container may have; by anybody, on a port, what
// tenants use. It links no Kubernetes code, since qgpu-runtime does not.
package agentapi

import (
	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/share"
)

// DefaultSocket is where an agent listens, under the state folder.
const DefaultSocket = "agent.sock"

// Paths of the agent's HTTP server.
const (
	GrantPath  = "/v1/grant" // POST a Container; 200 and a Grant, or else a Refusal
	HealthPath = "/healthz"  // 200 while the agent runs
	ReadyPath  = "/readyz"   // 200 once the agent can answer for containers
)

// Container names a container as the CRI annotates it in its OCI bundle.
type Container struct {
	PodUID       string `json:"podUID"`
	PodNamespace string `json:"podNamespace"`
	PodName      string `json:"podName"`
	Name         string `json:"name"`
}

// Grant is what the agent lets a container have. A nil Slices: the container asks
// for no share, and gets no card.
type Grant struct {
	Share  share.Share       `json:"share"`
	Policy share.Policy      `json:"policy"`
	Slices []placement.Slice `json:"slices"`
	Driver string            `json:"driver"` // "kernel" or "simulated"
	// Outsider: the container has no slices, and others of its pod have.
	Outsider bool `json:"outsider,omitempty"`
}

// Refusal is why a container gets no grant.
type Refusal struct {
	Reason string `json:"reason"` // one sentence: what is wrong and what to do
	// Temporary: the same question may be answered differently in a moment.
	Temporary bool `json:"temporary"`
}

// Error implements error.
func (r *Refusal) Error() string { return r.Reason }
