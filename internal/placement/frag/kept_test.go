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

// TestRoomIsKept keeps some of the last empty and half-empty nodes for large pods, once there
// is a steady state, and nothing else from anybody.
func TestRoomIsKept(t *testing.T) {
	part, one, four, eight := request(50, 8*gib, 1000), request(100, 0, 1000), request(400, 0, 4000), request(800, 0, 8000)
	workload := []*placement.Request{part, part, four, eight}
	empty, halved := node("A", 64_000, make([]int, 8)...), node("A", 64_000, 100, 100, 100, 100, 0, 0, 0, 0)
	shared := node("A", 64_000, 50, 0, 0, 0, 0, 0, 0, 0)
	// Of 40 nodes a tenth is kept at most: 4 of each kind.
	of := func(empties, halves int, pods ...*placement.Request) *Market {
		nodes := idleNodes(empties, "A", 8)
		for range halves {
			nodes = append(nodes, halved)
		}
		for range 40 - len(nodes) {
			nodes = append(nodes, shared)
		}
		return turnedOver(market(nodes, 10, pods...), empty)
	}
	sick := node("A", 64_000, make([]int, 8)...)
	sick.Cards[3].Unhealthy = "Xid 79"
	b := idleNodes(1, "B", 8)[0]
	for _, tt := range []struct {
		name   string
		market *Market
		node   *placement.Node
		r      *placement.Request
		want   bool
	}{
		{"empty, from a part", of(4, 4, workload...), empty, part, true},
		{"empty, from a card", of(4, 4, workload...), empty, one, true},
		{"empty, from three cards", of(4, 4, workload...), empty, request(300, 0, 1000), true},
		{"empty, from half a node", of(4, 4, workload...), empty, four, false},
		{"one of the last three, from half a node", of(3, 4, workload...), empty, four, true},
		{"one of the last three, for a whole node", of(3, 4, workload...), empty, eight, false},
		{"empty, one of five", of(5, 4, workload...), empty, part, false},
		{"half empty, from a part", of(4, 4, workload...), halved, part, true},
		{"half empty, from half a node", of(4, 1, workload...), halved, four, false},
		{"half empty, one of five", of(4, 5, workload...), halved, part, false},
		{"from pods without cards", of(4, 4, workload...), empty, request(0, 0, 1000), false},
		{"with a shared card", of(4, 4, workload...), shared, part, false},
		{"of another size", of(4, 4, workload...), node("A", 64_000, 0, 0), part, false},
		{"of another model", turnedOver(market(append(idleNodes(40, "A", 8), b), 10, part, request(800, 0, 8000, "A")), b), b, part, false},
		{"with a card that is ill", of(4, 4, workload...), sick, part, false},
		{"nobody needs so much", of(4, 4, part, one), empty, part, false},
		{"nothing was given back yet", market(idleNodes(40, "A", 8), 10, workload...), empty, part, false},
		{"few nodes", turnedOver(market(idleNodes(9, "A", 8), 10, workload...), empty), empty, part, false},
	} {
		kept := tt.market.Kept()
		if got := kept.Keeps(tt.node, tt.r); got != tt.want {
			t.Errorf("%s: kept %v, want %v", tt.name, got, tt.want)
		}
		if got := kept.Any(); tt.want && !got {
			t.Errorf("%s: nothing is kept from anybody", tt.name)
		}
	}
	var none Kept
	if none.Any() || none.Keeps(empty, part) {
		t.Error("nobody's market keeps something")
	}
}

// Who needs all cards of a node is never kept from one, and shared cards from nobody.
func TestKeptIsForLargePodsOnly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawMarket(t)
		for range rapid.IntRange(0, 30).Draw(t, "changes") {
			m.Update(drawNode(t), drawNode(t))
		}
		n, r, kept := drawNode(t), drawRequest(t), m.Kept()
		if !kept.Keeps(n, r) {
			return
		}
		if wholeCards(r) >= len(n.Cards) {
			t.Errorf("%+v is kept from a request for all of it", n)
		}
		for _, c := range n.Cards {
			if c.Tenants > 0 && !c.Whole {
				t.Errorf("%+v is kept and shared", n)
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
