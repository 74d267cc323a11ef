package share

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestValidate(t *testing.T) {
	tests := []struct {
		name  string
		share Share
		want  string // part of the error; empty: valid
	}{
		{"half a card", Share{Core: 50, Memory: 8 * GiB}, ""},
		{"memory alone", Share{Memory: GiB}, ""},
		{"a whole card", Share{Core: 100}, ""},
		{"two cards", Share{Core: 200}, ""},
		{"a card with a memory limit", Share{Core: 100, Memory: 4 * GiB}, ""},
		{"odd step", Share{Core: 33, Memory: GiB}, "the nearest is 35"},
		{"too small", Share{Core: 1, Memory: GiB}, "the nearest is 5"},
		{"split over two cards", Share{Core: 160, Memory: 60 * GiB}, ""},
		{"uneven split", Share{Core: 155, Memory: 60 * GiB}, "the nearest is 160"},
		{"nearly whole cards", Share{Core: 196, Memory: 60 * GiB}, "the nearest is 190"},
		{"split without memory", Share{Core: 160}, "needs an amount of memory"},
		{"negative", Share{Core: -5, Memory: GiB}, "negative"},
		{"no memory", Share{Core: 30}, "needs an amount of memory"},
		{"whole cards with memory", Share{Core: 200, Memory: GiB}, "leave memory out"},
		{"offline", Share{Core: 7, Memory: GiB, Class: Offline}, ""},
		{"offline on two cards", Share{Core: 160, Memory: 2 * GiB, Class: Offline}, "the most is 100"},
		{"class", Share{Memory: GiB, Class: "urgent"}, `class "urgent" is unknown`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.share.Validate()
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("Validate(%+v) = %v, want valid", tt.share, err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("Validate(%+v) = %v, want an error with %q", tt.share, err, tt.want)
			}
		})
	}
}

func TestPerCard(t *testing.T) {
	tests := []struct {
		in    Share
		cards int
		want  Share
	}{
		{Share{Core: 30, Memory: 5 * GiB}, 1, Share{Core: 30, Memory: 5 * GiB}},
		{Share{Memory: GiB}, 1, Share{Memory: GiB}},
		{Share{Core: 200}, 2, Share{Core: 100}},
		{Share{Core: 160, Memory: 60 * GiB}, 2, Share{Core: 80, Memory: 30 * GiB}},
	}
	for _, tt := range tests {
		if cards, got := tt.in.Cards(), tt.in.PerCard(); cards != tt.cards || got != tt.want {
			t.Errorf("%+v lies as %+v on %d cards, want %+v on %d", tt.in, got, cards, tt.want, tt.cards)
		}
	}
}

func TestParseMemory(t *testing.T) {
	tests := []struct {
		in   string
		want Memory
	}{
		{"5Gi", 5 * GiB}, {"512Mi", 512 * MiB}, {"1.5Gi", 1536 * MiB}, {"1024", KiB},
		{"2GiB", 2 * GiB}, {"1G", 1e9}, {" 3Gi ", 3 * GiB},
	}
	for _, tt := range tests {
		if got, err := ParseMemory(tt.in); err != nil || got != tt.want {
			t.Errorf("ParseMemory(%q) = %d, %v, want %d", tt.in, got, err, tt.want)
		}
	}
	for _, in := range []string{"", "Gi", "five", "-1Gi", "5Gi5", "1e30Gi", "NaN", "5 Tb"} {
		if got, err := ParseMemory(in); err == nil {
			t.Errorf("ParseMemory(%q) = %d, want an error", in, got)
		}
	}
}

func TestMemoryRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := Memory(rapid.Int64Range(0, 1<<14).Draw(t, "MiB")) * MiB
		got, err := ParseMemory(m.String())
		if err != nil || got != m {
			t.Fatalf("ParseMemory(%q) = %d, %v, want %d", m.String(), got, err, m)
		}
	})
}

func TestParsePolicy(t *testing.T) {
	for in, want := range map[string]Policy{"be": BestEffort, "fixed-share": FixedShare, "bs": BurstShare} {
		if got, err := ParsePolicy(in); err != nil || got != want {
			t.Errorf("ParsePolicy(%q) = %q, %v, want %q", in, got, err, want)
		}
	}
	if _, err := ParsePolicy("fair"); err == nil {
		t.Error("ParsePolicy(fair) succeeded")
	}
}

func FuzzParseMemory(f *testing.F) {
	for _, seed := range []string{"5Gi", "-1", "1e9Gi", "0x10Mi"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if m, err := ParseMemory(s); err == nil && m < 0 {
			t.Errorf("ParseMemory(%q) = %d, negative without an error", s, m)
		}
	})
}
