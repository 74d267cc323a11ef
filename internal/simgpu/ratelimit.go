package simgpu

import (
	"sync"
	"time"
)

// rateLimit lets each key through once per period, and forgets what it cannot hold.
type rateLimit struct {
	period time.Duration

	mu   sync.Mutex
	last map[string]time.Time
}

const maxRateLimited = 4096

func newRateLimit(period time.Duration) *rateLimit {
	return &rateLimit{period: period, last: map[string]time.Time{}}
}

func (r *rateLimit) allow(key string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if t, seen := r.last[key]; seen && now.Sub(t) < r.period {
		return false
	}
	if len(r.last) >= maxRateLimited {
		return false
	}
	r.last[key] = now
	return true
}
