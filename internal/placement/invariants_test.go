package placement

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/qgpu-project/qgpu/internal/share"
)

// TestOrderDoesNotMatter: whether a pod fits does not hang on the order or the names of
// its containers, as long as init containers and sidecars keep theirs.
func TestOrderDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, r := nodeGen(4).Draw(t, "node"), requestGen(4).Draw(t, "request")
		apps := slices.IndexFunc(r.Containers, func(c Container) bool { return c.Stage == App })
		if apps < 0 {
			return
		}
		other := *r
		other.Containers = slices.Clone(r.Containers)
		copy(other.Containers[apps:], rapid.Permutation(r.Containers[apps:]).Draw(t, "apps"))
		for i := range other.Containers {
			other.Containers[i].Name = fmt.Sprint("other", i)
		}
		shuffled := cloneNode(n)
		shuffled.Cards = rapid.Permutation(n.Cards).Draw(t, "cards")
		var p Placer
		if a, b := p.Place(n, r, nil), p.Place(shuffled, &other, byIndex{1}); a != b {
			t.Fatalf("a request fits: %v, and in another order: %v", a, b)
		}
	})
}

// TestMonotone: what asks for less fits wherever more does, and what leaves makes no
// room smaller.
func TestMonotone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, r := nodeGen(4).Draw(t, "node"), requestGen(3).Draw(t, "request")
		var p Placer
		if len(r.Containers) == 0 || !p.Place(n, r, nil) {
			return
		}
		less := *r
		i := rapid.IntRange(0, len(r.Containers)-1).Draw(t, "which")
		if rapid.Bool().Draw(t, "remove") {
			less.Containers = slices.Delete(slices.Clone(r.Containers), i, i+1)
		} else if s := &r.Containers[i].Share; s.Class == share.Ordinary && s.Core%100 != 0 {
			less.Containers = slices.Clone(r.Containers)
			less.Containers[i].Share.Core -= 5 * s.Cards() * rapid.IntRange(0, s.Core/s.Cards()/5-1).Draw(t, "core")
			if less.Containers[i].Share.Cards() != s.Cards() {
				return
			}
		}
		if !p.Place(n, &less, nil) {
			t.Fatalf("%+v fits, and %+v does not", r, less)
		}
		emptier := cloneNode(n)
		c := &emptier.Cards[rapid.IntRange(0, len(n.Cards)-1).Draw(t, "card")]
		*c = Card{Index: c.Index, UUID: c.UUID, Model: c.Model, Memory: c.Memory}
		if !p.Place(emptier, r, nil) {
			t.Fatalf("%+v does not fit after a card was freed", r)
		}
	})
}

// TestProportional: percent of a card that stand for memory, too, fill cards of any size.
func TestProportional(t *testing.T) {
	n := &Node{Cards: []Card{{Index: 0, UUID: "a", Memory: 15 * share.GiB}, {Index: 1, UUID: "b", Memory: 80 * share.GiB}}}
	r := &Request{Containers: []Container{{Name: "c", Share: share.Share{Core: 20}, Proportional: true}}}
	var p Placer
	for i := range 10 {
		if !p.Place(n, r, nil) {
			t.Fatalf("tenant %d of 10 does not fit", i)
		}
		n.Take(r, p.Assignment())
	}
	if p.Place(n, r, nil) || n.Cards[0].Taken != 15*share.GiB || n.Cards[1].Taken != 80*share.GiB {
		t.Errorf("ten fifths of two cards leave %+v", n.Cards)
	}
	whole := &Request{Containers: []Container{{Name: "c", Share: share.Share{Core: 100}, Proportional: true}}}
	empty := &Node{Cards: []Card{{UUID: "a", Memory: 15*share.GiB + 1}}}
	if !p.Place(empty, whole, nil) || !p.After().Cards[0].Whole {
		t.Error("100 percent are not a whole card")
	}
}

// TestHostCPU: a node without CPU for the request serves nobody, and one whose CPU is
// unknown does.
func TestHostCPU(t *testing.T) {
	r := &Request{CPU: 2000, Containers: []Container{{Name: "c", Share: share.Share{Core: 10, Memory: share.GiB}}}}
	n := &Node{CPU: 4000, FreeCPU: 1000, Cards: []Card{{UUID: "a", Memory: t4}}}
	var p Placer
	if p.Place(n, r, nil) || n.Explain(r) != "the host lacks CPU" {
		t.Errorf("placed beside too little CPU, or: %q", n.Explain(r))
	}
	n.CPU, n.FreeCPU = 0, 0
	if !p.Place(n, r, nil) {
		t.Error("not placed where CPU is unknown")
	}
}

// TestHardRequestsEnd: a request that is made to be hard is given up, and not answered wrongly.
func TestHardRequestsEnd(t *testing.T) {
	n := &Node{}
	for i := range 12 {
		n.Cards = append(n.Cards, Card{Index: i, UUID: fmt.Sprint(i), Memory: share.Memory(20+i) * share.GiB, Core: 5 * (i % 7), Tenants: 1})
	}
	r := &Request{}
	for i := range 24 {
		r.Containers = append(r.Containers, Container{Name: fmt.Sprint(i), Share: share.Share{Core: 5 * (6 + i%5), Memory: share.Memory(5+i*7%11) * share.GiB}})
	}
	var p Placer
	if p.Place(n, r, byIndex{1}) {
		n.Take(r, p.Assignment())
		for _, c := range n.Cards {
			if c.Taken > c.Memory || c.Core > share.Whole {
				t.Errorf("overfull: %+v", c)
			}
		}
	} else if p.tries > maxTries+100 {
		t.Errorf("it took %d tries", p.tries)
	}
}

// TestPlacingAllocatesNothing holds once a Placer has seen the sizes.
func TestPlacingAllocatesNothing(t *testing.T) {
	n := &Node{}
	for i := range 8 {
		n.Cards = append(n.Cards, Card{Index: i, UUID: fmt.Sprint(i), Memory: t4, Core: 10 * i, Taken: share.Memory(i) * share.GiB, Tenants: 1})
	}
	r := &Request{Containers: []Container{
		{Name: "i", Share: share.Share{Core: 20, Memory: share.GiB}, Stage: Init},
		{Name: "s", Share: share.Share{Core: 5, Memory: share.GiB}, Stage: Sidecar},
		{Name: "a", Share: share.Share{Core: 30, Memory: 4 * share.GiB}},
		{Name: "b", Share: share.Share{Core: 120, Memory: 4 * share.GiB}},
	}}
	var p Placer
	var s Scorer = byIndex{1}
	if got := testing.AllocsPerRun(100, func() { p.Place(n, r, s) }); got > 0 {
		t.Errorf("Place allocates %v times", got)
	}
}

func TestExplainNamesTheFirstContainerThatCannot(t *testing.T) {
	n := &Node{Cards: []Card{
		{Index: 0, UUID: "a", Model: "T4", Memory: t4, Taken: 12 * share.GiB, Tenants: 2},
		{Index: 1, UUID: "b", Model: "T4", Memory: t4, Taken: 13*share.GiB + 5*share.MiB, Tenants: MaxTenants},
	}}
	small := Container{Name: "small", Share: share.Share{Core: 5, Memory: share.GiB}}
	tests := []struct {
		request Request
		want    string
	}{
		{Request{Containers: []Container{small, {Name: "big", Share: share.Share{Core: 5, Memory: 5 * share.GiB}}}}, "2 card(s) lack memory: most free 3Gi of 15Gi, 5Gi asked"},
		{Request{Containers: []Container{small}, Models: []string{"A10"}}, "2 card(s) are of another model"},
		{Request{Containers: []Container{{Name: "two", Share: share.Share{Core: 110, Memory: 2 * share.GiB}}}}, "1 card(s) have 16 tenants, the most that share a card"},
		{Request{Containers: []Container{small, small}, Together: Different}, "too few cards have room for a container each"},
		{Request{Containers: []Container{small, small, small, small}, Together: Same}, "no card has room for all containers together"},
	}
	for _, tt := range tests {
		var p Placer
		if got := n.Explain(&tt.request); got != tt.want || p.Place(n, &tt.request, nil) {
			t.Errorf("Explain = %q, want %q", got, tt.want)
		}
	}
}
