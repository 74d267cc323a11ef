package placement

import "github.com/qgpu-project/qgpu/internal/share"

// Node is a node with its cards, as placement sees it.
type Node struct {
	Name   string
	Policy share.Policy
	Model  string // of its cards; a node has cards of one model
	Cards  []Card
	// CPU and FreeCPU are the host's allocatable and unrequested CPU, in thousandths
	// of a core. Cards beside which no CPU is left serve nobody.
	CPU, FreeCPU int64
}

// Stage is when in a pod's life a container runs.
type Stage uint8

const (
	App     Stage = iota // from the end of the last init container on, with all others
	Init                 // alone but for the sidecars before it, until it ends
	Sidecar              // from its place among the init containers on, to the end (KEP-753)
)

// Container is a container with a share. Containers without one are in no request.
type Container struct {
	Name  string
	Share share.Share
	Stage Stage
}

// Request is what one pod asks of one node.
type Request struct {
	Containers []Container // in the pod's order, init containers and sidecars first
	Models     []string    // the card models that will do; none: any
	CPU        int64       // of the host, in thousandths of a core
}

// Assignment is where the containers of a request lie: slices by container name.
type Assignment map[string][]Slice

// Scorer rates what a request leaves behind of a node. It is pure and
// deterministic: nodes in equal states are rated equally, whatever their names.
type Scorer interface {
	// Score rates the step from before to after, which has r on it. Higher is better.
	// The unit is the scorer's own; scores of different scorers do not compare.
	Score(before, after *Node, r *Request) int64
}
