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
	names := []string{Frag}
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
	if name == Frag {
		scorer, version := b.market.Scorer()
		return Strategy{Name: Frag, Node: apart{scorer}, Card: apart{scorer}, HostCPU: true, Version: version}, nil
	}
	i := slices.IndexFunc(table, func(s Strategy) bool { return s.Name == name })
	if i < 0 {
		return Strategy{}, fmt.Errorf("placement %q is unknown; the placements are %s", name, strings.Join(Names(), ", "))
	}
	s := table[i]
	s.Node, s.Card = apart{s.Node}, apart{s.Card}
	return s, nil
}

// Observe shows the book a pod when it first comes.
func (b *Book) Observe(r *placement.Request) { b.market.Observe(r) }

// Update tells the book that a node has come, changed or gone: before or after is nil
// where there was or is none. Neither is kept.
func (b *Book) Update(before, after *placement.Node) { b.market.Update(before, after) }
