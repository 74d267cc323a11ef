package placement

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/qgpu-project/qgpu/internal/share"
)

// shareGen draws shares that scheduling allows: parts of a card, splits over two,
// whole cards, online and offline ones.
func shareGen() *rapid.Generator[share.Share] {
	return rapid.Custom(func(t *rapid.T) share.Share {
		memory := share.Memory(rapid.IntRange(1, 8).Draw(t, "memory")) * share.GiB
		switch rapid.IntRange(0, 9).Draw(t, "kind") {
		case 0:
			return share.Share{Core: share.Whole * rapid.IntRange(1, 2).Draw(t, "cards")}
		case 1:
			return share.Share{Core: 10 * rapid.IntRange(11, 18).Draw(t, "core"), Memory: 2 * memory}
		case 2:
			return share.Share{Memory: memory, Class: share.Online}
		case 3:
			return share.Share{Core: 5 * rapid.IntRange(1, 20).Draw(t, "core"), Memory: memory, Class: share.Offline}
		}
		return share.Share{Core: 10 * rapid.IntRange(1, 10).Draw(t, "core"), Memory: memory}
	})
}

func requestGen(most int) *rapid.Generator[*Request] {
	return rapid.Custom(func(t *rapid.T) *Request {
		r := &Request{Together: rapid.SampledFrom([]Together{Anyhow, Anyhow, Same, Different}).Draw(t, "together")}
		if rapid.IntRange(0, 3).Draw(t, "typed") == 0 {
			r.Models = []string{"T4"}
		}
		apps := rapid.IntRange(0, most).Draw(t, "apps")
		for i := range rapid.IntRange(apps, most).Draw(t, "containers") {
			stage := App
			if i >= apps {
				stage = rapid.SampledFrom([]Stage{Init, Sidecar}).Draw(t, "stage")
			}
			r.Containers = append(r.Containers, Container{Name: fmt.Sprint("c", i), Share: shareGen().Draw(t, "share"), Stage: stage})
		}
		slices.Reverse(r.Containers) // init containers and sidecars first
		return r
	})
}

// nodeGen draws nodes whose cards are of few kinds, so that equal ones occur.
func nodeGen(most int) *rapid.Generator[*Node] {
	return rapid.Custom(func(t *rapid.T) *Node {
		n := &Node{Name: "n"}
		for i := range rapid.IntRange(1, most).Draw(t, "cards") {
			c := Card{Index: i, UUID: fmt.Sprint("GPU-", i), Model: "T4", Memory: 8 * share.GiB}
			switch rapid.IntRange(0, 7).Draw(t, "kind") {
			case 0:
				c.Unhealthy = "Xid 79"
			case 1:
				c.Model, c.Memory = "A10", 12*share.GiB
			case 2:
				c.Take(c.Quota(share.Share{Core: share.Whole}))
			case 3:
				c.Tenants, c.Taken = MaxTenants-1, 2*share.GiB
			case 4, 5:
				c.Take(c.Quota(share.Share{Core: 50, Memory: 4 * share.GiB}))
			}
			n.Cards = append(n.Cards, c)
		}
		return n
	})
}

// bruteForce tries all ways and judges each by the sums alone.
func bruteForce(n *Node, r *Request) (found bool) {
	lies := make(map[string][]int)
	var try func(i int)
	try = func(i int) {
		switch {
		case found:
		case i == len(r.Containers):
			found = legal(n, r, lies)
		default:
			c := r.Containers[i]
			for mask := range 1 << len(n.Cards) {
				var cards []int
				for card := range n.Cards {
					if mask>>card&1 == 1 {
						cards = append(cards, card)
					}
				}
				if len(cards) == c.Share.Cards() {
					lies[c.Name] = cards
					try(i + 1)
				}
			}
		}
	}
	try(0)
	return found
}

// legal is the definition of a placement that fits: at no moment of the pod's life
// does a card hold more than it has. It is written without the code under test.
func legal(n *Node, r *Request, lies map[string][]int) bool {
	if r.Together == Same {
		for _, cards := range lies {
			if !slices.Equal(cards, lies[r.Containers[0].Name]) {
				return false
			}
		}
	}
	var sidecars, apps []Container
	var moments [][]Container
	for _, c := range r.Containers {
		switch c.Stage {
		case Init:
			moments = append(moments, append(slices.Clone(sidecars), c))
		case Sidecar:
			sidecars = append(sidecars, c)
		case App:
			apps = append(apps, c)
		}
	}
	moments = append(moments, append(slices.Clone(sidecars), apps...))
	for card, c := range n.Cards {
		var whole bool
		for _, moment := range moments {
			memory, core, tenants := share.Memory(0), 0, 0
			for _, container := range moment {
				if !slices.Contains(lies[container.Name], card) {
					continue
				}
				s := container.Share
				per := s.Cards()
				tenants++
				memory += s.Memory / share.Memory(per)
				if s.Class != share.Offline {
					core += s.Core / per
				}
				if s.Core > 0 && s.Memory == 0 {
					memory += c.Memory
					whole = true
				}
				if c.Unhealthy != "" || c.Whole || len(r.Models) > 0 && c.Model != r.Models[0] {
					return false
				}
			}
			if tenants > 1 && r.Together == Different {
				return false
			}
			if tenants > 0 && (memory+c.Taken > c.Memory || core+c.Core > 100 || tenants+c.Tenants > 16) {
				return false
			}
		}
		if whole && c.Tenants > 0 {
			return false
		}
	}
	return true
}

// byIndex is a scorer with opinions, so that the search has an order to depart from.
type byIndex struct{ factor int64 }

func (b byIndex) Score(_, after *Node, _ *Request) (score int64) {
	for i, c := range after.Cards {
		score += b.factor * int64(i+1) * int64(c.Core) % 37
	}
	return score
}

func TestPlaceIsExact(t *testing.T) {
	var fits, total int
	rapid.Check(t, func(t *rapid.T) {
		n, r := nodeGen(4).Draw(t, "node"), requestGen(4).Draw(t, "request")
		if len(r.Containers) == 0 {
			return
		}
		s := rapid.SampledFrom([]Scorer{nil, byIndex{1}, byIndex{-3}}).Draw(t, "scorer")
		before := cloneNode(n)
		var p Placer
		got, want := p.Place(n, r, s), bruteForce(n, r)
		if total++; want {
			fits++
		}
		if got != want {
			t.Fatalf("Place = %v, brute force says %v", got, want)
		}
		if !slices.Equal(n.Cards, before.Cards) {
			t.Fatal("Place changed its node")
		}
		if !got {
			return
		}
		a := p.Assignment()
		lies := make(map[string][]int)
		for _, c := range r.Containers {
			for _, slice := range a[c.Name] {
				lies[c.Name] = append(lies[c.Name], slice.Index)
			}
		}
		if !legal(n, r, lies) {
			t.Fatalf("Place overfills a card with %v", a)
		}
		n.Take(r, a)
		if !slices.Equal(n.Cards, p.After().Cards) {
			t.Fatalf("After is\n%+v, and Take makes\n%+v", p.After().Cards, n.Cards)
		}
		if n.Free(r, a); !slices.Equal(n.Cards, before.Cards) {
			t.Fatalf("Free(Take) is\n%+v, and was\n%+v", n.Cards, before.Cards)
		}
	})
	if fits == 0 || fits == total {
		t.Errorf("%d of %d requests fit: the test has not seen both", fits, total)
	}
}

func cloneNode(n *Node) *Node {
	m := *n
	m.Cards = slices.Clone(n.Cards)
	return &m
}
