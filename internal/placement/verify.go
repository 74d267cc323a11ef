package placement

import (
	"fmt"
	"slices"

	"github.com/qgpu-project/qgpu/internal/share"
)

// Verify reports why a is no placement of r on n's cards, or nil: every container of r,
// and no other, must have exactly what it asks for, on cards of n, and containers that run
// at one time must get along. What others have of the cards, and their health, does not matter.
func (n *Node) Verify(r *Request, a Assignment) error {
	running := make([]Use, len(n.Cards))
	for _, container := range r.Containers {
		lies, placed := a[container.Name]
		if !placed {
			return fmt.Errorf("container %s is not in the placement", container.Name)
		}
		cards, err := n.verify(&container, lies)
		if err != nil {
			return fmt.Errorf("container %s: %w", container.Name, err)
		}
		for i, at := range cards {
			use := n.Cards[at].use(lies[i])
			if !running[at].joins(use) {
				return fmt.Errorf("container %s: card %d cannot be taken as a whole beside another container of the pod", container.Name, lies[i].Index)
			}
			if container.Stage != Init {
				running[at].add(use)
			}
		}
	}
	for name := range a {
		if !slices.ContainsFunc(r.Containers, func(c Container) bool { return c.Name == name }) {
			return fmt.Errorf("container %s has a place and asks for no share", name)
		}
	}
	return nil
}

// verify checks how one container lies, and returns the positions of its cards.
func (n *Node) verify(k *Container, lies []Slice) ([]int, error) {
	if len(lies) != k.Share.Cards() {
		return nil, fmt.Errorf("it lies on %d card(s) and asks for %d", len(lies), k.Share.Cards())
	}
	var cards []int
	for _, slice := range lies {
		at := slices.IndexFunc(n.Cards, func(c Card) bool { return c.UUID == slice.UUID })
		switch {
		case at < 0:
			return nil, fmt.Errorf("the node has no card %s", slice.UUID)
		case slices.Contains(cards, at):
			return nil, fmt.Errorf("card %s is in its place twice", slice.UUID)
		}
		if want := n.Cards[at].slice(k); slice != want {
			return nil, fmt.Errorf("it lies on card %d with core %d and %v, and asks for core %d and %v of card %d",
				slice.Index, slice.Core, slice.Memory, want.Core, want.Memory, want.Index)
		}
		cards = append(cards, at)
	}
	return cards, nil
}

// Room reports why r does not fit on n beside what is taken when its containers lie as a
// says, or nil. Slices on cards that n does not have are left out.
func (n *Node) Room(r *Request, a Assignment) error {
	for i := range n.Cards {
		c := &n.Cards[i]
		u := c.peak(r, a)
		if u.Tenants == 0 || c.holds(u) {
			continue
		}
		switch {
		case c.Unhealthy != "":
			return fmt.Errorf("card %d is unhealthy: %s", c.Index, c.Unhealthy)
		case c.Whole:
			return fmt.Errorf("card %d is taken as a whole", c.Index)
		case u.Whole:
			return fmt.Errorf("card %d has %d tenant(s), and is asked for as a whole", c.Index, c.Tenants)
		}
		return fmt.Errorf("card %d has %v of %v, %d %% of core and %d of %d places free, and the pod takes %v, %d %% and %d",
			c.Index, c.Free(), c.Memory, share.Whole-c.Core, MaxTenants-c.Tenants, MaxTenants, u.Memory, u.Core, u.Tenants)
	}
	return nil
}
