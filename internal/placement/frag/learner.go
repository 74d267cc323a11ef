package frag

import (
	"encoding/json"
	"fmt"

	"github.com/qgpu-project/qgpu/internal/placement"
)

// Learner counts the shapes of the pods it is shown. Old ones fade: when the counts
// reach memory pods, all are halved. The zero Learner is ready.
type Learner struct {
	counts map[Shape]float64
	seen   float64 // sum of counts
}

const (
	// memory is how many pods a learner keeps in mind.
	memory = 8000
	// maxShapes bounds what a learner keeps, whatever it is shown.
	maxShapes = 2048
)

// Declare begins with what somebody expects: t, as if so many pods had been seen.
func (l *Learner) Declare(t Target, pods float64) {
	var total float64
	for _, w := range t {
		total += w.Weight
	}
	for _, w := range t {
		if w.Weight > 0 && total > 0 {
			l.add(w.Shape, w.Weight/total*pods)
		}
	}
}

// Observe counts the shapes of r. A pod is to be shown once, when it first comes.
func (l *Learner) Observe(r *placement.Request) { l.observe(Shapes(r)) }

func (l *Learner) observe(shapes []Shape) {
	for _, s := range shapes {
		l.add(s, 1)
	}
}

func (l *Learner) add(s Shape, n float64) {
	if l.counts == nil {
		l.counts = map[Shape]float64{}
	}
	l.counts[s] += n
	l.seen += n
	for l.seen >= memory || len(l.counts) > maxShapes {
		l.fade()
	}
}

// fade halves all counts and forgets shapes that were seen less than about once,
// and, should there still be too many, the rarest.
func (l *Learner) fade() {
	t := fromCounts(l.counts)
	clear(l.counts)
	l.seen = 0
	for i, w := range t {
		if n := w.Weight / 2; n >= 0.25 && i < maxShapes/2 {
			l.counts[w.Shape] = n
			l.seen += n
		}
	}
}

// Target is what l expects.
func (l *Learner) Target() Target { return fromCounts(l.counts) }

// saved is a learner as JSON.
type saved struct {
	Version int    `json:"version"`
	Shapes  Target `json:"shapes"`
}

const savedVersion = 1

// MarshalJSON writes what l has learned.
func (l *Learner) MarshalJSON() ([]byte, error) {
	return json.Marshal(saved{savedVersion, l.Target()})
}

// UnmarshalJSON replaces what l has learned by what MarshalJSON wrote.
func (l *Learner) UnmarshalJSON(data []byte) error {
	var s saved
	if err := json.Unmarshal(data, &s); err != nil {
		return fmt.Errorf("read the learned workload: %w", err)
	}
	if s.Version != savedVersion {
		return fmt.Errorf("read the learned workload: version %d is not %d, the one this program writes", s.Version, savedVersion)
	}
	for _, w := range s.Shapes {
		if !(w.Weight >= 0 && w.Weight <= 2*memory) || w.CPU < 0 || w.Cards < 0 || w.Core < 0 || w.Memory < 0 {
			return fmt.Errorf("read the learned workload: %+v is no shape with a count", w)
		}
	}
	*l = Learner{}
	for _, w := range s.Shapes {
		l.add(w.Shape, w.Weight)
	}
	return nil
}
