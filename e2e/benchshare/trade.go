package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/qgpu-project/qgpu/internal/simgpu/engine/runlist"
	"github.com/qgpu-project/qgpu/internal/timeshare"
)

// tradeCosts are the simulated card's: what a change of groups is taken to cost.
var tradeCosts = runlist.Costs{Switch: 5_000, Preempt: 5_000}

// The trade is computed for so many busy groups, and one that wakes so many times.
const (
	tradeGroups = 3
	tradeWakes  = 400
)

// A tradePoint is what slices of one length cost, and how long others wait because of them.
type tradePoint struct {
	slice time.Duration
	lost  float64       // of the card's time, in percent
	wait  time.Duration // of a group that wakes, p99
}

// trade runs the model of the runlist, on its own clock: groups that always have work, and
// one that wakes at times that are spread evenly over their rotation.
func trade() (points []tradePoint) {
	for us := uint64(50); us <= 32_768; us = us * 5 / 4 {
		points = append(points, tradeOf(us))
	}
	return points
}

func tradeOf(us uint64) tradePoint {
	const short = 10_000 // ns, of the work of the group that wakes
	r := runlist.New(0, tradeCosts, nil)
	add := func(us uint64) (*runlist.Group, *runlist.Channel) {
		g := r.Add(nil)
		g.SetTimeslice(us)
		c := r.AddChannel(g)
		r.Schedule(c)
		return g, c
	}
	for range tradeGroups {
		_, c := add(us)
		r.Submit(c, runlist.Never/2, nil)
	}
	_, wakes := add(us)
	rotation := tradeGroups * us * 1000
	var waits []time.Duration
	for i := range uint64(tradeWakes) {
		r.Step(r.Now() + rotation + i*rotation/tradeWakes)
		at := r.Now()
		r.Submit(wakes, short, nil)
		for r.Step(at+4*rotation+1_000_000) == nil {
		}
		waits = append(waits, time.Duration(r.Now()-at-short))
	}
	slices.Sort(waits)
	return tradePoint{
		slice: time.Duration(us) * time.Microsecond,
		lost:  100 * float64(r.Switched()) / float64(r.Now()),
		wait:  waits[len(waits)*99/100],
	}
}

// decades is how many powers of ten d is above from.
func decades(d, from time.Duration) float64 { return math.Log10(float64(max(d, from)) / float64(from)) }

// plotTrade draws the trade: what is lost against how long others wait, with the slices that
// the default limits choose between marked.
func plotTrade(points []tradePoint) string {
	const width, height, margin = 520, 300, 60
	var b strings.Builder
	x := func(wait time.Duration) float64 {
		return margin + float64(width)*decades(wait, 100*time.Microsecond)/3.2
	}
	y := func(lost float64) float64 { return margin + height - float64(height)*min(lost, 20)/20 }
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", width+2*margin, height+2*margin)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/>`+"\n", width+2*margin, height+2*margin)
	for _, wait := range []time.Duration{100 * time.Microsecond, time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond} {
		fmt.Fprintf(&b, `<path d="M%.0f %d V%d" stroke="#ddd"/><text x="%.0f" y="%d" text-anchor="middle">%v</text>`+"\n", x(wait), margin, margin+height, x(wait), margin+height+16, wait)
	}
	for lost := 0.0; lost <= 20; lost += 5 {
		fmt.Fprintf(&b, `<path d="M%d %.0f H%d" stroke="#ddd"/><text x="%d" y="%.0f" text-anchor="end">%.0f %%</text>`+"\n", margin, y(lost), margin+width, margin-6, y(lost)+4, lost)
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle">wait of a group that wakes beside %d busy ones, p99</text>`+"\n", margin+width/2, margin+height+40, tradeGroups)
	fmt.Fprintf(&b, `<text transform="translate(14 %d) rotate(-90)" text-anchor="middle">lost to changes of groups</text>`+"\n", margin+height/2)
	var line []string
	for _, p := range points {
		line = append(line, fmt.Sprintf("%.1f,%.1f", x(p.wait), y(p.lost)))
	}
	fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="#2a7f9e" stroke-width="2"/>`+"\n", strings.Join(line, " "))
	for _, us := range marked() {
		p := tradeOf(us)
		fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="4" fill="#d98324"/><text x="%.1f" y="%.1f">%v</text>`+"\n", x(p.wait), y(p.lost), x(p.wait)+7, y(p.lost)-5, p.slice)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// marked are slices of the default limits, in µs.
func marked() []uint64 {
	l := timeshare.DefaultLimits()
	return []uint64{l.Wait[timeshare.Last], timeshare.DefaultSlice, l.Shortest, uint64(l.Deviation.Microseconds()), l.MaxSlice}
}
