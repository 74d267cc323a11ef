package main

import (
	_ "embed"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/qgpu-project/qgpu/internal/share"
)

// results are all that was measured.
type results struct {
	kernels kernels
	cells   []cell
	left    []scene // not measured
	online  online
	cost    []costs
}

//go:embed report.md.tmpl
var reportText string

// row is a cell for those who read it at a terminal.
func (c cell) row() string {
	return fmt.Sprintf("%s: had %.1f, asked %.1f, largest error %.1f, in 100 ms %.1f", c.name(), c.got, c.asked, c.error(), c.brief)
}

// An aim is what was to be reached, with what was.
type aim struct {
	What, Got string
	Met       string
}

func newAim(what, got string, met bool) aim {
	if met {
		return aim{what, got, "met"}
	}
	return aim{what, got, "**not met**"}
}

// page is what the template shows.
type page struct {
	Cores                   int
	Load, Plot              string
	Equal, Short, Long      string
	ShortPart               string
	Cells                   []cellRow
	Left                    []string
	Woken                   []string
	Online                  onlinePage
	Cost                    []costRow
	Aims                    []aim
	Steady, Brief, Settling time.Duration
	Many                    time.Duration // settling of a tenant of Processes
	Processes               int
	Pings                   int
}

type cellRow struct{ Policy, Mix, What, Asked, Got, Error, Brief, Idle string }

type onlinePage struct {
	Alone, Both                         [3]string // clock, trip and card: p50, p99
	Added                               string
	Idle, Taken                         string
	BurstyIdle, BurstyTaken             string
	AloneBusy, BesideBusy, NeighbourHad string
}

type costRow struct{ Policy, Tenants, Sum, Lost string }

func (r *results) write(w io.Writer, plot string) error {
	p := page{
		Cores: runtime.NumCPU(), Load: loadAverage(), Plot: plot,
		Equal: show(r.kernels.equalNs), Short: show(r.kernels.shortNs), Long: show(r.kernels.longNs),
		ShortPart: points(r.kernels.shortPart), Steady: steady, Brief: brief, Settling: settling, Many: settling + processes*starting, Processes: processes,
		Pings: pings, Online: r.online.page(),
	}
	for _, c := range r.cells {
		p.Cells = append(p.Cells, cellRow{
			string(c.policy), c.mix(), c.what, list(c.asked), list(c.got), fmt.Sprintf("%.2f", c.error()), points(c.brief), points(c.waste()),
		})
		if c.waking {
			p.Woken = append(p.Woken, fmt.Sprintf("%s: %s of %s %%", c.policy, points(c.woken), points(c.asked[2])))
		}
	}
	for _, s := range r.left {
		p.Left = append(p.Left, s.name())
	}
	for _, c := range r.cost {
		p.Cost = append(p.Cost, costRow{string(c.policy), fmt.Sprint(c.tenants), fmt.Sprintf("%.2f", c.sum), fmt.Sprintf("%.2f", r.lost(c))})
	}
	p.Aims = r.aims()
	t, err := template.New("report").Parse(reportText)
	if err != nil {
		return err
	}
	return t.Execute(w, p)
}

// lost is by how much less than one alone some tenants had, in percent of that.
func (r *results) lost(c costs) float64 { return 100 * (1 - c.sum/r.cost[0].sum) }

func (r *results) aims() []aim {
	within, briefly := 0, 0
	excess, shortfall, waste, lost := 0.0, 0.0, 0.0, 0.0
	for _, c := range r.cells {
		if c.error() <= 1 {
			within++
		}
		if c.brief <= 3 {
			briefly++
		}
		excess = max(excess, c.excess)
		if c.policy == share.BurstShare {
			shortfall = max(shortfall, c.shortfall())
		}
		if c.policy != share.FixedShare {
			waste = max(waste, c.waste())
		}
	}
	for _, c := range r.cost {
		lost = max(lost, r.lost(c))
	}
	o, n := r.online, len(r.cells)
	added := percentile(o.both.Trip, 0.99) - percentile(o.alone.Trip, 0.99)
	slowed := 100 * (1 - o.besideBusy/o.aloneBusy)
	taken := 100 * min(o.taken/o.idle, o.bursty.taken/o.bursty.idle)
	return []aim{
		newAim("error of every share at most 1 point over 1 s", fmt.Sprintf("%d of %d cells", within, n), within == n),
		newAim("at most 3 points over any 100 ms", fmt.Sprintf("%d of %d cells", briefly, n), briefly == n),
		newAim("fixed-share: never above the cap by more than one turn in any 100 ms", fmt.Sprintf("%.2f turns above at most", excess), excess <= 1),
		newAim("burst-share: guarantees never missed", fmt.Sprintf("up to %.2f points missed over 1 s", shortfall), shortfall == 0),
		newAim("best-effort and burst-share: less than 1 % of the card unused", fmt.Sprintf("up to %.2f %%", waste), waste < 1),
		newAim("an online kernel waits less than 1 ms, p99", fmt.Sprintf("%s more at p99 than alone, launch and wait included", show(added)), added < int64(time.Millisecond)),
		newAim("online slowed by less than 2 % by an offline neighbour", fmt.Sprintf("%.2f %%", slowed), slowed < 2),
		newAim("offline has more than 90 % of what is idle", fmt.Sprintf("%.1f %%", taken), taken > 90),
		newAim("several tenants have less than 2 % less than one alone", fmt.Sprintf("up to %.2f %%", lost), lost < 2),
	}
}

func (o online) page() onlinePage {
	p := onlinePage{
		Idle: points(o.idle), Taken: points(o.taken), BurstyIdle: points(o.bursty.idle), BurstyTaken: points(o.bursty.taken),
		AloneBusy: fmt.Sprintf("%.2f", o.aloneBusy), BesideBusy: fmt.Sprintf("%.2f", o.besideBusy), NeighbourHad: fmt.Sprintf("%.2f", o.neighbourHad),
		Added: show(percentile(o.both.Trip, 0.5) - percentile(o.alone.Trip, 0.5)),
	}
	for i, both := range [][2][]int64{{o.alone.Clock, o.both.Clock}, {o.alone.Trip, o.both.Trip}, {o.alone.Card, o.both.Card}} {
		p.Alone[i] = show(percentile(both[0], 0.5)) + " | " + show(percentile(both[0], 0.99))
		p.Both[i] = show(percentile(both[1], 0.5)) + " | " + show(percentile(both[1], 0.99))
	}
	return p
}

// percentile of a sorted list, 0 if it is empty.
func percentile(sorted []int64, p float64) int64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(p*float64(len(sorted)-1))]
}

func show(ns int64) string {
	d := time.Duration(ns)
	if d.Abs() < time.Millisecond {
		return fmt.Sprintf("%.0f µs", float64(d)/float64(time.Microsecond))
	}
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}

func points(v float64) string { return fmt.Sprintf("%.1f", v) }

// list writes parts beside one another; of many, the lowest and the highest.
func list(parts []float64) string {
	if len(parts) > 3 {
		return fmt.Sprintf("%.2f–%.2f", slices.Min(parts), slices.Max(parts))
	}
	var out []string
	for _, p := range parts {
		out = append(out, points(p))
	}
	return strings.Join(out, " : ")
}

func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	var one string
	fmt.Sscan(string(text), &one)
	return one
}
