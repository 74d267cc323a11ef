package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/qgpu-project/qgpu/internal/share"
)

var policies = []share.Policy{share.BestEffort, share.BurstShare, share.FixedShare}

// kernels are the numbers of blocks of kernels, and how long these take.
type kernels struct {
	equal, short, long       int
	equalNs, shortNs, longNs int64
	shortPart                float64 // of the card, in percent, that a load of short ones has alone
}

// A scene is tenants whose parts are measured.
type scene struct {
	policy share.Policy
	cores  []int
	what   string // the pattern of work, or what is special; empty: all work alike
	loads  []load
	idle   []bool // these do nothing
	waking bool   // the idle ones begin later
}

func (s scene) name() string {
	return fmt.Sprintf("%s %s %s", s.policy, s.mix(), s.what)
}

// mix is how the cores are written.
func (s scene) mix() string {
	if len(s.cores) > 3 {
		return fmt.Sprintf("%d × %d", len(s.cores), s.cores[0])
	}
	var parts []string
	for _, c := range s.cores {
		parts = append(parts, strconv.Itoa(c))
	}
	return strings.Join(parts, ":")
}

// asked is what each tenant should have, in percent, if those that idle does not name work.
func asked(p share.Policy, cores []int, idle []bool) []float64 {
	out := make([]float64, len(cores))
	busy, sum := 0, 0
	for i, c := range cores {
		if !idle[i] {
			busy++
			sum += c
		}
	}
	for i, c := range cores {
		switch {
		case idle[i]:
		case p == share.BestEffort:
			out[i] = 100 / float64(busy)
		case p == share.BurstShare:
			out[i] = 100 * float64(c) / float64(sum)
		default:
			out[i] = float64(c)
		}
	}
	return out
}

// newScene is a scene of tenants that all work alike.
func newScene(p share.Policy, blocks int, cores ...int) scene {
	s := scene{policy: p, cores: cores, idle: make([]bool, len(cores))}
	memory := "4Gi"
	if len(cores) > 3 {
		memory = "768Mi"
	}
	for _, c := range cores {
		s.loads = append(s.loads, load{
			share: []string{"--core", strconv.Itoa(c), "--policy", string(p)}, memory: memory, blocks: blocks,
		})
	}
	return s
}

// processes is how many a tenant of many has.
const processes = 40

// A group is scenes of the same tenants, one after the other: only shares change, or who
// works.
type group []scene

// pairs are the cores of two tenants.
var pairs = [][]int{{10, 90}, {30, 70}, {25, 75}, {50, 50}}

// A pattern is how the tenants of a scene work.
type pattern struct {
	what  string
	apply func(k kernels, loads []load)
	// narrow patterns are measured of pairs alone.
	narrow bool
}

var patterns = []pattern{
	{"", func(kernels, []load) {}, false},
	{"kernels of 100 µs against 20 ms", func(k kernels, loads []load) {
		for i := range loads {
			loads[i].blocks = [...]int{k.short, k.long}[i%2]
		}
	}, false},
	{fmt.Sprintf("%d processes against 1", processes), func(_ kernels, loads []load) {
		loads[0].many, loads[0].memory = processes, "8Gi"
	}, true},
	{"graphs", func(_ kernels, loads []load) {
		for i := range loads {
			loads[i].pattern = "graphs"
		}
	}, false},
	{"kernels of 100 µs, no sync between launches", func(k kernels, loads []load) {
		for i := range loads {
			loads[i].blocks = k.short
		}
	}, false},
}

// matrix is all groups, those of equal kernels first. A quick one leaves out all other
// patterns but of 30:70.
func matrix(k kernels, quick bool) (all []group) {
	for i, pat := range patterns {
		for _, p := range policies {
			all = append(all, pat.pairs(k, p, quick && i > 0))
			if !pat.narrow && (i == 0 || !quick) {
				all = append(all, pat.three(k, p), pat.sixteen(k, p))
			}
		}
	}
	return all
}

func (pat pattern) scene(k kernels, p share.Policy, cores ...int) scene {
	s := newScene(p, k.equal, cores...)
	s.what = pat.what
	pat.apply(k, s.loads)
	return s
}

func (pat pattern) pairs(k kernels, p share.Policy, one bool) (g group) {
	for _, cores := range pairs {
		if !one || cores[0] == 30 {
			g = append(g, pat.scene(k, p, cores...))
		}
	}
	return g
}

// three is three tenants of which one idles, and then works.
func (pat pattern) three(k kernels, p share.Policy) group {
	idle, waking := pat.scene(k, p, 5, 5, 10), pat.scene(k, p, 5, 5, 10)
	idle.what, idle.idle[2] = join("the third is idle", pat.what), true
	waking.what, waking.waking, waking.idle[2] = join("the third has woken", pat.what), true, true
	return group{idle, waking}
}

func (pat pattern) sixteen(k kernels, p share.Policy) group {
	return group{pat.scene(k, p, slices.Repeat([]int{5}, 16)...)}
}

func join(what, more string) string {
	if more == "" {
		return what
	}
	return what + "; " + more
}

// Times on the card's clock.
const (
	settling = 200 * time.Millisecond
	steady   = time.Second
	brief    = 100 * time.Millisecond
	// starting is what each further process of a tenant takes: a tenant counts as having
	// begun when its first one has.
	starting = 80 * time.Millisecond
)

// settling is from the first work of all tenants to the measurement.
func (sc scene) settling() time.Duration {
	wait := settling
	for _, l := range sc.loads {
		wait += time.Duration(l.many) * starting
	}
	return wait
}

// A cell is what was measured of a scene. Parts are in percent of the card's time.
type cell struct {
	scene
	asked, got []float64
	brief      float64       // the largest error in any 100 ms
	excess     float64       // the most that a tenant had above its core in any 100 ms, in its turns; fixed-share
	woken      float64       // what a waking tenant had in its first 100 ms
	turn       time.Duration // of the tenant that excess is of
}

// group measures scenes of the same tenants.
func (s *place) group(g group) (cells []cell, err error) {
	tenants, end, err := s.startAll(g[0].loads)
	defer end()
	if err != nil {
		return nil, err
	}
	for i, sc := range g {
		base, err := s.read(tenants)
		if err != nil {
			return cells, err
		}
		switch {
		case i == 0 || sc.waking:
			err = s.begin(tenants, sc.idle, sc.waking, base)
		default:
			err = s.set(tenants, sc.cores)
		}
		if err != nil {
			return cells, err
		}
		c, err := s.cell(tenants, sc)
		if err != nil {
			return cells, err
		}
		fmt.Fprintln(os.Stderr, c.name(), c.got)
		cells = append(cells, c)
	}
	return cells, nil
}

// set gives running tenants other cores, the lower ones first.
func (s *place) set(tenants []*tenant, cores []int) error {
	for _, raise := range []bool{false, true} {
		for i, t := range tenants {
			if cores[i] == t.core || cores[i] > t.core != raise {
				continue
			}
			if _, err := s.run("qgpu", "set", t.id, "--core", strconv.Itoa(cores[i])); err != nil {
				return err
			}
			t.core = cores[i]
		}
	}
	return nil
}

// cell measures a scene whose tenants work.
func (s *place) cell(tenants []*tenant, sc scene) (c cell, err error) {
	wait := sc.settling()
	rec, err := s.watch(tenants, wait+steady)
	if err != nil {
		return c, err
	}
	idle := sc.idle
	if sc.waking {
		idle = make([]bool, len(sc.cores))
		c.woken = rec.parts(rec[0].at, brief)[len(sc.cores)-1]
	}
	c.scene = sc
	c.asked = asked(sc.policy, sc.cores, idle)
	from := rec[0].at + uint64(wait)
	c.got = rec.parts(from, steady)
	return c, c.briefly(rec, from)
}

// begin has those tenants work that are idle, or not, and waits until each has had
// something of the card.
func (s *place) begin(tenants []*tenant, idle []bool, which bool, base reading) error {
	for i, t := range tenants {
		if idle[i] == which {
			if err := t.work(); err != nil {
				return err
			}
		}
	}
	for until := time.Now().Add(patience); time.Now().Before(until); time.Sleep(pause) {
		now, err := s.read(tenants)
		if err != nil {
			return err
		}
		waiting := false
		for i := range tenants {
			waiting = waiting || idle[i] == which && now.used[i] <= base.used[i]
		}
		if !waiting {
			return nil
		}
	}
	return fmt.Errorf("not all tenants had something of the card within %v", patience)
}

// briefly looks at all windows of 100 ms from time from on.
func (c *cell) briefly(rec record, from uint64) error {
	for len(rec) > 1 && rec[0].at < from {
		rec = rec[1:]
	}
	turns, err := turns(c.policy, c.cores)
	if err != nil {
		return err
	}
	rec.windows(brief, func(parts []float64) {
		for i, p := range parts {
			c.brief = max(c.brief, p-c.asked[i], c.asked[i]-p)
			above := time.Duration((p - float64(c.cores[i])) / 100 * float64(brief))
			if of := float64(above) / float64(turns[i]); c.policy == share.FixedShare && of > c.excess {
				c.excess, c.turn = of, turns[i]
			}
		}
	})
	return nil
}

// error is the largest of a tenant's, in points.
func (c cell) error() float64 {
	worst := 0.0
	for i := range c.got {
		worst = max(worst, c.got[i]-c.asked[i], c.asked[i]-c.got[i])
	}
	return worst
}

// shortfall is by how much the tenant furthest below its core is below it, in points.
func (c cell) shortfall() float64 {
	worst := 0.0
	for i := range c.got {
		if c.asked[i] > 0 {
			worst = max(worst, float64(c.cores[i])-c.got[i])
		}
	}
	return worst
}

// waste is what nobody had, in points.
func (c cell) waste() float64 {
	left := 100.0
	for _, g := range c.got {
		left -= g
	}
	return max(left, 0)
}
