// Package podshare reads shares off pods and writes placements on them: which
// resource names mean what, which annotations, which card models a pod's choice of
// nodes leaves it, and the form of the placement that travels in a Binding. It is pure
// functions over Kubernetes' types; it talks to no API server and keeps no node.
package podshare

import (
	"cmp"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/share"
)

// Names that TKE's manifests use, and those of Nano GPU.
const (
	Core       = "tke.cloud.tencent.com/qgpu-core"        // percent of a card
	Memory     = "tke.cloud.tencent.com/qgpu-memory"      // GiB
	CoreGreedy = "tke.cloud.tencent.com/qgpu-core-greedy" // percent, offline pods only

	ElasticCore   = "elasticgpu.io/gpu-core"   // percent of a card
	ElasticMemory = "elasticgpu.io/gpu-memory" // MiB
	NanoPercent   = "nano-gpu/gpu-percent"     // percent of a card and of its memory

	PolicyLabel   = "tke.cloud.tencent.com/qgpu-schedule-policy" // of nodes
	EnableLabel   = "qgpu-device-enable"                         // of nodes; value "enable"
	ClassLabel    = "tke.cloud.tencent.com/app-class"            // annotation of pods: online or offline
	PlacementNote = "qgpu.io/placement"                          // annotation of pods, written with the Binding

	NodePlacementNote  = "qgpu.io/node-placement"  // annotation of pods: how to choose the node
	CardPlacementNote  = "qgpu.io/card-placement"  // annotation of pods: how to choose its cards
	ContainerCardsNote = "qgpu.io/container-cards" // annotation of pods: same, different or any
)

// wholeDevices is the resource of NVIDIA's own device plugin, which gives cards away
// that shares do not know of.
const wholeDevices = "nvidia.com/gpu"

// family is resource names that together ask for a share.
type family struct {
	core, memory, greedy corev1.ResourceName
	unit                 share.Memory // of memory; 0: memory goes with core
	nano                 bool         // known only where Nano GPU's names are switched on
}

var families = []family{
	{core: Core, memory: Memory, greedy: CoreGreedy, unit: share.GiB},
	{core: ElasticCore, memory: ElasticMemory, unit: share.MiB, nano: true},
	{core: NanoPercent, nano: true},
}

func (f *family) names() []corev1.ResourceName {
	names := []corev1.ResourceName{f.core}
	for _, name := range []corev1.ResourceName{f.memory, f.greedy} {
		if name != "" {
			names = append(names, name)
		}
	}
	return names
}

// Reader reads shares off pods. The zero Reader knows TKE's names.
type Reader struct {
	Nano bool // knows the names of Nano GPU and elastic GPU too
}

// Resources lists the resource names that ask for shares.
func (r Reader) Resources() []corev1.ResourceName {
	var names []corev1.ResourceName
	for _, f := range families {
		if !f.nano || r.Nano {
			names = append(names, f.names()...)
		}
	}
	return names
}

// Asks reports whether any container of pod names a resource of shares.
func (r Reader) Asks(pod *corev1.Pod) bool {
	return r.anyAsks(pod.Spec.InitContainers) || r.anyAsks(pod.Spec.Containers)
}

func (r Reader) anyAsks(containers []corev1.Container) bool {
	for i := range containers {
		if r.familyOf(&containers[i]) != nil {
			return true
		}
	}
	return false
}

// Request is what pod asks for, or nil if none of its containers asks for a share.
// An error is the first rule that the pod breaks, with the nearest valid value.
func (r Reader) Request(pod *corev1.Pod) (*placement.Request, error) {
	if !r.Asks(pod) {
		return nil, nil
	}
	class, err := share.ParseClass(pod.Annotations[ClassLabel])
	if err != nil {
		return nil, fmt.Errorf("annotation %s: %w", ClassLabel, err)
	}
	request := &placement.Request{CPU: cpu(pod)}
	if request.Together, err = together(pod.Annotations[ContainerCardsNote]); err != nil {
		return nil, err
	}
	add := func(c *corev1.Container, stage placement.Stage) error {
		k, err := r.container(c, class)
		if err != nil {
			return fmt.Errorf("container %q: %w", c.Name, err)
		}
		if k != nil {
			k.Stage = stage
			request.Containers = append(request.Containers, *k)
		}
		return nil
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		stage := placement.Init
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			stage = placement.Sidecar
		}
		if err := add(c, stage); err != nil {
			return nil, err
		}
	}
	for i := range pod.Spec.Containers {
		if err := add(&pod.Spec.Containers[i], placement.App); err != nil {
			return nil, err
		}
	}
	if len(request.Containers) == 0 {
		return nil, nil
	}
	return request, evenIfSame(request)
}

func together(value string) (placement.Together, error) {
	switch value {
	case "", "any":
		return placement.Anyhow, nil
	case "same":
		return placement.Same, nil
	case "different":
		return placement.Different, nil
	}
	return 0, fmt.Errorf("annotation %s is %q; it may be same, different or any", ContainerCardsNote, value)
}

// evenIfSame refuses what no node could ever do.
func evenIfSame(r *placement.Request) error {
	first := &r.Containers[0]
	for i := range r.Containers {
		c := &r.Containers[i]
		if r.Together == placement.Same && c.Share.Cards() != first.Share.Cards() {
			return fmt.Errorf("containers %q and %q cannot lie on the same cards, since one asks for %d card(s) and the other for %d; set annotation %s to any",
				first.Name, c.Name, first.Share.Cards(), c.Share.Cards(), ContainerCardsNote)
		}
	}
	return nil
}

// cpu is what pod requests of the host's CPU, by Kubernetes' own formula.
func cpu(pod *corev1.Pod) int64 {
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	return requests.Cpu().MilliValue()
}

// familyOf is the first family that c names, with any amount but 0.
func (r Reader) familyOf(c *corev1.Container) *family {
	for i := range families {
		f := &families[i]
		if (!f.nano || r.Nano) && f.asked(c) {
			return f
		}
	}
	return nil
}

func (f *family) asked(c *corev1.Container) bool {
	return asked(c, f.core) || f.memory != "" && asked(c, f.memory) || f.greedy != "" && asked(c, f.greedy)
}

func asked(c *corev1.Container, name corev1.ResourceName) bool {
	limit, request := c.Resources.Limits[name], c.Resources.Requests[name]
	return !limit.IsZero() || !request.IsZero()
}

// container is what c asks for; nil: nothing.
func (r Reader) container(c *corev1.Container, class share.Class) (*placement.Container, error) {
	f := r.familyOf(c)
	if f == nil {
		return nil, nil
	}
	for i := range families {
		if other := &families[i]; other != f && (!other.nano || r.Nano) && other.asked(c) {
			return nil, fmt.Errorf("it asks for both %s and %s; ask by the names of one kind only", f.core, other.core)
		}
	}
	if asked(c, wholeDevices) {
		return nil, fmt.Errorf("it asks for both %s and %s; for whole cards ask for a multiple of 100 of the first", f.core, wholeDevices)
	}
	amounts := make(map[corev1.ResourceName]int64, 3)
	for _, name := range f.names() {
		n, err := amount(c, name)
		if err != nil {
			return nil, err
		}
		amounts[name] = n
	}
	s, err := f.share(amounts[f.core], amounts[f.memory], amounts[f.greedy], class)
	if err != nil {
		return nil, err
	}
	return &placement.Container{Name: c.Name, Share: s, Proportional: f.unit == 0}, nil
}

// largest bounds amounts, so that no sum of them overflows: 2^20 GiB, 10485 cards.
const largest = 1 << 20

func amount(c *corev1.Container, name corev1.ResourceName) (int64, error) {
	limit, limited := c.Resources.Limits[name]
	request, requested := c.Resources.Requests[name]
	switch {
	case requested && !limited:
		return 0, fmt.Errorf("%s is requested without a limit; set the limit to %s, too", name, request.String())
	case requested && request.Cmp(limit) != 0:
		return 0, fmt.Errorf("%s is requested as %s and limited to %s; both must be the same, or leave the request out", name, request.String(), limit.String())
	}
	n, whole := limit.AsInt64()
	if !whole || n < 0 || n > largest {
		return 0, fmt.Errorf("%s is %s; ask for a whole number, the nearest is %d", name, limit.String(), nearest(limit))
	}
	return n, nil
}

func nearest(q resource.Quantity) int64 {
	return min(max(q.Value(), 1), largest)
}

// share makes a share of three amounts, by the rules of class.
func (f *family) share(core, memory, greedy int64, class share.Class) (share.Share, error) {
	s := share.Share{Core: int(core), Memory: share.Memory(memory) * f.unit, Class: class}
	err := f.classRules(core, memory, greedy, class)
	switch {
	case err != nil:
		return s, err
	case class == share.Offline:
		s.Core = int(greedy)
		return s, nil
	case class == share.Online:
		return s, nil
	}
	check := s
	if f.unit == 0 && core%share.Whole != 0 {
		check.Memory = share.GiB // stands for the memory that goes with core
	}
	if err := check.Validate(); err != nil {
		return s, fmt.Errorf("%s and %s: %w", f.core, cmp.Or(f.memory, f.core), err)
	}
	return s, nil
}

func (f *family) classRules(core, memory, greedy int64, class share.Class) error {
	switch class {
	case share.Offline:
		switch {
		case f.greedy == "" || f.memory == "":
			return fmt.Errorf("an offline pod asks for %s and %s, not for %s", CoreGreedy, Memory, f.core)
		case core != 0:
			return fmt.Errorf("an offline pod reserves no core; ask for %s instead of %s", f.greedy, f.core)
		case greedy < 1 || greedy > share.Whole:
			return fmt.Errorf("%s is %d; ask for 1…100 percent of one card, the nearest is %d", f.greedy, greedy, min(max(greedy, 1), share.Whole))
		case memory < 1:
			return fmt.Errorf("an offline pod needs %s, too; the least is 1", f.memory)
		}
	case share.Online:
		switch {
		case core != 0 || greedy != 0:
			return fmt.Errorf("an online pod asks for memory alone, since nothing it could reserve would come before it; leave %s out", f.core)
		case memory < 1:
			return fmt.Errorf("an online pod needs %s; the least is 1", f.memory)
		}
	default:
		switch {
		case greedy != 0:
			return fmt.Errorf("%s is for offline pods; set annotation %s to offline, or ask for %s", f.greedy, ClassLabel, f.core)
		case core == 0:
			return fmt.Errorf("%s is given without %s; ask for 5…100 percent of a card in steps of 5", f.memory, f.core)
		}
	}
	return nil
}

// Terminal reports whether pod has ended for good, so that it holds nothing.
func Terminal(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

var errNoPlacement = errors.New("the pod has no annotation " + PlacementNote + ": qgpu-scheduler did not place it; let spec.schedulerName be qgpu-scheduler and do not set spec.nodeName")
