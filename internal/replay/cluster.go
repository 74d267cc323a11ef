package replay

import (
	"slices"

	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/placement/frag"
	"github.com/qgpu-project/qgpu/internal/share"
)

// cluster is the state of a run. Nodes stand in the order of their rank, which
// decides ties: the first of equals gets the pod.
type cluster struct {
	nodes   []placement.Node
	facts   []facts
	models  []string // of cards
	version []uint32 // of each node, raised at each change

	capacity, used int64 // thousandths of a card

	// before and after, where set, are called around each change of a node.
	before, after func(*placement.Node)
}

// facts is what a run knows of a node beside what placement does.
type facts struct {
	freeHostMiB int64
	free        int64        // thousandths of cards
	most        int          // the most core that is free on one card, in percent
	idle        int          // cards without tenants
	kinds       [kinds]int32 // pods by how many cards they have: see kindOf
}

// kinds of pods by their demand for cards: see Kinds.
const kinds = 6

// Kinds names the kinds of pods that runs are counted by.
func Kinds() [kinds]string { return [kinds]string{"part", "1", "2", "4", "8", "other"} }

func kindOf(p *pod) int {
	switch {
	case p.cards == 0:
		return -1
	case p.core < share.Whole:
		return 0
	case p.cards == 1:
		return 1
	case p.cards == 2:
		return 2
	case p.cards == 4:
		return 3
	case p.cards == 8:
		return 4
	}
	return 5
}

// pod is a pod of a trace, prepared.
type pod struct {
	shape   int // pods of the same shape ask for the same
	cards   int
	core    int // percent of each card
	memory  share.Memory
	cpu     int64
	hostMiB int64
	kind    int
	request placement.Request
}

func (p *pod) milli() int64 { return int64(p.cards*p.core) * milliPerPercent }

// prepare makes pods of a trace's, and says how many shapes there are.
func prepare(pods []Pod) ([]pod, int) {
	type key struct {
		shape   frag.Shape
		hostMiB int64
	}
	shapes := map[key]int{}
	out := make([]pod, len(pods))
	for i, p := range pods {
		r := p.Request()
		k := key{frag.Shapes(&r)[0], p.HostMemoryMiB}
		if _, ok := shapes[k]; !ok {
			shapes[k] = len(shapes)
		}
		out[i] = pod{
			shape: shapes[k], cards: p.Cards, core: int(p.CoreMilli / milliPerPercent),
			memory: k.shape.Memory, cpu: p.CPU, hostMiB: p.HostMemoryMiB, request: r,
		}
		out[i].kind = kindOf(&out[i])
	}
	return out, len(shapes)
}

// newCluster has the trace's nodes in the order of ranks: node i has the place rank[i].
func newCluster(nodes []Node, rank []int) *cluster {
	c := &cluster{
		nodes:   make([]placement.Node, len(nodes)),
		facts:   make([]facts, len(nodes)),
		version: make([]uint32, len(nodes)),
	}
	for i, n := range nodes {
		at := i
		if rank != nil {
			at = rank[i]
		}
		node := placement.Node{Name: n.Name, CPU: n.CPU, FreeCPU: n.CPU}
		for card := range n.Cards {
			node.Cards = append(node.Cards, placement.Card{
				Index: card, Model: n.Model, Memory: share.Memory(n.CardMemoryMiB) * share.MiB,
			})
		}
		c.nodes[at] = node
		c.facts[at] = facts{freeHostMiB: n.HostMemoryMiB}
		c.capacity += int64(n.Cards) * wholeMilli
		if n.Cards > 0 && !slices.Contains(c.models, n.Model) {
			c.models = append(c.models, n.Model)
		}
		c.changed(at)
	}
	slices.Sort(c.models)
	return c
}

// changed sums up node i after a change.
func (c *cluster) changed(i int) {
	c.version[i]++
	if c.after != nil {
		c.after(&c.nodes[i])
	}
	f := &c.facts[i]
	f.free, f.most, f.idle = 0, 0, 0
	for j := range c.nodes[i].Cards {
		card := &c.nodes[i].Cards[j]
		core := freeCore(card)
		f.free += int64(core) * milliPerPercent
		f.most = max(f.most, core)
		if card.Tenants == 0 {
			f.idle++
		}
	}
}

func freeCore(c *placement.Card) int {
	if c.Whole {
		return 0
	}
	return share.Whole - c.Core
}

// fits reports whether p fits on node i.
func (c *cluster) fits(i int, p *pod) bool {
	f, n := &c.facts[i], &c.nodes[i]
	if n.FreeCPU < p.cpu || f.freeHostMiB < p.hostMiB {
		return false
	}
	if p.cards == 0 {
		return true
	}
	if len(n.Cards) == 0 || len(p.request.Models) > 0 && !slices.Contains(p.request.Models, n.Cards[0].Model) {
		return false
	}
	if p.core == share.Whole {
		return f.idle >= p.cards
	}
	if f.most < p.core {
		return false
	}
	room := 0
	for j := range n.Cards {
		if c.roomOn(&n.Cards[j], p) {
			room++
		}
	}
	return room >= p.cards
}

func (c *cluster) roomOn(card *placement.Card, p *pod) bool {
	return !card.Whole && card.Tenants < placement.MaxTenants && card.Core+p.core <= share.Whole && p.memory <= card.Free()
}

// put places p on node i; card is where its part goes, if it asks for one.
func (c *cluster) put(i, card int, p *pod) placed {
	at := placed{node: i, pod: p}
	n := &c.nodes[i]
	if c.before != nil {
		c.before(n)
	}
	n.FreeCPU -= p.cpu
	c.facts[i].freeHostMiB -= p.hostMiB
	if p.cards > 0 {
		part := p.request.Containers[0].Share.PerCard()
		for _, j := range c.cardsFor(i, card, p) {
			slice := n.Cards[j].Quota(part)
			n.Cards[j].Take(slice)
			at.cards = append(at.cards, j)
		}
		c.facts[i].kinds[p.kind]++
		c.used += p.milli()
	}
	c.changed(i)
	return at
}

// cardsFor is the chosen card, or as many first ones as p needs.
func (c *cluster) cardsFor(i, card int, p *pod) []int {
	if p.cards == 1 && p.core < share.Whole {
		return []int{card}
	}
	var cards []int
	for j := range c.nodes[i].Cards {
		at := &c.nodes[i].Cards[j]
		ok := at.Tenants == 0
		if p.core < share.Whole {
			ok = c.roomOn(at, p)
		}
		if ok && len(cards) < p.cards {
			cards = append(cards, j)
		}
	}
	return cards
}

// placed is a pod on its cards.
type placed struct {
	pod   *pod
	node  int
	cards []int
}

// remove takes a pod away.
func (c *cluster) remove(at placed) {
	n, p := &c.nodes[at.node], at.pod
	if c.before != nil {
		c.before(n)
	}
	n.FreeCPU += p.cpu
	c.facts[at.node].freeHostMiB += p.hostMiB
	for _, j := range at.cards {
		card := &n.Cards[j]
		slice := card.Quota(p.request.Containers[0].Share.PerCard())
		card.Taken -= slice.Memory
		card.Core -= slice.Core
		card.Tenants--
		card.Whole = false
	}
	if p.cards > 0 {
		c.facts[at.node].kinds[p.kind]--
		c.used -= p.milli()
	}
	c.changed(at.node)
}

// memory is the percent of card memory that is taken.
func (c *cluster) memory() float64 {
	var taken, all share.Memory
	for i := range c.nodes {
		for j := range c.nodes[i].Cards {
			card := &c.nodes[i].Cards[j]
			taken, all = taken+card.Taken, all+card.Memory
		}
	}
	return percent(int64(taken), max(1, int64(all)))
}
