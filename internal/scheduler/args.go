package scheduler

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/qgpu-project/qgpu/internal/placement/frag"
	"github.com/qgpu-project/qgpu/internal/placement/strategy"
	"github.com/qgpu-project/qgpu/internal/podshare"
	"github.com/qgpu-project/qgpu/internal/share"
)

// Args is the plugin's part of a KubeSchedulerConfiguration (pluginConfig, name QGPU).
type Args struct {
	// NodePlacement and CardPlacement are how to choose a node and its cards: the
	// names of package strategy. Pods may ask otherwise by annotation.
	NodePlacement string `json:"nodePlacement,omitempty"`
	CardPlacement string `json:"cardPlacement,omitempty"`
	// NanoNames also reads the resource names of Nano GPU and elastic GPU.
	NanoNames bool `json:"nanoNames,omitempty"`
	// Seed chooses the order in which equally good nodes are taken.
	Seed uint64 `json:"seed,omitempty"`
	// KeepRoom is for how long at most cards that were given back are kept for pods that
	// need many on one node, where frag chooses nodes; 0: not at all.
	KeepRoom metav1.Duration `json:"keepRoom,omitempty"`
	// Expected is which pods are likely to come, for strategies that want to know,
	// until these have seen enough.
	Expected []ExpectedPods `json:"expected,omitempty"`
	// Learned is the ConfigMap that keeps what they have seen, as "namespace/name";
	// empty: nothing outlives the scheduler.
	Learned string `json:"learned,omitempty"`
}

// ExpectedPods is a part of the pods to come, which ask for the same.
type ExpectedPods struct {
	Cards    int     `json:"cards"`            // of one pod
	Core     int     `json:"core"`             // percent of each card; 100 without memory: the whole card
	Memory   string  `json:"memory,omitempty"` // of each card, such as 5Gi
	CPUMilli int64   `json:"cpuMilli,omitempty"`
	Weight   float64 `json:"weight"` // their part of the pods, relative to others' weights
	// Models is the card models that will do, as nvidia-smi names them; none: any.
	Models []string `json:"models,omitempty"`
}

// keepRoom is KeepRoom where nothing is said of it.
const keepRoom = 15 * time.Minute

// readArgs reads what the scheduler's configuration says of the plugin; nil: nothing.
func readArgs(obj runtime.Object) (Args, error) {
	args := Args{NodePlacement: strategy.Default, CardPlacement: strategy.Default, KeepRoom: metav1.Duration{Duration: keepRoom}}
	if obj == nil {
		return args, nil
	}
	unknown, ok := obj.(*runtime.Unknown)
	if !ok {
		return args, fmt.Errorf("the arguments of plugin %s are of type %T; write them as YAML or JSON", Name, obj)
	}
	if err := yaml.UnmarshalStrict(unknown.Raw, &args); err != nil {
		return args, fmt.Errorf("the arguments of plugin %s: %w", Name, err)
	}
	if namespace, name, _ := strings.Cut(args.Learned, "/"); args.Learned != "" && (namespace == "" || name == "") {
		return args, fmt.Errorf("the arguments of plugin %s: learned is %q; write namespace/name of a ConfigMap", Name, args.Learned)
	}
	if args.KeepRoom.Duration < 0 {
		return args, fmt.Errorf("the arguments of plugin %s: keepRoom is %v; write a time such as 15m, or 0s", Name, args.KeepRoom.Duration)
	}
	if _, err := args.target(); err != nil {
		return args, fmt.Errorf("the arguments of plugin %s: %w", Name, err)
	}
	_, err := args.choose(strategy.NewBook(), &corev1.Pod{}, share.Ordinary)
	return args, err
}

// target is the expected pods as strategies take them.
func (a Args) target() (frag.Target, error) {
	var t frag.Target
	for i, e := range a.Expected {
		if e.Cards < 1 || e.Core < 0 || e.Core > share.Whole || e.CPUMilli < 0 || !(e.Weight > 0) || math.IsInf(e.Weight, 1) {
			return nil, fmt.Errorf("expected[%d]: %+v are no pods; cards and weight are above 0, core is 0…100", i, e)
		}
		if slices.ContainsFunc(e.Models, func(m string) bool { return m == "" || strings.Contains(m, "|") }) {
			return nil, fmt.Errorf("expected[%d]: models are %q; write each name alone, as nvidia-smi does", i, e.Models)
		}
		shape := frag.Shape{CPU: e.CPUMilli, Cards: e.Cards, Core: e.Core, Models: frag.JoinModels(e.Models)}
		if e.Memory != "" {
			var err error
			if shape.Memory, err = share.ParseMemory(e.Memory); err != nil {
				return nil, fmt.Errorf("expected[%d]: %w", i, err)
			}
		}
		t = append(t, frag.Weighted{Shape: shape, Weight: e.Weight})
	}
	return t, nil
}

// choice is how the place of one pod is chosen.
type choice struct{ node, card strategy.Strategy }

// choose is how to place pod, whose containers are of class: as its annotations say,
// or else as is usual for the class. Online tenants spread, so that each meets few
// others; offline ones leave as many cards alone as they can.
func (a Args) choose(book *strategy.Book, pod *corev1.Pod, class share.Class) (c choice, err error) {
	node, card := a.NodePlacement, a.CardPlacement
	switch class {
	case share.Online:
		node, card = strategy.Spread, strategy.Spread
	case share.Offline:
		node, card = strategy.Binpack, strategy.Binpack
	}
	if c.node, err = named(book, pod, podshare.NodePlacementNote, node); err != nil {
		return c, err
	}
	c.card, err = named(book, pod, podshare.CardPlacementNote, card)
	return c, err
}

func named(book *strategy.Book, pod *corev1.Pod, note, usual string) (strategy.Strategy, error) {
	name, annotated := pod.Annotations[note]
	if !annotated {
		return book.Named(usual)
	}
	s, err := book.Named(name)
	if err != nil {
		return s, fmt.Errorf("annotation %s: %w", note, err)
	}
	return s, nil
}
