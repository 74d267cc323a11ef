// Package ledger accounts for the cards of one node. Its account is a function of what is
// seen - the tenants that live, and the pods that the API server has on the node - so
// that nothing needs to be written down and nothing is lost when the agent ends. It is
// no judge of whether a pod's placement is its own: it only adds up.
package ledger

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/share"
	"github.com/qgpu-project/qgpu/internal/tenant"
)

// Claim is the place of one pod on the node's cards.
type Claim struct {
	UID     string    // of the pod
	Pod     string    // namespace/name, for messages
	Since   time.Time // when the pod was put on the node
	Request *placement.Request
	Lies    placement.Assignment
	Policy  share.Policy
	// Promised: the agent told a container of the pod that it may start.
	Promised bool
	// Ending: the pod is being deleted or has ended, so that its room may come soon.
	Ending bool
}

// Facts are what is seen of a node.
type Facts struct {
	Cards   []placement.Card // with nothing taken
	Tenants []tenant.Tenant  // that live
	Claims  []Claim          // in any order; one a pod
}

// Account says who has what of a node.
type Account struct {
	Node    placement.Node   // with everything taken
	refused map[string]error // by pod
	known   map[string]bool  // pods with a claim
}

// ErrEnding is in the reason of a refusal that the end of another pod, which has
// begun, may lift.
var ErrEnding = errors.New("a pod that ends has its place still")

// errNoClaim is for pods that have no claim.
var errNoClaim = errors.New("the pod has no place on this node's cards")

// Refusal is why the pod may not have its place, or nil.
func (a *Account) Refusal(uid string) error {
	if !a.known[uid] {
		return errNoClaim
	}
	return a.refused[uid]
}

// Settle adds up what is seen. Tenants that live have what they have, also too much. Then
// come pods that were promised their place, then all others, who came first first; a pod
// whose place another has is refused, and takes nothing.
func Settle(f Facts) *Account {
	a := settle(f)
	if len(a.refused) == 0 {
		return a
	}
	later := settle(withoutEnding(f))
	for uid, reason := range a.refused {
		if later.known[uid] && later.refused[uid] == nil {
			a.refused[uid] = fmt.Errorf("%w; %w", reason, ErrEnding)
		}
	}
	return a
}

func settle(f Facts) *Account {
	s := sheet{
		Account:  Account{refused: map[string]error{}, known: map[string]bool{}},
		policies: map[string]share.Policy{},
	}
	s.Node.Cards = slices.Clone(f.Cards)
	for i := range s.Node.Cards {
		s.Node.Cards[i].Unhealthy = "" // a lost card's memory is still taken
	}
	for _, c := range f.Claims {
		s.known[c.UID] = true
	}
	running := map[string][]tenant.Tenant{} // by pod
	for _, t := range f.Tenants {
		if t.Owner != nil && s.known[t.Owner.PodUID] {
			running[t.Owner.PodUID] = append(running[t.Owner.PodUID], t)
		} else { // it is no pod's, or its pod is gone and it is not
			s.takeTenant(t)
		}
	}
	claims := slices.Clone(f.Claims)
	slices.SortFunc(claims, func(c, d Claim) int {
		return cmp.Or(first(len(running[c.UID]) > 0, len(running[d.UID]) > 0), first(c.Promised, d.Promised),
			c.Since.Compare(d.Since), cmp.Compare(c.UID, d.UID))
	})
	for _, c := range claims {
		s.take(c, running[c.UID])
	}
	return &s.Account
}

// first orders what is so before what is not.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// withoutEnding is f as it will be when everything has ended that is about to.
func withoutEnding(f Facts) Facts {
	stays := map[string]bool{}
	out := Facts{Cards: f.Cards}
	for _, c := range f.Claims {
		if !c.Ending {
			stays[c.UID] = true
			out.Claims = append(out.Claims, c)
		}
	}
	for _, t := range f.Tenants {
		if t.Owner == nil || stays[t.Owner.PodUID] {
			out.Tenants = append(out.Tenants, t)
		}
	}
	return out
}

// sheet is an account that is being added up.
type sheet struct {
	Account
	policies map[string]share.Policy // of cards in use, by UUID
}

// take enters one pod.
func (s *sheet) take(c Claim, running []tenant.Tenant) {
	if len(running) == 0 {
		if err := s.refusal(c); err != nil {
			s.refused[c.UID] = err
			return
		}
	}
	placed := s.Node.Loads(c.Request, c.Lies)
	s.Node.Take(c.Request, c.Lies)
	s.agree(placed, c.Policy)
	s.takeMore(placed, running)
}

func (s *sheet) refusal(c Claim) error {
	if err := s.Node.Room(c.Request, c.Lies); err != nil {
		return err
	}
	for _, load := range s.Node.Loads(c.Request, c.Lies) {
		if p, used := s.policies[load.UUID]; used && p != c.Policy {
			return fmt.Errorf("card %d is shared by policy %s, and the pod was placed for %s", load.Index, p, c.Policy)
		}
	}
	return nil
}

func (s *sheet) agree(loads []placement.Load, p share.Policy) {
	for _, load := range loads {
		if _, used := s.policies[load.UUID]; !used {
			s.policies[load.UUID] = p
		}
	}
}

// takeTenant enters a tenant that no claim covers.
func (s *sheet) takeTenant(t tenant.Tenant) {
	for _, slice := range t.Placement {
		at := slices.IndexFunc(s.Node.Cards, func(c placement.Card) bool { return c.UUID == slice.UUID })
		if at < 0 {
			continue
		}
		s.Node.Cards[at].Take(slice)
		if _, used := s.policies[slice.UUID]; !used {
			s.policies[slice.UUID] = t.Policy
		}
	}
}

// takeMore enters what a pod's tenants have beyond its placement: a share that was
// resized, or a container that has begun anew before its last run was cleared away.
func (s *sheet) takeMore(placed []placement.Load, running []tenant.Tenant) {
	have := slices.Clone(s.Node.Cards)
	for i := range have {
		c := &have[i]
		*c = placement.Card{Index: c.Index, UUID: c.UUID, Memory: c.Memory}
		for _, t := range running {
			for _, slice := range t.Placement {
				if slice.UUID == c.UUID {
					c.Take(slice)
				}
			}
		}
		var load placement.Load
		if at := slices.IndexFunc(placed, func(l placement.Load) bool { return l.UUID == c.UUID }); at >= 0 {
			load = placed[at]
		}
		card := &s.Node.Cards[i]
		card.Taken += max(0, c.Taken-load.Memory)
		card.Core += max(0, c.Core-load.Core)
		card.Tenants += max(0, c.Tenants-load.Tenants)
		card.Online += max(0, c.Online-load.Online)
		card.Offline += max(0, c.Offline-load.Offline)
		card.Whole = card.Whole || c.Whole
	}
}
