// Package strategy names the scorers that placements are chosen by. It knows which
// there are and which names they go by; what they rate belongs to each.
package strategy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/qgpu-project/qgpu/internal/placement"
)

// Strategy is a way to choose among nodes, and among the cards of one node.
type Strategy struct {
	Name string
	// Node rates a node for a whole request, Card the cards of one node for one
	// container after the other.
	Node, Card placement.Scorer
	// HostCPU: the ratings depend on the CPU of node and request.
	HostCPU bool
}

// Names of strategies.
const (
	Binpack = "binpack" // fill what is in use, keep the rest whole
	Spread  = "spread"  // use what is idle, so that tenants meet few others
)

// Default is the strategy where nobody asks for another.
const Default = Binpack

// table is all strategies there are.
var table = []Strategy{
	{Name: Binpack, Node: usage{sign: 1}, Card: concentration{sign: 1}},
	{Name: Spread, Node: usage{sign: -1}, Card: concentration{sign: -1}},
}

// Named is the strategy with a name. Whatever it is, it keeps online and offline
// tenants apart first.
func Named(name string) (Strategy, error) {
	i := slices.IndexFunc(table, func(s Strategy) bool { return s.Name == name })
	if i < 0 {
		return Strategy{}, fmt.Errorf("placement %q is unknown; the placements are %s", name, strings.Join(Names(), ", "))
	}
	s := table[i]
	s.Node, s.Card = apart{s.Node}, apart{s.Card}
	return s, nil
}

// Names lists the names of all strategies.
func Names() []string {
	names := make([]string, len(table))
	for i, s := range table {
		names[i] = s.Name
	}
	return names
}
