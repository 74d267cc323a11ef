package placement

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/qgpu-project/qgpu/internal/share"
)

const t4 = 15 * share.GiB

func TestFit(t *testing.T) {
	tests := []struct {
		name  string
		card  Card
		share share.Share
		want  string // part of the error; empty: fits
	}{
		{"empty card", Card{Memory: t4}, share.Share{Core: 30, Memory: 5 * share.GiB}, ""},
		{"exactly full", Card{Memory: t4, Taken: 10 * share.GiB, Tenants: 1}, share.Share{Memory: 5 * share.GiB}, ""},
		{"memory", Card{Memory: t4, Taken: 13 * share.GiB}, share.Share{Memory: 4 * share.GiB}, "has 2Gi of 15Gi free, and 4Gi is asked for"},
		{"core", Card{Memory: t4, Core: 80}, share.Share{Core: 30, Memory: share.GiB}, "has 20 % of core free, and 30 % is asked for"},
		{"tenants", Card{Memory: t4, Tenants: 16}, share.Share{Memory: share.GiB}, "the most that share a card"},
		{"whole on empty", Card{Memory: t4}, share.Share{Core: 100}, ""},
		{"whole on shared", Card{Memory: t4, Tenants: 1}, share.Share{Core: 100}, "a whole card is asked for"},
		{"part of a whole", Card{Memory: t4, Whole: true}, share.Share{Memory: share.GiB}, "taken as a whole"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.card.Fit(tt.share)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Fit = %v, want %q", err, tt.want)
			}
		})
	}
}

func TestLeastLoaded(t *testing.T) {
	cards := []Card{
		{Index: 0, Memory: t4, Taken: 5 * share.GiB, Tenants: 1},
		{Index: 1, Memory: t4, Taken: 2 * share.GiB, Tenants: 1},
		{Index: 2, Memory: t4, Taken: 2 * share.GiB, Tenants: 1},
	}
	got, err := LeastLoaded(cards, share.Share{Core: 30, Memory: 5 * share.GiB})
	if err != nil || len(got) != 1 || got[0] != (Slice{Index: 1, Core: 30, Memory: 5 * share.GiB}) {
		t.Errorf("LeastLoaded = %+v, %v, want card 1", got, err)
	}
	got, err = LeastLoaded(cards, share.Share{Core: 160, Memory: 20 * share.GiB})
	if err != nil || len(got) != 2 || got[0].Index != 1 || got[1].Index != 2 || got[1].Memory != 10*share.GiB {
		t.Errorf("LeastLoaded of two cards = %+v, %v, want 10Gi on cards 1 and 2", got, err)
	}
	_, err = LeastLoaded(cards[:1], share.Share{Memory: 11 * share.GiB})
	if want := "no room: card 0 has 10Gi of 15Gi free, and 11Gi is asked for"; err == nil || err.Error() != want {
		t.Errorf("LeastLoaded = %v, want %q", err, want)
	}
	_, err = LeastLoaded([]Card{{Memory: t4}}, share.Share{Core: 200})
	if want := "2 cards are asked for, and there are 1"; err == nil || err.Error() != want {
		t.Errorf("LeastLoaded = %v, want %q", err, want)
	}
}

func TestNeverOverfull(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cards := make([]Card, rapid.IntRange(1, 4).Draw(t, "cards"))
		for i := range cards {
			cards[i] = Card{Index: i, Memory: t4}
		}
		for range rapid.IntRange(1, 40).Draw(t, "tenants") {
			s := share.Share{
				Core:   5 * rapid.IntRange(0, 20).Draw(t, "core"),
				Memory: share.Memory(rapid.IntRange(1, 16).Draw(t, "memory")) * share.GiB,
			}
			slices, err := LeastLoaded(cards, s)
			if err != nil {
				continue
			}
			for _, slice := range slices {
				cards[slice.Index].Take(slice)
			}
		}
		for _, c := range cards {
			if c.Taken > c.Memory || c.Core > share.Whole || c.Tenants > MaxTenants {
				t.Fatalf("card overfull: %+v", c)
			}
		}
	})
}
