package scheduler

import (
	"crypto/sha256"
	"iter"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/qgpu-project/qgpu/internal/inventory"
	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/podshare"
)

// models is which card models will do for pods (podshare.Models), remembered for pods
// that require the same of nodes until nodes or cards are others.
type models struct {
	asOf  uint64 // the view's relabelled that the answers hold for
	known map[[sha256.Size]byte]answer
}

type answer struct {
	models []string
	ok     bool
}

// maxAnswers bounds what is remembered. Pods of more kinds than this cost a look at all
// nodes' labels now and then: some milliseconds with thousands.
const maxAnswers = 256

func (m *models) of(pod *corev1.Pod, v *view) ([]string, bool) {
	key, requires := podshare.ModelsKey(pod)
	if !requires {
		return nil, true
	}
	if m.asOf != v.relabelled || m.known == nil || len(m.known) >= maxAnswers {
		m.asOf, m.known = v.relabelled, make(map[[sha256.Size]byte]answer)
	}
	a, known := m.known[key]
	if !known {
		a.models, a.ok = podshare.Models(pod, v.cards())
		m.known[key] = a
	}
	return a.models, a.ok
}

// learn shows the book what pod, which asks for r, is like, and reports false if that
// cannot be said before there are other nodes.
//
// The models are for the book alone. The request that is placed has none: which nodes
// will do for a pod the plugin NodeAffinity says, node by node and of this moment, and
// is asked again when a node's labels change.
func (v *view) learn(pod *corev1.Pod, r *placement.Request) bool {
	seen, ok := *r, false
	if seen.Models, ok = v.models.of(pod, v); ok {
		v.observer.book.Observe(&seen)
	}
	return ok
}

// cards is all nodes with their cards: those that the book knows of, so that both mean
// the same by all models.
func (v *view) cards() iter.Seq2[*corev1.Node, []placement.Card] {
	return func(yield func(*corev1.Node, []placement.Card) bool) {
		for _, r := range v.byID {
			if r != nil && !yield(r.object, r.Cards) {
				return
			}
		}
	}
}

// sameChoice reports whether pods that choose among nodes by labels and models find no
// difference between r, as it was looked at last, and node with inv.
func (r *record) sameChoice(node *corev1.Node, inv *inventory.CardInventory) bool {
	if r.object != node && (r.object == nil || !maps.Equal(r.object.Labels, node.Labels)) {
		return false
	}
	if r.inventory == inv {
		return true
	}
	return r.inventory != nil && inv != nil && slices.EqualFunc(r.inventory.Cards, inv.Cards, func(a, b inventory.Card) bool {
		return a.Model == b.Model
	})
}
