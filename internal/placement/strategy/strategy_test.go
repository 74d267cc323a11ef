package strategy

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/share"
)

func mustNamed(t testing.TB, name string) Strategy {
	t.Helper()
	s, err := NewBook().Named(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// node has cards of 10 GiB with so much of it taken.
func node(taken ...int) *placement.Node {
	n := &placement.Node{}
	for i, gib := range taken {
		c := placement.Card{Index: i, UUID: fmt.Sprint(i), Memory: 10 * share.GiB}
		if gib > 0 {
			c.Take(placement.Slice{Core: 10 * gib, Memory: share.Memory(gib) * share.GiB})
		}
		n.Cards = append(n.Cards, c)
	}
	return n
}

func ask(s share.Share) *placement.Request {
	return &placement.Request{Containers: []placement.Container{{Name: "c", Share: s}}}
}

func TestCardsAreChosenByName(t *testing.T) {
	s := share.Share{Core: 20, Memory: 2 * share.GiB}
	for name, want := range map[string]int{Binpack: 2, Spread: 1} {
		var p placement.Placer
		if !p.Place(node(5, 0, 8, 9), ask(s), mustNamed(t, name).Card) {
			t.Fatal("no place")
		}
		if got := p.Assignment()["c"][0].Index; got != want {
			t.Errorf("%s takes card %d, want %d", name, got, want)
		}
	}
}

func TestNodesAreRatedByName(t *testing.T) {
	s := ask(share.Share{Core: 10, Memory: share.GiB})
	for name, want := range map[string]bool{Binpack: true, Spread: false} {
		strategy := mustNamed(t, name)
		rate := func(n *placement.Node) int64 {
			var p placement.Placer
			p.Place(n, s, strategy.Card)
			return strategy.Node.Score(n, p.After(), s)
		}
		if got := rate(node(5, 5)) > rate(node(0, 1)); got != want {
			t.Errorf("%s prefers the fuller node: %v, want %v", name, got, want)
		}
	}
}

// TestClassesStayApart: where they can, and no longer.
func TestClassesStayApart(t *testing.T) {
	for _, name := range Names() {
		for _, class := range []share.Class{share.Online, share.Offline} {
			other := map[share.Class]share.Class{share.Online: share.Offline, share.Offline: share.Online}[class]
			n := node(0, 0)
			n.Cards[0].Take(placement.Slice{Memory: 4 * share.GiB, Class: other})
			n.Cards[1].Take(placement.Slice{Core: 40, Memory: 5 * share.GiB})
			r := ask(share.Share{Memory: 3 * share.GiB, Class: class})
			for i, want := range []int{1, 0} { // the second finds no room beside the first
				var p placement.Placer
				if !p.Place(n, r, mustNamed(t, name).Card) {
					t.Fatal("no place")
				}
				a := p.Assignment()
				if got := a["c"][0].Index; got != want {
					t.Errorf("%s: %s tenant %d lies on card %d, want %d", name, class, i, got, want)
				}
				n.Take(r, a)
			}
		}
	}
}

// TestEqualNodesAreRatedEqually, whatever their names.
func TestEqualNodesAreRatedEqually(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		taken := rapid.SliceOfN(rapid.IntRange(0, 9), 1, 8).Draw(t, "taken")
		r := ask(share.Share{Core: 10, Memory: share.GiB})
		for _, name := range Names() {
			s, err := NewBook().Named(name)
			if err != nil {
				t.Fatal(err)
			}
			a, b := node(taken...), node(taken...)
			a.Name, b.Name = "a", "b"
			for i := range b.Cards {
				b.Cards[i].UUID = fmt.Sprint("other-", i)
			}
			var p, q placement.Placer
			if !p.Place(a, r, s.Card) || !q.Place(b, r, s.Card) {
				continue
			}
			if x, y := s.Node.Score(a, p.After(), r), s.Node.Score(b, q.After(), r); x != y {
				t.Fatalf("%s rates equal nodes %d and %d", name, x, y)
			}
		}
	})
}

func TestUnknownName(t *testing.T) {
	if _, err := NewBook().Named("random"); err == nil || !strings.Contains(err.Error(), "the placements are frag, fgd, binpack, spread") {
		t.Errorf("Named(random) = %v", err)
	}
	mustNamed(t, Default)
}

// TestFragLearns: it fills the card that leaves no expected pod without room.
func TestFragLearns(t *testing.T) {
	b := NewBook()
	n := node(6, 4, 0, 0)
	b.Update(nil, n)
	for range 50 {
		b.Observe(ask(share.Share{Core: 60, Memory: 6 * share.GiB}))
	}
	s, err := b.Named(Frag)
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		b.Observe(ask(share.Share{Core: 40, Memory: 4 * share.GiB}))
	}
	r := ask(share.Share{Core: 40, Memory: 4 * share.GiB})
	var p placement.Placer
	if !p.Place(n, r, s.Card) || p.Assignment()["c"][0].Index != 0 {
		t.Errorf("a pod of 40 percent lies on card %v, want 0, which it just fills", p.Assignment()["c"])
	}
	if again, err := b.Named(Frag); err != nil || again.Version == s.Version {
		t.Errorf("after as many pods again the version is %d still, %v", again.Version, err)
	}
}
