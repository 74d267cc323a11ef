package main

import "testing"

func TestSample(t *testing.T) {
	s := sample{3, 1, 100}
	if got := s.median(); got != 3 {
		t.Errorf("median %v", got)
	}
	if got := (sample{4, 1, 2, 3}).median(); got != 2 {
		t.Errorf("median of an even number %v", got)
	}
	if got := s.show(2, "µs"); got != "6.00 (2.00–200) µs" {
		t.Errorf("shown as %q", got)
	}
}

func TestPair(t *testing.T) {
	for _, c := range []struct {
		name          string
		p             pair
		ratio, atBest float64
		aim           string
	}{
		{"steady", pair{sample{10, 10}, sample{12, 12}}, 1.2, 1.2, "≤ 1.30: met"},
		{"one side was disturbed in one round", pair{sample{10, 10, 10}, sample{12, 90, 12}}, 1.2, 1.2, "≤ 1.30: met"},
		{"both were in the same round", pair{sample{10, 50, 10}, sample{12, 60, 12}}, 1.2, 1.2, "≤ 1.30: met"},
		{"disturbed most of the time", pair{sample{10, 10, 10}, sample{12, 20, 20}}, 2, 1.2, "≤ 1.30: met at best, not by the median"},
		{"too slow", pair{sample{10}, sample{20}}, 2, 2, "≤ 1.30: **not met**"},
	} {
		if got := c.p.ratio(); got != c.ratio {
			t.Errorf("%s: ratio %v, want %v", c.name, got, c.ratio)
		}
		if got := c.p.atBest(); got != c.atBest {
			t.Errorf("%s: at best %v, want %v", c.name, got, c.atBest)
		}
		if got := c.p.aim(1.3); got != c.aim {
			t.Errorf("%s: aim %q, want %q", c.name, got, c.aim)
		}
	}
}
