package agent

import (
	"sync"
	"time"

	"github.com/qgpu-project/qgpu/internal/agent/ledger"
)

// promises are the places of pods that the agent let start. They bridge the moment until
// a container's tenant is there to be seen; who restarts forgets them, and gives the
// places to the pods that came first, which are the same.
type promises struct {
	// mu lets one container be decided about at a time.
	mu   sync.Mutex
	kept map[string]promise // by pod
}

type promise struct {
	claim ledger.Claim
	made  time.Time
	seen  bool // the pod was seen among those that are watched
	shown bool // a tenant of the pod was seen
}

// patience is how long a promised pod may take to appear among those that are watched.
const patience = 3 * time.Second

// gone reports whether the pod of p, which is not among those watched, was there before.
func (p promise) gone() bool { return p.seen || time.Since(p.made) > patience }

// has reports whether a pod was promised its place. mu is held.
func (p *promises) has(uid string) bool {
	_, ok := p.kept[uid]
	return ok
}

// keep remembers a promise. mu is held.
func (p *promises) keep(c ledger.Claim) {
	if p.kept == nil {
		p.kept = map[string]promise{}
	}
	kept, again := p.kept[c.UID]
	if !again {
		kept.made = time.Now()
	}
	kept.claim = c
	p.kept[c.UID] = kept
}
