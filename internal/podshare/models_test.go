package podshare

import (
	"fmt"
	"iter"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/qgpu-project/qgpu/internal/placement"
)

const (
	product = "nvidia.com/gpu.product"
	zone    = "topology.kubernetes.io/zone"
)

// labelled is nodes with one card of each given model.
type labelled []struct {
	labels map[string]string
	models []string
}

func (l labelled) all() iter.Seq2[*corev1.Node, []placement.Card] {
	return func(yield func(*corev1.Node, []placement.Card) bool) {
		for i, n := range l {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: string(rune('a' + i)), Labels: n.labels}}
			var cards []placement.Card
			for _, m := range n.models {
				cards = append(cards, placement.Card{Model: m})
			}
			if !yield(node, cards) {
				return
			}
		}
	}
}

// threeModels is nodes a…f: the last two have no cards, and cards of two models.
var threeModels = labelled{
	{map[string]string{product: "T4", zone: "1"}, []string{"Tesla T4", "Tesla T4"}},
	{map[string]string{product: "T4", zone: "2"}, []string{"Tesla T4"}},
	{map[string]string{product: "A100", zone: "1", "fast": ""}, []string{"NVIDIA A100"}},
	{map[string]string{product: "V100", zone: "3", "fast": ""}, []string{"Tesla V100"}},
	{map[string]string{zone: "4"}, nil},
	{map[string]string{zone: "5"}, []string{"Tesla T4", "NVIDIA A100"}},
}

func requirement(key string, op corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: key, Operator: op, Values: values}
}

func onLabels(r ...corev1.NodeSelectorRequirement) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchExpressions: r}
}

func requiring(terms ...corev1.NodeSelectorTerm) *corev1.NodeAffinity {
	return &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms}}
}

func TestModels(t *testing.T) {
	isT4 := onLabels(requirement(product, corev1.NodeSelectorOpIn, "T4"))
	tests := []struct {
		name     string
		selector map[string]string
		affinity *corev1.NodeAffinity
		want     []string
		none     bool // no node will do
	}{
		{name: "nothing is required"},
		{name: "product", selector: map[string]string{product: "A100"}, want: []string{"NVIDIA A100"}},
		{name: "In", affinity: requiring(onLabels(requirement(product, corev1.NodeSelectorOpIn, "V100", "A100", "H100"))),
			want: []string{"NVIDIA A100", "Tesla V100"}},
		{name: "NotIn", affinity: requiring(onLabels(requirement(product, corev1.NodeSelectorOpNotIn, "V100"))),
			want: []string{"NVIDIA A100", "Tesla T4"}},
		{name: "Exists", affinity: requiring(onLabels(requirement("fast", corev1.NodeSelectorOpExists))),
			want: []string{"NVIDIA A100", "Tesla V100"}},
		{name: "DoesNotExist", affinity: requiring(onLabels(requirement(product, corev1.NodeSelectorOpDoesNotExist))),
			want: []string{"NVIDIA A100", "Tesla T4"}},
		{name: "matchFields", affinity: requiring(corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{
			requirement("metadata.name", corev1.NodeSelectorOpIn, "d")}}), want: []string{"Tesla V100"}},
		{name: "one of two terms", affinity: requiring(isT4, onLabels(requirement(zone, corev1.NodeSelectorOpIn, "3"))),
			want: []string{"Tesla T4", "Tesla V100"}},
		{name: "selector and affinity", selector: map[string]string{zone: "1"}, affinity: requiring(isT4), want: []string{"Tesla T4"}},
		{name: "a zone that has some models", selector: map[string]string{zone: "1"}, want: []string{"NVIDIA A100", "Tesla T4"}},
		{name: "cards of two models on a node", selector: map[string]string{zone: "5"}, want: []string{"NVIDIA A100", "Tesla T4"}},
		{name: "nothing is excluded", affinity: requiring(onLabels(requirement(zone, corev1.NodeSelectorOpNotIn, "2", "5")))},
		{name: "what is preferred", affinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{
			{Weight: 100, Preference: isT4}}}},
		{name: "no node", selector: map[string]string{product: "H100"}, none: true},
		{name: "a node without cards", selector: map[string]string{zone: "4"}, none: true},
		{name: "no term", affinity: requiring(), none: true},
		{name: "no operator", affinity: requiring(onLabels(requirement(zone, "Like", "1"))), none: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: corev1.PodSpec{NodeSelector: tt.selector, Affinity: &corev1.Affinity{NodeAffinity: tt.affinity}}}
			got, ok := Models(pod, threeModels.all())
			if !slices.Equal(got, tt.want) || ok == tt.none {
				t.Errorf("Models = %q, %v; want %q, %v", got, ok, tt.want, !tt.none)
			}
		})
	}
}

func TestModelsOfNoCards(t *testing.T) {
	if got, ok := Models(&corev1.Pod{}, labelled{}.all()); got != nil || !ok {
		t.Errorf("a pod that requires nothing: %q, %v; want any model", got, ok)
	}
	pod := &corev1.Pod{Spec: corev1.PodSpec{NodeSelector: map[string]string{zone: "4"}}}
	if got, ok := Models(pod, labelled{threeModels[4]}.all()); got != nil || ok {
		t.Errorf("where there are no cards: %q, %v; want none", got, ok)
	}
}

// Pods have the same key if and only if they require the same of nodes.
func TestKeyOf(t *testing.T) {
	in := func(values ...string) corev1.PodSpec {
		return corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: requiring(onLabels(requirement(zone, corev1.NodeSelectorOpIn, values...)))}}
	}
	specs := []corev1.PodSpec{
		{NodeSelector: map[string]string{zone: "1"}},
		{NodeSelector: map[string]string{zone: "2"}},
		{NodeSelector: map[string]string{zone: "1", product: "T4"}},
		in("1"), in("2"), in("1", "2"), in("1,2"),
		{NodeSelector: map[string]string{zone: "1"}, Affinity: in("1").Affinity},
	}
	seen := map[modelsKey]int{}
	for i, spec := range specs {
		key := keyOf(&corev1.Pod{Spec: spec})
		spec.Containers = []corev1.Container{{Name: "other"}}
		if again := keyOf(&corev1.Pod{Spec: *spec.DeepCopy()}); again != key {
			t.Errorf("pod %d: key %x, and then %x", i, key, again)
		}
		if other, known := seen[key]; known {
			t.Errorf("pods %d and %d have the same key", i, other)
		}
		seen[key] = i
	}
}

// What is known is what would be found, nodes are looked at when they have to be, and what
// is remembered is bounded.
func TestKnownModels(t *testing.T) {
	var k KnownModels
	looks, nodes := 0, threeModels
	of := func(pod *corev1.Pod, version uint64) ([]string, bool) {
		return k.Of(pod, version, func(yield func(*corev1.Node, []placement.Card) bool) {
			looks++
			nodes.all()(yield)
		})
	}
	selecting := func(value string) *corev1.Pod {
		return &corev1.Pod{Spec: corev1.PodSpec{NodeSelector: map[string]string{product: value}}}
	}
	relabelled := slices.Clone(threeModels)
	relabelled[0].labels = map[string]string{product: "A100"}
	for i, step := range []struct {
		pod     *corev1.Pod
		nodes   labelled
		version uint64
		want    []string
		ok      bool
		looks   int
	}{
		{&corev1.Pod{}, threeModels, 0, nil, true, 0},
		{selecting("A100"), threeModels, 0, []string{"NVIDIA A100"}, true, 1},
		{selecting("A100"), threeModels, 0, []string{"NVIDIA A100"}, true, 1},
		{selecting("H100"), threeModels, 0, nil, false, 2},
		{selecting("H100"), threeModels, 0, nil, false, 2},
		{selecting("A100"), relabelled, 1, []string{"NVIDIA A100", "Tesla T4"}, true, 3},
		{selecting("A100"), relabelled, 1, []string{"NVIDIA A100", "Tesla T4"}, true, 3},
		{&corev1.Pod{}, relabelled, 2, nil, true, 3},
	} {
		nodes = step.nodes
		if got, ok := of(step.pod, step.version); !slices.Equal(got, step.want) || ok != step.ok || looks != step.looks {
			t.Errorf("step %d: %q, %v after %d looks; want %q, %v after %d", i, got, ok, looks, step.want, step.ok, step.looks)
		}
	}
	for i := range 3 * maxAnswers {
		of(selecting(fmt.Sprint(i)), 2)
		if len(k.byKey) > maxAnswers {
			t.Fatalf("%d answers are kept, and %d are the most", len(k.byKey), maxAnswers)
		}
	}
}
