package frag

import "slices"

// Target is the pods to be expected, against which fragmentation is measured.
type Target []Weighted

// Weighted is a shape with its part of the pods; a target's weights need no sum.
type Weighted struct {
	Shape
	Weight float64 `json:"weight"`
}

// NewTarget counts shapes.
func NewTarget(shapes []Shape) Target {
	counts := map[Shape]float64{}
	for _, s := range shapes {
		counts[s]++
	}
	return fromCounts(counts)
}

func fromCounts(counts map[Shape]float64) Target {
	t := make(Target, 0, len(counts))
	for s, n := range counts {
		t = append(t, Weighted{s, n})
	}
	t.sort()
	return t
}

// sort orders t by weight, the heaviest first, and equal weights by shape, so that
// everything made from t is the same each time.
func (t Target) sort() {
	slices.SortFunc(t, func(a, b Weighted) int {
		switch {
		case a.Weight > b.Weight:
			return -1
		case a.Weight < b.Weight:
			return 1
		}
		return compareShapes(a.Shape, b.Shape)
	})
}

// Popular is the heaviest shapes of t that make up part of its weight, as the paper
// on FGD takes its target workload.
func (t Target) Popular(part float64) Target {
	var total float64
	for _, w := range t {
		total += w.Weight
	}
	popular := slices.Clone(t)
	popular.sort()
	var sum float64
	for i, w := range popular {
		if sum >= part*total {
			return popular[:i]
		}
		sum += w.Weight
	}
	return popular
}
