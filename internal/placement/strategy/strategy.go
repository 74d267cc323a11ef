// Package strategy names the scorers that placements are chosen by. It knows which
// there are and which names they go by; what they rate belongs to each.
package strategy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/placement/frag"
)

// Strategy is a way to choose among nodes, and among the cards of one node.
type Strategy struct {
	Name string
	// Node rates a node for a whole request, Card the cards of one node for one
	// container after the other.
	Node, Card placement.Scorer
	// HostCPU: the ratings depend on the CPU of node and request.
	HostCPU bool
	// Version is another whenever ratings are not to be compared with earlier ones.
	Version uint64
}

// Names of strategies.
const (
	Binpack = "binpack" // fill what is in use, keep the rest whole
	Spread  = "spread"  // use what is idle, so that tenants meet few others
	Frag    = "frag"    // leave what is free in the form in which it will be asked for
	FGD     = "fgd"     // the published way to the same end
)

// Default is the strategy where nobody asks for another.
const Default = Frag

// table is the strategies that always rate the same.
var table = []Strategy{
	{Name: Binpack, Node: usage{sign: 1}, Card: concentration{sign: 1}},
	{Name: Spread, Node: usage{sign: -1}, Card: concentration{sign: -1}},
}

// Names lists the names of all strategies.
func Names() []string {
	names := []string{Frag, FGD}
	for _, s := range table {
		names = append(names, s.Name)
	}
	return names
}

// Book is all strategies for one cluster, with what those that learn know of it. It may
// be used from several goroutines.
type Book struct{ market *frag.Market }

// NewBook makes a book that knows nothing yet.
func NewBook() *Book { return &Book{market: frag.NewMarket(frag.Tuned())} }

// Named is the strategy with a name, by what is known now. Whatever it is, it keeps
// online and offline tenants apart first.
func (b *Book) Named(name string) (Strategy, error) {
	switch name {
	case Frag:
		scorer, version := b.market.Scorer()
		return learned(name, scorer, version), nil
	case FGD:
		scorer, version := b.market.FGD()
		return learned(name, scorer, version), nil
	}
	i := slices.IndexFunc(table, func(s Strategy) bool { return s.Name == name })
	if i < 0 {
		return Strategy{}, fmt.Errorf("placement %q is unknown; the placements are %s", name, strings.Join(Names(), ", "))
	}
	s := table[i]
	s.Node, s.Card = apart{s.Node}, apart{s.Card}
	return s, nil
}

// learned is a strategy that rates nodes and cards by one scorer, which changes.
func learned(name string, s placement.Scorer, version uint64) Strategy {
	return Strategy{Name: name, Node: apart{s}, Card: apart{s}, HostCPU: true, Version: version}
}

// Kept says what room is kept now for large pods.
func (b *Book) Kept() frag.Kept { return b.market.Kept() }

// Observe shows the book a pod when it first comes.
func (b *Book) Observe(r *placement.Request) { b.market.Observe(r) }

// Declare tells the book, which knows nothing yet, what pods to expect.
func (b *Book) Declare(t frag.Target) { b.market.Declare(t, declaredPods) }

// declaredPods is how many pods seen a declaration counts for: some hundred pods later
// what was seen outweighs it.
const declaredPods = 200

// MarshalJSON writes what the book has learned of the pods to expect.
func (b *Book) MarshalJSON() ([]byte, error) { return b.market.MarshalJSON() }

// UnmarshalJSON replaces what the book has learned by what MarshalJSON wrote.
func (b *Book) UnmarshalJSON(data []byte) error { return b.market.UnmarshalJSON(data) }

// Update tells the book that a node has come, changed or gone: before or after is nil
// where there was or is none. Neither is kept.
func (b *Book) Update(before, after *placement.Node) { b.market.Update(before, after) }
