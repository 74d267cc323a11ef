package placement

import (
	"fmt"

	"github.com/qgpu-project/qgpu/internal/share"
)

// lack is a reason why cards do not take a container.
type lack uint8

const (
	none lack = iota
	otherModel
	unhealthy
	shared // a whole card is asked for
	taken  // as a whole
	noMemory
	noCore
	crowded
	lacks
)

// lack is why c alone cannot take k, whatever else r's containers take.
func (c *Card) lack(r *Request, k *Container) lack {
	use := c.part(k)
	switch {
	case !c.serves(r.Models):
		return otherModel
	case c.Unhealthy != "":
		return unhealthy
	case c.Whole:
		return taken
	case use.Whole && c.Tenants > 0:
		return shared
	case c.Taken+use.Memory > c.Memory:
		return noMemory
	case c.Core+use.Core > share.Whole:
		return noCore
	case c.Tenants >= MaxTenants:
		return crowded
	}
	return none
}

// Explain says in a few words why r has no place on n: what most of the cards lack
// for the first container that has too few. It is meant for a Placer's no; the words
// follow "where" and are the same for nodes that lack the same.
func (n *Node) Explain(r *Request) string {
	for i := range r.Containers {
		k := &r.Containers[i]
		var counts [lacks]int
		for j := range n.Cards {
			counts[n.Cards[j].lack(r, k)]++
		}
		switch asked := k.Share.Cards(); {
		case len(n.Cards) < asked:
			return fmt.Sprintf("there are %d card(s) and %d are asked for", len(n.Cards), asked)
		case counts[none] < asked:
			return n.describe(k, counts)
		}
	}
	if n.CPU > 0 && r.CPU > n.FreeCPU {
		return "the host lacks CPU"
	}
	switch r.Together {
	case Same:
		return "no card has room for all containers together"
	case Different:
		return "too few cards have room for a container each"
	}
	return "the cards have room for each container and not for all at once"
}

func (n *Node) describe(k *Container, counts [lacks]int) string {
	most := otherModel
	for l := otherModel; l < lacks; l++ {
		if counts[l] > counts[most] {
			most = l
		}
	}
	cards, part := counts[most], k.Share.PerCard()
	switch most {
	case otherModel:
		return fmt.Sprintf("%d card(s) are of another model", cards)
	case unhealthy:
		return fmt.Sprintf("%d card(s) take nobody: %s", cards, n.firstUnhealthy())
	case taken:
		return fmt.Sprintf("%d card(s) are taken as a whole", cards)
	case shared:
		return fmt.Sprintf("%d card(s) are shared: %d idle, %d asked as a whole", cards, counts[none], k.Share.Cards())
	case noCore:
		return fmt.Sprintf("%d card(s) lack core: most free %d%%, %d%% asked", cards, share.Whole-n.leastCore(), part.Core)
	case crowded:
		return fmt.Sprintf("%d card(s) have %d tenants, the most that share a card", cards, MaxTenants)
	}
	free, memory := n.mostFree()
	return fmt.Sprintf("%d card(s) lack memory: most free %v of %v, %v asked", cards, inGiB(free), memory, part.Memory)
}

func (n *Node) firstUnhealthy() string {
	for i := range n.Cards {
		if n.Cards[i].Unhealthy != "" {
			return n.Cards[i].Unhealthy
		}
	}
	return ""
}

// inGiB rounds down, so that many nodes say the same.
func inGiB(m share.Memory) share.Memory { return m / share.GiB * share.GiB }

func (n *Node) mostFree() (free, of share.Memory) {
	for i := range n.Cards {
		if c := &n.Cards[i]; c.Unhealthy == "" && (of == 0 || c.Free() > free) {
			free, of = c.Free(), c.Memory
		}
	}
	return free, of
}

func (n *Node) leastCore() int {
	least := share.Whole
	for i := range n.Cards {
		if c := &n.Cards[i]; c.Unhealthy == "" && !c.Whole {
			least = min(least, c.Core)
		}
	}
	return least
}
