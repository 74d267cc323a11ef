package tenant

import (
	"fmt"
	"slices"
	"strings"

	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/share"
)

// defaultPolicy is how a card is shared if nobody asked for anything.
const defaultPolicy = share.BestEffort

// policyOf is the policy by which tenants share a card, and their ids; there are none if
// nobody does.
func policyOf(uuid string, tenants []Tenant) (p share.Policy, ids []string) {
	for _, t := range tenants {
		if slices.ContainsFunc(t.Placement, func(s placement.Slice) bool { return s.UUID == uuid }) {
			p = t.Policy
			ids = append(ids, t.ID)
		}
	}
	return p, ids
}

// agreeing are those of cards that are not shared by another policy than the one asked
// for, which may be empty.
func agreeing(cards []placement.Card, living []Tenant, asked share.Policy) ([]placement.Card, error) {
	if asked == "" {
		return cards, nil
	}
	var agree []placement.Card
	var others []string
	for _, c := range cards {
		if p, ids := policyOf(c.UUID, living); len(ids) > 0 && p != asked {
			others = append(others, fmt.Sprintf("card %d is shared by %s, by tenant %s", c.Index, p, strings.Join(ids, ", ")))
			continue
		}
		agree = append(agree, c)
	}
	if len(agree) == 0 && len(others) > 0 {
		return nil, fmt.Errorf("no card can be shared by %s: %s; wait for their end, or leave the policy out", asked, strings.Join(others, "; "))
	}
	return agree, nil
}

// settle is the policy of a tenant that is placed on slices and asked for one, or for none.
func settle(slices []placement.Slice, living []Tenant, asked share.Policy) (share.Policy, error) {
	for _, s := range slices {
		p, ids := policyOf(s.UUID, living)
		switch {
		case len(ids) == 0 || p == asked:
		case asked == "":
			asked = p
		default:
			return "", fmt.Errorf("the cards with room are shared by different policies, %s and %s, and a tenant has one", asked, p)
		}
	}
	if asked == "" {
		return defaultPolicy, nil
	}
	return asked, nil
}
