package podshare

import (
	"crypto/sha256"
	"encoding/json"
	"iter"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/qgpu-project/qgpu/internal/placement"
)

// Models is the card models that will do for pod, sorted: those on the nodes that its
// nodeSelector and required node affinity match. It is nil, which means any, if pod
// requires nothing of nodes, or nothing that excludes a model. What pod prefers, and
// which taints it tolerates, is not asked.
//
// ok is false if no node that has cards matches. Such a pod cannot be placed now, and
// on which models it could be, a node that is yet to come will tell.
func Models(pod *corev1.Pod, nodes iter.Seq2[*corev1.Node, []placement.Card]) (models []string, ok bool) {
	if !requiresNode(pod) {
		return nil, true
	}
	affinity := nodeaffinity.GetRequiredNodeAffinity(pod)
	var all []string
	for node, cards := range nodes {
		all = addModels(all, cards)
		if hasModels(models, cards) {
			continue // what the node's labels are makes no difference
		}
		// An affinity that cannot be read matches no node, as in the scheduler.
		if match, err := affinity.Match(node); err == nil && match {
			models = addModels(models, cards)
		}
	}
	if len(models) == len(all) {
		return nil, len(all) > 0
	}
	slices.Sort(models)
	return models, len(models) > 0
}

// ModelsKey is the same for pods for which Models is the same whatever the nodes are.
// It is false for those that require nothing of nodes.
func ModelsKey(pod *corev1.Pod) (key [sha256.Size]byte, requires bool) {
	if !requiresNode(pod) {
		return key, false
	}
	data, _ := json.Marshal(struct { // strings and numbers alone: that cannot fail
		Selector map[string]string
		Affinity *corev1.NodeSelector
	}{pod.Spec.NodeSelector, requiredAffinity(pod)})
	return sha256.Sum256(data), true
}

func requiresNode(pod *corev1.Pod) bool {
	return len(pod.Spec.NodeSelector) > 0 || requiredAffinity(pod) != nil
}

func requiredAffinity(pod *corev1.Pod) *corev1.NodeSelector {
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		return a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	return nil
}

func addModels(models []string, cards []placement.Card) []string {
	for i := range cards {
		if m := cards[i].Model; !slices.Contains(models, m) {
			models = append(models, m)
		}
	}
	return models
}

// hasModels reports whether cards are all of one of models.
func hasModels(models []string, cards []placement.Card) bool {
	for i := range cards {
		if !slices.Contains(models, cards[i].Model) {
			return false
		}
	}
	return true
}
