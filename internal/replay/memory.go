package replay

import (
	"hash/fnv"
	"math"
)

// cardMiB is the memory of a card by the openb trace's model names, as drivers report
// it. G2 and G3 are names behind which the trace hides models: they are taken to be
// cards of 24 GB and of 80 GB.
var cardMiB = map[string]int64{
	"T4": 15109, "P100": 16280, "V100M16": 16160, "V100M32": 32510,
	"A10": 22731, "G2": 22731, "G3": 81251,
}

// appetites are how much memory pods take for their core: as many parts of a card's
// memory as of its core, times the factor.
var appetites = []struct {
	factor float64
	part   float64 // of the pods
}{
	{0.5, 0.3}, // compute comes first
	{1, 0.4},
	{2, 0.3}, // memory comes first
}

// WithMemory is t with a demand for card memory made up, since the openb trace records
// none: each pod with a part of a card is given an appetite, drawn from a hash of its
// name and seed, and asks for core × appetite of the smallest card that will do for it
// (14 GiB if any will, which every model has), rounded up to GiB and at most all of that card. Pods of whole
// cards ask for none: they have it all. What t records already stays.
func WithMemory(t *Trace, seed int64) *Trace {
	out := &Trace{Name: t.Name + "+memory", Nodes: make([]Node, len(t.Nodes)), Pods: make([]Pod, len(t.Pods))}
	for i, n := range t.Nodes {
		if n.CardMemoryMiB == 0 {
			n.CardMemoryMiB = cardMiB[n.Model]
		}
		out.Nodes[i] = n
	}
	for i, p := range t.Pods {
		if p.Cards > 0 && p.CoreMilli < wholeMilli && p.CardMemoryMiB == 0 {
			p.CardMemoryMiB = appetite(p, seed)
		}
		out.Pods[i] = p
	}
	return out
}

const (
	gibMiB = 1024
	anyMiB = 14 * gibMiB // what every model of the trace has, in whole GiB
)

func appetite(p Pod, seed int64) int64 {
	card := int64(anyMiB)
	for i, m := range p.Models {
		if mib := cardMiB[m] / gibMiB * gibMiB; mib > 0 && (i == 0 || mib < card) {
			card = mib
		}
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(p.Name))
	for i := range 8 {
		_, _ = h.Write([]byte{byte(seed >> (8 * i))})
	}
	drawn := float64(mix(h.Sum64())>>11) / (1 << 53)
	factor := appetites[len(appetites)-1].factor
	for _, a := range appetites {
		if drawn < a.part {
			factor = a.factor
			break
		}
		drawn -= a.part
	}
	gib := math.Ceil(float64(p.CoreMilli) / wholeMilli * factor * float64(card) / gibMiB)
	return min(max(1, int64(gib))*gibMiB, card)
}

// mix spreads the bits of a hash of similar texts (the finalizer of MurmurHash3).
func mix(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
