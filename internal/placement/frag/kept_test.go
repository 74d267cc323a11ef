package frag

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/qgpu-project/qgpu/internal/placement"
)

// idleNodes are n empty nodes of so many cards.
func idleNodes(n int, model string, cards int) []*placement.Node {
	var nodes []*placement.Node
	for range n {
		nodes = append(nodes, node(model, 64_000, make([]int, cards)...))
	}
	return nodes
}

// turnedOver has as much taken and given back on m as suffices to be a steady state.
func turnedOver(m *Market, n *placement.Node) *Market {
	full := node(n.Cards[0].Model, 64_000, 100, 100)
	empty := node(n.Cards[0].Model, 64_000, 0, 0)
	m.Update(nil, empty)
	for range 1000 {
		m.Update(empty, full)
		m.Update(full, empty)
	}
	m.Update(empty, nil)
	return m
}

// TestEmptyNodesAreKept keeps some of the last empty nodes for pods that need whole ones, once
// there is a steady state, and nothing else from anybody.
func TestEmptyNodesAreKept(t *testing.T) {
	part, eight := request(50, 8*gib, 1000), request(800, 0, 8000)
	workload := []*placement.Request{part, part, part, eight}
	of := func(empty int) []*placement.Node {
		nodes := idleNodes(empty, "A", 8)
		for range 40 - empty {
			nodes = append(nodes, node("A", 64_000, 50, 0, 0, 0, 0, 0, 0, 0))
		}
		return nodes
	}
	// 8 of 9.5 expected cards are for pods of whole nodes, which would hold 34 of the 40
	// nodes: more than the tenth that is kept at most.
	empty, used := node("A", 64_000, make([]int, 8)...), node("A", 64_000, 50, 0, 0, 0, 0, 0, 0, 0)
	sick := node("A", 64_000, make([]int, 8)...)
	sick.Cards[3].Unhealthy = "Xid 79"
	for _, tt := range []struct {
		name   string
		market *Market
		node   *placement.Node
		r      *placement.Request
		want   bool
	}{
		{"one of the last four", turnedOver(market(of(4), 10, workload...), empty), empty, part, true},
		{"four whole cards of eight", turnedOver(market(of(4), 10, workload...), empty), empty, request(400, 0, 1000), true},
		{"for the one it is kept for", turnedOver(market(of(4), 10, workload...), empty), empty, eight, false},
		{"one of five", turnedOver(market(of(5), 10, workload...), empty), empty, part, false},
		{"from pods without cards", turnedOver(market(of(4), 10, workload...), empty), empty, request(0, 0, 1000), false},
		{"a node in use", turnedOver(market(of(4), 10, workload...), empty), used, part, false},
		{"a node of another size", turnedOver(market(of(4), 10, workload...), empty), node("A", 64_000, 0, 0), part, false},
		{"a node of another model", turnedOver(market(append(of(4), idleNodes(1, "B", 8)...), 10, part, request(800, 0, 8000, "A")), empty), idleNodes(1, "B", 8)[0], part, false},
		{"with a card that is ill", turnedOver(market(of(4), 10, workload...), empty), sick, part, false},
		{"nobody needs whole nodes", turnedOver(market(of(4), 10, part), empty), empty, part, false},
		{"nothing was given back yet", market(of(4), 10, workload...), empty, part, false},
		{"few nodes", turnedOver(market(idleNodes(5, "A", 8), 10, workload...), empty), empty, part, false},
	} {
		kept := tt.market.Kept()
		if got := kept.Keeps(tt.node, tt.r); got != tt.want {
			t.Errorf("%s: kept %v, want %v", tt.name, got, tt.want)
		}
	}
	var none Kept
	if none.Any() || none.Keeps(empty, part) {
		t.Error("nobody's market keeps something")
	}
}

// Who needs all cards of a node is never kept from one, and a node in use from nobody.
func TestKeptIsForWholeNodesOnly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawMarket(t)
		for range rapid.IntRange(0, 30).Draw(t, "changes") {
			m.Update(drawNode(t), drawNode(t))
		}
		n, r, kept := drawNode(t), drawRequest(t), m.Kept()
		if !kept.Keeps(n, r) {
			return
		}
		if r.Containers[0].Share.Cards() >= len(n.Cards) {
			t.Errorf("%+v is kept from a request for all of it", n)
		}
		for _, c := range n.Cards {
			if c.Tenants > 0 {
				t.Errorf("%+v is kept and in use", n)
			}
		}
	})
}

func TestTurnover(t *testing.T) {
	const cards = 100
	for _, tt := range []struct {
		name    string
		changes func(*turnover)
		from    float64
		to      float64
	}{
		{"nothing", func(*turnover) {}, 0, 0},
		{"filling up", func(o *turnover) { o.add(90_000, cards) }, 0, 0},
		{"one pod came and went", func(o *turnover) { o.add(1000, cards); o.add(-1000, cards) }, 0.05, 0.1},
		{"a steady state after that", func(o *turnover) {
			o.add(90_000, cards)
			for range 200 {
				o.add(1000, cards)
				o.add(-1000, cards)
			}
		}, 0.95, 1},
		{"running empty", func(o *turnover) {
			for range 90 {
				o.add(-1000, cards)
			}
		}, 1, 1},
	} {
		var o turnover
		tt.changes(&o)
		if got := o.part(cards); got < tt.from || got > tt.to {
			t.Errorf("%s: %v, want %v to %v", tt.name, got, tt.from, tt.to)
		}
	}
	if n := used(node("A", 0, 100, 35, 0)); n != 1350 {
		t.Errorf("%d thousandths are in use, want 1350", n)
	}
}
