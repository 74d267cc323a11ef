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

// KnownModels remembers Models for pods that require the same of nodes. The zero
// KnownModels is ready.
type KnownModels struct {
	version uint64 // of the nodes that the answers hold for
	byKey   map[modelsKey]answer
}

type modelsKey [sha256.Size]byte

type answer struct {
	models []string
	ok     bool
}

// maxAnswers bounds what is remembered. Where pods require more different things than
// this, all nodes are looked at again now and then: some milliseconds with thousands.
const maxAnswers = 256

// Of is Models of pod and nodes. version is to be another whenever the labels of nodes, or
// the models on them, are.
func (k *KnownModels) Of(pod *corev1.Pod, version uint64, nodes iter.Seq2[*corev1.Node, []placement.Card]) (models []string, ok bool) {
	if !requiresNode(pod) {
		return nil, true
	}
	if k.byKey == nil || k.version != version {
		k.version, k.byKey = version, make(map[modelsKey]answer)
	}
	key := keyOf(pod)
	a, known := k.byKey[key]
	if !known {
		a.models, a.ok = Models(pod, nodes)
		if len(k.byKey) >= maxAnswers {
			clear(k.byKey)
		}
		k.byKey[key] = a
	}
	return a.models, a.ok
}

// keyOf is the same for pods for which Models is the same, whatever the nodes are. It is
// of one size, whatever a pod requires.
func keyOf(pod *corev1.Pod) modelsKey {
	data, _ := json.Marshal(struct { // strings alone: that cannot fail
		Selector map[string]string
		Affinity *corev1.NodeSelector
	}{pod.Spec.NodeSelector, requiredAffinity(pod)})
	return sha256.Sum256(data)
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
