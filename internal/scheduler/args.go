package scheduler

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

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
}

// readArgs reads what the scheduler's configuration says of the plugin; nil: nothing.
func readArgs(obj runtime.Object) (Args, error) {
	args := Args{NodePlacement: strategy.Default, CardPlacement: strategy.Default}
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
	_, err := args.choose(strategy.NewBook(), &corev1.Pod{}, share.Ordinary)
	return args, err
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
