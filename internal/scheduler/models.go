package scheduler

import (
	"iter"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/qgpu-project/qgpu/internal/inventory"
	"github.com/qgpu-project/qgpu/internal/placement"
)

// modelsOf is which card models will do for pod, by what it requires of nodes; ok is
// false if no node will.
//
// They say whom a book expects and where to look first, and are no part of the request
// that is placed: which nodes will do for a pod the plugin NodeAffinity says, which is asked
// again when a node's labels change. They are found anew each time that a pod is tried, so
// that a node that has come since is not passed over.
func (v *view) modelsOf(pod *corev1.Pod) (models []string, ok bool) {
	return v.models.Of(pod, v.relabelled, v.cards())
}

// learn shows the book a pod that asks for r and will do with models.
func (v *view) learn(r *placement.Request, models []string) {
	seen := *r
	seen.Models = models
	v.observer.book.Observe(&seen)
}

// kindOf is the place in v.kinds of the models that cards are of.
func (v *view) kindOf(cards []placement.Card) int {
	var models []string
	for i := range cards {
		if m := cards[i].Model; !slices.Contains(models, m) {
			models = append(models, m)
		}
	}
	slices.Sort(models)
	kind := slices.IndexFunc(v.kinds, func(known []string) bool { return slices.Equal(known, models) })
	if kind < 0 {
		kind = len(v.kinds)
		v.kinds = append(v.kinds, models)
	}
	return kind
}

// serving says of each of v.kinds whether nodes of it have one of models; nil: all will do.
func (v *view) serving(models []string) []bool {
	if len(models) == 0 {
		return nil
	}
	serving := make([]bool, len(v.kinds))
	for i, kind := range v.kinds {
		serving[i] = slices.ContainsFunc(kind, func(m string) bool { return slices.Contains(models, m) })
	}
	return serving
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
