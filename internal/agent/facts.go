package agent

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/qgpu-project/qgpu/internal/agent/ledger"
	"github.com/qgpu-project/qgpu/internal/inventory"
	"github.com/qgpu-project/qgpu/internal/podshare"
	"github.com/qgpu-project/qgpu/internal/tenant"
)

// facts are what the agent sees of its node, whose cards are list. promises.mu is held.
func (a *Agent) facts(list []inventory.Card) (ledger.Facts, error) {
	tenants, err := a.registry.List()
	if err != nil {
		return ledger.Facts{}, err
	}
	f := ledger.Facts{Cards: placementCards(list), Tenants: tenants}
	watched := map[string]bool{}
	for _, object := range a.pods.GetStore().List() {
		pod := object.(*corev1.Pod)
		watched[string(pod.UID)] = true
		if claim, ok := a.claimOf(pod, list); ok {
			f.Claims = append(f.Claims, claim)
		}
	}
	a.promises.note(watched, tenants)
	f.Claims = append(f.Claims, a.promises.ofForgotten(watched)...)
	return f, nil
}

// claimOf is what pod claims of the node's cards, if it does. promises.mu is held.
func (a *Agent) claimOf(pod *corev1.Pod, list []inventory.Card) (ledger.Claim, bool) {
	if pod.Spec.NodeName != a.Node || podshare.Terminal(pod) {
		return ledger.Claim{}, false
	}
	request, err := a.reader().Request(pod)
	if err != nil || request == nil {
		return ledger.Claim{}, false
	}
	claim, err := a.claim(pod, request, list)
	claim.Promised = a.promises.has(claim.UID)
	return claim, err == nil
}

// note takes in which pods are watched and whose tenants live. mu is held.
func (p *promises) note(watched map[string]bool, tenants []tenant.Tenant) {
	for uid, kept := range p.kept {
		kept.seen = kept.seen || watched[uid]
		p.kept[uid] = kept
	}
	for _, t := range tenants {
		if t.Owner == nil {
			continue
		}
		if kept, ok := p.kept[t.Owner.PodUID]; ok {
			kept.shown = true
			p.kept[t.Owner.PodUID] = kept
		}
	}
}

// ofForgotten are the claims of pods that are gone from the API server, and of which a
// container may still be about to start. mu is held.
func (p *promises) ofForgotten(watched map[string]bool) []ledger.Claim {
	var claims []ledger.Claim
	for uid, kept := range p.kept {
		if !watched[uid] && !kept.shown {
			claim := kept.claim
			claim.Promised, claim.Ending = true, true
			claims = append(claims, claim)
		}
	}
	return claims
}
