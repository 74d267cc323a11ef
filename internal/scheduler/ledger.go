package scheduler

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/podshare"
)

// ledger is the placements that were decided and that pods do not yet show: from
// Reserve until the pod comes back from the API server with its annotation.
type ledger struct {
	mu    sync.RWMutex
	byPod map[types.UID]*holding
}

// holding is what one pod has.
type holding struct {
	note      string // the annotation it was read from; empty: it was decided here
	request   *placement.Request
	placement *podshare.Placement
}

func newLedger() *ledger { return &ledger{byPod: make(map[types.UID]*holding)} }

func (l *ledger) put(pod types.UID, h *holding) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.byPod[pod] = h
}

func (l *ledger) get(pod types.UID) *holding {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.byPod[pod]
}

// drop forgets a pod; to forget it twice is as once.
func (l *ledger) drop(pod types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.byPod, pod)
}
