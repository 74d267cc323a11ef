package placement

import "github.com/qgpu-project/qgpu/internal/share"

// Node is a node with its cards, as placement sees it.
type Node struct {
	Name   string
	Policy share.Policy
	Cards  []Card
	// CPU and FreeCPU are the host's allocatable and unrequested CPU, in thousandths
	// of a core. A CPU of 0 is unknown, and then nothing fails for lack of it.
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
	// Proportional: of each card's memory as many percent as of its core, in whole
	// MiB. Share.Memory is 0 then.
	Proportional bool
	Stage        Stage
}

// asks reports whether a and b ask the same, so that they could be swapped.
func (a *Container) asks(b *Container) bool {
	return a.Share == b.Share && a.Proportional == b.Proportional && a.Stage == b.Stage
}

// Together says how the containers of one request lie to each other.
type Together uint8

const (
	Anyhow    Together = iota // on the same cards or on different ones
	Same                      // all on the same cards
	Different                 // no two that run at one time on one card
)

// Request is what one pod asks of one node.
type Request struct {
	Containers []Container // in the pod's order, init containers and sidecars first
	Together   Together
	Models     []string // the card models that will do; none: any
	CPU        int64    // of the host, in thousandths of a core
}

// Assignment is where the containers of a request lie: slices by container name.
type Assignment map[string][]Slice

// Scorer rates what a request leaves behind of a node. It is pure and
// deterministic: nodes in equal states are rated equally, whatever their names.
type Scorer interface {
	// Score rates the step from before to after, which has r on it, or while r is
	// being placed a part of r. Higher is better. It may keep neither node.
	// The unit is the scorer's own; scores of different scorers do not compare.
	Score(before, after *Node, r *Request) int64
}

// Load is the most that one request takes of one card at any moment.
type Load struct {
	Index int
	UUID  string
	Use
}

// Loads is what a takes of n's cards when r's containers lie so: for each card the
// peak over the stages of the pod's life. Containers that run at one time add up,
// and init containers take turns (Kubernetes' rule for resources, per card).
// Slices on cards that n does not have are left out.
func (n *Node) Loads(r *Request, a Assignment) []Load {
	var loads []Load
	for i := range n.Cards {
		c := &n.Cards[i]
		if u := c.peak(r, a); u.Tenants > 0 {
			loads = append(loads, Load{Index: c.Index, UUID: c.UUID, Use: u})
		}
	}
	return loads
}

func (c *Card) peak(r *Request, a Assignment) Use {
	var running, most Use
	for _, container := range r.Containers {
		for _, slice := range a[container.Name] {
			if slice.UUID != c.UUID {
				continue
			}
			begun := running
			begun.add(c.use(slice))
			if container.Stage != Init {
				running = begun
			}
			most = peak(most, begun)
		}
	}
	return most
}

// Take adds r, whose containers lie as a says, to what is taken of n. It does not
// ask whether there is room: a placement that was made is a fact.
func (n *Node) Take(r *Request, a Assignment) {
	for i := range n.Cards {
		n.Cards[i].add(n.Cards[i].peak(r, a))
	}
}

// Free takes back what Take did with the same r and a.
func (n *Node) Free(r *Request, a Assignment) {
	for i := range n.Cards {
		n.Cards[i].remove(n.Cards[i].peak(r, a))
	}
}
