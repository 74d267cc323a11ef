// Package frag rates placements by what they strand: free parts of cards that none
// of the pods to be expected can use. It holds the published scorer FGD and qGPU's
// own, frag, learns from the pods it is shown which pods are to be expected, and says what
// room to keep for large ones. Like package placement it reads no device, no file and no cluster.
package frag

import (
	"cmp"
	"slices"
	"strings"

	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/share"
)

// Shape is what of a request decides where it fits. A request of several containers
// is as many shapes, the first of which has the request's CPU.
type Shape struct {
	CPU    int64        `json:"cpuMilli"`         // of the host, in thousandths of a core
	Cards  int          `json:"cards,omitempty"`  // 0: asks for no card
	Core   int          `json:"core,omitempty"`   // percent of each card; 100 without memory: the whole card
	Memory share.Memory `json:"memory,omitempty"` // of each card, in bytes
	Models string       `json:"models,omitempty"` // the card models that will do, sorted, joined by "|"; empty: any
}

// whole reports whether s takes all of its cards.
func (s Shape) whole() bool { return s.Core == share.Whole && s.Memory == 0 }

// serves reports whether cards of model will do for s.
func (s Shape) serves(model string) bool {
	if s.Models == "" {
		return true
	}
	for m := range strings.SplitSeq(s.Models, modelSeparator) {
		if m == model {
			return true
		}
	}
	return false
}

func compareShapes(a, b Shape) int {
	return cmp.Or(
		cmp.Compare(a.CPU, b.CPU), cmp.Compare(a.Cards, b.Cards), cmp.Compare(a.Core, b.Core),
		cmp.Compare(a.Memory, b.Memory), strings.Compare(a.Models, b.Models),
	)
}

// Shapes are those of r. Init containers, which end before the others begin, are left
// out.
func Shapes(r *placement.Request) []Shape { return appendShapes(nil, r) }

// JoinModels is a shape's form of a list of card models, whatever its order.
func JoinModels(models []string) string {
	if !slices.IsSorted(models) {
		models = slices.Sorted(slices.Values(models))
	}
	return strings.Join(models, modelSeparator)
}

const modelSeparator = "|"

func appendShapes(shapes []Shape, r *placement.Request) []Shape {
	joined, first := JoinModels(r.Models), len(shapes)
	for i := range r.Containers {
		c := &r.Containers[i]
		if c.Stage == placement.Init {
			continue
		}
		part := c.Share.PerCard()
		if part.Class == share.Offline {
			part.Core = 0 // it reserves none
		}
		shapes = append(shapes, Shape{Cards: c.Share.Cards(), Core: part.Core, Memory: part.Memory, Models: joined})
	}
	if len(shapes) == first {
		shapes = append(shapes, Shape{Models: joined})
	}
	shapes[first].CPU = r.CPU
	return shapes
}
