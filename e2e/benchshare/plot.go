package main

import (
	"fmt"
	"strings"

	"github.com/qgpu-project/qgpu/internal/share"
)

// published are asked and measured parts that others have, in percent (HAMi-core issue 314
// and the pull request 317 that followed it).
var published = [][2]float64{{30, 46}, {70, 54}}

// Sides of the plot in pixels.
const (
	plotSide   = 400
	plotMargin = 50
)

var colours = map[share.Policy]string{
	share.BestEffort: "#2a7f9e", share.BurstShare: "#d98324", share.FixedShare: "#7a4fa3",
}

// plot draws every tenant's asked and measured part as SVG.
func plot(cells []cell) string {
	var b strings.Builder
	x := func(v float64) float64 { return plotMargin + v/100*plotSide }
	y := func(v float64) float64 { return plotMargin + plotSide - v/100*plotSide }
	const all = plotSide + 2*plotMargin
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", all+170, all)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/>`+"\n", all+170, all)
	for v := 0.0; v <= 100; v += 25 {
		fmt.Fprintf(&b, `<path d="M%.0f %.0fH%.0fM%.0f %.0fV%.0f" stroke="#ddd"/>`+"\n", x(0), y(v), x(100), x(v), y(0), y(100))
		fmt.Fprintf(&b, `<text x="%.0f" y="%.0f" text-anchor="end">%.0f</text><text x="%.0f" y="%.0f" text-anchor="middle">%.0f</text>`+"\n", x(0)-6, y(v)+4, v, x(v), y(0)+16, v)
	}
	fmt.Fprintf(&b, `<path d="M%.0f %.0fL%.0f %.0f" stroke="#888" stroke-dasharray="4 4"/>`+"\n", x(0), y(0), x(100), y(100))
	fmt.Fprintf(&b, `<text x="%.0f" y="%.0f" text-anchor="middle">asked, %% of the card's time</text>`+"\n", x(50), y(0)+36)
	fmt.Fprintf(&b, `<text transform="translate(14 %.0f) rotate(-90)" text-anchor="middle">measured</text>`+"\n", y(50))
	for _, c := range cells {
		for i := range c.got {
			fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="3.5" fill="%s" fill-opacity="0.6"><title>%s</title></circle>`+"\n",
				x(c.asked[i]), y(c.got[i]), colours[c.policy], strings.TrimSpace(c.name()))
		}
	}
	for _, p := range published {
		fmt.Fprintf(&b, `<path d="M%.1f %.1fl8 8m-8 0l8 -8" stroke="#c00" stroke-width="2"/>`+"\n", x(p[0])-4, y(p[1])-4)
	}
	for i, p := range policies {
		fmt.Fprintf(&b, `<circle cx="%d" cy="%d" r="4" fill="%s"/><text x="%d" y="%d">%s</text>`+"\n", all, 64+20*i, colours[p], all+10, 68+20*i, p)
	}
	fmt.Fprintf(&b, `<path d="M%d 120l8 8m-8 0l8 -8" stroke="#c00" stroke-width="2"/><text x="%d" y="128">HAMi-core, as published</text>`+"\n</svg>\n", all-4, all+10)
	return b.String()
}
