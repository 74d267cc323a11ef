package main

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/qgpu-project/qgpu/internal/share"
	"github.com/qgpu-project/qgpu/internal/simgpu"
)

func TestAsked(t *testing.T) {
	for _, c := range []struct {
		policy share.Policy
		cores  []int
		idle   []bool
		want   []float64
	}{
		{share.BestEffort, []int{10, 90}, []bool{false, false}, []float64{50, 50}},
		{share.BurstShare, []int{5, 5, 10}, []bool{false, false, false}, []float64{25, 25, 50}},
		{share.BurstShare, []int{5, 5, 10}, []bool{false, false, true}, []float64{50, 50, 0}},
		{share.FixedShare, []int{5, 5, 10}, []bool{false, false, true}, []float64{5, 5, 0}},
	} {
		if got := asked(c.policy, c.cores, c.idle); !slices.Equal(got, c.want) {
			t.Errorf("%s of %v: %v, want %v", c.policy, c.cores, got, c.want)
		}
	}
}

// TestRecord reads a tenant that has nothing for 100 ms and then half of the card.
func TestRecord(t *testing.T) {
	const ms = uint64(time.Millisecond)
	rec := record{
		{at: 1000 * ms, used: []time.Duration{0}},
		{at: 1100 * ms, used: []time.Duration{0}},
		{at: 1200 * ms, used: []time.Duration{50 * time.Millisecond}},
	}
	for _, c := range []struct {
		from uint64
		d    time.Duration
		want float64
	}{
		{1000 * ms, 100 * time.Millisecond, 0},
		{1100 * ms, 50 * time.Millisecond, 50},
		{1050 * ms, 100 * time.Millisecond, 25},
	} {
		if got := rec.parts(c.from, c.d)[0]; math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%v from %d: %v, want %v", c.d, c.from, got, c.want)
		}
	}
	var parts []float64
	rec.windows(100*time.Millisecond, func(p []float64) { parts = append(parts, p[0]) })
	if !slices.Equal(parts, []float64{0, 50}) {
		t.Errorf("windows of 100 ms: %v", parts)
	}
}

func TestBriefExcessIsInTurns(t *testing.T) {
	const ms = uint64(time.Millisecond)
	c := cell{scene: newScene(share.FixedShare, 1, 30, 70), asked: []float64{30, 70}, got: []float64{30, 70}}
	turns, err := turns(share.FixedShare, c.cores)
	if err != nil {
		t.Fatal(err)
	}
	over := turns[0] * 2
	rec := record{
		{at: 0, used: []time.Duration{0, 0}},
		{at: 100 * ms, used: []time.Duration{30*time.Millisecond + over, 0}},
	}
	if err := c.briefly(rec, 0); err != nil {
		t.Fatal(err)
	}
	if math.Abs(c.excess-2) > 0.01 || c.brief != 70 {
		t.Errorf("excess of %v turns and an error of %v, want 2 and 70", c.excess, c.brief)
	}
}

// TestPlotIsXML also has names that XML would not take as they are be noticed.
func TestPlotIsXML(t *testing.T) {
	c := cell{scene: newScene(share.BurstShare, 1, 30, 70), asked: []float64{30, 70}, got: []float64{29, 70}}
	text := plot([]cell{c})
	d := xml.NewDecoder(strings.NewReader(text))
	circles := 0
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "circle" {
			circles++
		}
	}
	if want := len(c.got) + len(policies); circles != want {
		t.Errorf("%d circles, want %d", circles, want)
	}
}

// TestReport has a report say of each aim whether it was met.
func TestReport(t *testing.T) {
	good := cell{scene: newScene(share.BurstShare, 1, 30, 70), asked: []float64{30, 70}, got: []float64{30, 70}}
	bad := good
	bad.got, bad.brief = []float64{10, 60}, 20
	r := results{
		cells:  []cell{good, bad},
		cost:   []costs{{share.BestEffort, 1, 100}, {share.BestEffort, 4, 99}},
		online: online{idle: 50, taken: 49, aloneBusy: 100, besideBusy: 99},
	}
	r.online.bursty.idle, r.online.bursty.taken = 50, 40
	met := make(map[string]string)
	for _, a := range r.aims() {
		met[a.Got] = a.Met
	}
	for got, want := range map[string]string{
		"1 of 2 cells": "**not met**", "up to 20.00 points missed over 1 s": "**not met**", "80.0 %": "**not met**",
		"0.00 turns above at most": "met", "1.00 %": "met", "up to 1.00 %": "met",
	} {
		if met[got] != want {
			t.Errorf("%q is %q, want %q: %v", got, met[got], want, met)
		}
	}
	var text strings.Builder
	if err := r.write(&text, "p.svg"); err != nil {
		t.Fatal(err)
	}
	if line := "| burst-share | 30:70 |  | 30.0 : 70.0 | 10.0 : 60.0 | 20.00 | 20.0 | 30.0 |"; !strings.Contains(text.String(), line) {
		t.Errorf("the report has no line %q:\n%s", line, text.String())
	}
}

// TestMatrix counts what is measured: all policies with all mixes in all patterns, but for
// many processes, of which 16 tenants would not fit on the card.
func TestMatrix(t *testing.T) {
	count := func(quick bool) map[string]int {
		seen := make(map[string]int)
		for _, g := range matrix(kernels{equal: 3, short: 1, long: 9}, quick) {
			for _, s := range g {
				if seen[s.name()]++; seen[s.name()] > 1 {
					t.Errorf("%s is measured twice", s.name())
				}
			}
		}
		return seen
	}
	const mixes, wide, narrow = 4 + 2 + 1, 4, 4
	if got := len(count(false)); got != len(policies)*(wide*mixes+narrow) {
		t.Errorf("%d cells", got)
	}
	if got := len(count(true)); got != len(policies)*(mixes+wide) {
		t.Errorf("%d cells of a quick run", got)
	}
	for _, g := range matrix(kernels{equal: 3, short: 1, long: 9}, false) {
		if s := g[0]; strings.HasPrefix(s.what, "kernels of 100 µs against") && (s.loads[0].blocks != 1 || s.loads[1].blocks != 9) {
			t.Errorf("%s has kernels of %d and %d blocks", s.name(), s.loads[0].blocks, s.loads[1].blocks)
		}
	}
}

// TestTrade: longer slices cost less and have others wait longer.
func TestTrade(t *testing.T) {
	short, long := tradeOf(100), tradeOf(10_000)
	if short.lost < 4*long.lost || long.wait < 10*short.wait {
		t.Errorf("slices of 100 µs: %+v, of 10 ms: %+v", short, long)
	}
	// Three groups in rotation, of which each loses 10 µs at the end of its slice.
	if want := 100 * 10.0 / 110; math.Abs(short.lost-want) > 1.5 {
		t.Errorf("slices of 100 µs lose %.2f %%, want about %.2f", short.lost, want)
	}
	if err := xml.Unmarshal([]byte(plotTrade([]tradePoint{short, long})), new(struct{})); err != nil {
		t.Error(err)
	}
}

// TestRecordOf adds up a card's account of two tenants, one of which idles at first.
func TestRecordOf(t *testing.T) {
	h := simgpu.CardHistory{Start: 100, Period: 10, Periods: []map[int]time.Duration{{1: 4}, {1: 5, 2: 5, 3: 0}}}
	rec := recordOf(h, []*tenant{{mediator: 1}, {mediator: 2}})
	want := record{{100, []time.Duration{0, 0}}, {110, []time.Duration{4, 0}}, {120, []time.Duration{9, 5}}}
	if !reflect.DeepEqual(rec, want) {
		t.Errorf("got %v, want %v", rec, want)
	}
}
