package tenant

import (
	"strings"
	"testing"

	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/share"
)

func testCards() []placement.Card {
	return []placement.Card{
		{Index: 0, UUID: "GPU-0", Memory: 16 * share.GiB},
		{Index: 1, UUID: "GPU-1", Memory: 16 * share.GiB},
	}
}

func onCard(id, uuid string, p share.Policy, s share.Share) Tenant {
	return Tenant{ID: id, Share: s, Policy: p, Placement: []placement.Slice{{UUID: uuid, Core: s.Core, Memory: s.Memory}}}
}

func TestPolicyOfACard(t *testing.T) {
	living := []Tenant{
		onCard("a", "GPU-0", share.FixedShare, share.Share{Core: 20, Memory: share.GiB}),
		onCard("b", "GPU-0", share.FixedShare, share.Share{Core: 20, Memory: share.GiB}),
	}
	cards := testCards()
	for _, c := range []struct {
		asked share.Policy
		cards int // number of those that agree
		on    int // the card it is placed on
		want  share.Policy
	}{
		{"", 2, 0, share.FixedShare},
		{"", 2, 1, share.BestEffort},
		{share.FixedShare, 2, 0, share.FixedShare},
		{share.BurstShare, 1, 1, share.BurstShare},
	} {
		agree, err := agreeing(cards, living, c.asked)
		if err != nil || len(agree) != c.cards {
			t.Errorf("asked for %q: %d cards agree (%v), want %d", c.asked, len(agree), err, c.cards)
		}
		got, err := settle([]placement.Slice{{UUID: cards[c.on].UUID}}, living, c.asked)
		if err != nil || got != c.want {
			t.Errorf("asked for %q on card %d: %q (%v), want %q", c.asked, c.on, got, err, c.want)
		}
	}
	if _, err := agreeing(cards[:1], living, share.BestEffort); err == nil || !strings.Contains(err.Error(), "card 0 is shared by fixed-share, by tenant a, b") {
		t.Errorf("another policy than the card's: %v", err)
	}
	living = append(living, onCard("c", "GPU-1", share.BestEffort, share.Share{Memory: share.GiB}))
	if p, err := settle([]placement.Slice{{UUID: "GPU-0"}, {UUID: "GPU-1"}}, living, ""); err == nil {
		t.Errorf("cards of different policies are shared by %q", p)
	}
}

func TestResized(t *testing.T) {
	now := onCard("a", "GPU-0", share.FixedShare, share.Share{Core: 20, Memory: 2 * share.GiB})
	cards := testCards()
	cards[0].Take(placement.Slice{Core: 50, Memory: 10 * share.GiB})
	for _, c := range []struct {
		to  share.Share
		err string // part of it; empty: it fits
	}{
		{share.Share{Core: 50, Memory: 6 * share.GiB}, ""},
		{share.Share{Core: 5, Memory: share.GiB}, ""},
		{share.Share{Core: 55, Memory: share.GiB}, "has 50 % of core free"},
		{share.Share{Core: 20, Memory: 7 * share.GiB}, "6Gi of 16Gi free"},
		{share.Share{Core: 23, Memory: share.GiB}, "the nearest is 25"},
		{share.Share{Core: 100}, "cannot become one"},
		{share.Share{Core: 120, Memory: 4 * share.GiB}, "lies on 2 card(s)"},
	} {
		placed, err := resized(now, c.to, cards)
		switch {
		case c.err == "" && err != nil, c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
			t.Errorf("to %+v: %v, want %q", c.to, err, c.err)
		case c.err == "" && (len(placed) != 1 || placed[0].Core != c.to.Core || placed[0].Memory != c.to.Memory || placed[0].UUID != "GPU-0"):
			t.Errorf("to %+v: placed as %+v", c.to, placed)
		}
	}
	whole := onCard("w", "GPU-0", "", share.Share{Core: 100})
	if _, err := resized(whole, share.Share{Core: 50, Memory: share.GiB}, testCards()); err == nil {
		t.Error("a tenant of a whole card becomes one of a part")
	}
}
