package agent

import (
	"sync"

	"github.com/qgpu-project/qgpu/internal/agent/ledger"
)

// promises are the places of pods that the agent let start. They bridge the moment until
// a container's tenant is there to be seen; who restarts forgets them, and gives the
// places to the pods that came first, which are the same.
type promises struct {
	// mu lets one container be decided about at a time.
	mu   sync.Mutex
	kept map[string]ledger.Claim
}

// has reports whether a pod was promised its place. mu is held.
func (p *promises) has(uid string) bool {
	_, ok := p.kept[uid]
	return ok
}

// keep remembers a promise. mu is held.
func (p *promises) keep(c ledger.Claim) {
	if p.kept == nil {
		p.kept = map[string]ledger.Claim{}
	}
	p.kept[c.UID] = c
}
