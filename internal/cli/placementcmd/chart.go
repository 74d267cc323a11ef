package placementcmd

import (
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"strings"
)

// chart is lines over a common axis, drawn as SVG.
type chart struct {
	title, x, y string
	lines       []line
}

type line struct {
	name   string
	points []point
	dashed bool
}

type point struct{ x, y float64 }

// colours are told apart by people who do not tell red from green (Okabe and Ito).
var colours = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999"}

const (
	chartWidth, chartHeight               = 760, 420
	leftEdge, topEdge, rightEdge, lowEdge = 60, 40, 180, 50
)

// write draws c.
func (c *chart) write(w io.Writer) error {
	low, high := c.bounds()
	width, height := float64(chartWidth-leftEdge-rightEdge), float64(chartHeight-topEdge-lowEdge)
	at := func(p point) (x, y float64) {
		return leftEdge + (p.x-low.x)/(high.x-low.x)*width, topEdge + (high.y-p.y)/(high.y-low.y)*height
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", chartWidth, chartHeight)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/>`+"\n", chartWidth, chartHeight)
	fmt.Fprintf(&b, `<text x="%d" y="22" font-size="14">%s</text>`+"\n", leftEdge, escape(c.title))
	for _, x := range ticks(low.x, high.x) {
		px, _ := at(point{x, low.y})
		fmt.Fprintf(&b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#ddd"/><text x="%.1f" y="%d" text-anchor="middle">%g</text>`+"\n",
			px, topEdge, px, chartHeight-lowEdge, px, chartHeight-lowEdge+16, x)
	}
	for _, y := range ticks(low.y, high.y) {
		_, py := at(point{low.x, y})
		fmt.Fprintf(&b, `<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%g</text>`+"\n",
			leftEdge, py, chartWidth-rightEdge, py, leftEdge-6, py+4, y)
	}
	fmt.Fprintf(&b, `<text x="%.0f" y="%d" text-anchor="middle">%s</text>`+"\n", leftEdge+width/2, chartHeight-12, escape(c.x))
	fmt.Fprintf(&b, `<text transform="translate(16 %.0f) rotate(-90)" text-anchor="middle">%s</text>`+"\n", topEdge+height/2, escape(c.y))
	for i, l := range c.lines {
		colour, dash := colours[i%len(colours)], ""
		if l.dashed {
			dash = ` stroke-dasharray="6 4"`
		}
		fmt.Fprintf(&b, `<polyline fill="none" stroke="%s" stroke-width="1.8"%s points="`, colour, dash)
		for _, p := range l.points {
			x, y := at(p)
			fmt.Fprintf(&b, "%.1f,%.1f ", x, y)
		}
		key := topEdge + 10 + 20*i
		fmt.Fprintf(&b, `"/><line x1="%d" y1="%d" x2="%d" y2="%d" stroke="%s" stroke-width="2"%s/><text x="%d" y="%d">%s</text>`+"\n",
			chartWidth-rightEdge+12, key, chartWidth-rightEdge+40, key, colour, dash, chartWidth-rightEdge+46, key+4, escape(l.name))
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func (c *chart) bounds() (low, high point) {
	low, high = point{math.Inf(1), math.Inf(1)}, point{math.Inf(-1), math.Inf(-1)}
	for _, l := range c.lines {
		for _, p := range l.points {
			low = point{min(low.x, p.x), min(low.y, p.y)}
			high = point{max(high.x, p.x), max(high.y, p.y)}
		}
	}
	if !(low.x < high.x) {
		low.x, high.x = 0, 1
	}
	if !(low.y < high.y) {
		low.y, high.y = low.y-1, low.y+1
	}
	if math.IsInf(low.y, 0) {
		low.y, high.y = 0, 1
	}
	return low, high
}

// ticks are about eight round numbers between low and high.
func ticks(low, high float64) []float64 {
	raw := (high - low) / 8
	step := math.Pow(10, math.Floor(math.Log10(raw)))
	for _, m := range []float64{2, 2.5, 2} { // 2, 5, 10 times
		if step < raw {
			step *= m
		}
	}
	var t []float64
	for i := math.Ceil(low / step); i*step <= high; i++ {
		t = append(t, math.Round(i*step*1e6)/1e6)
	}
	return t
}

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s))
	return b.String()
}
