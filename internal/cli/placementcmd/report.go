package placementcmd

import (
	"bytes"
	_ "embed"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"text/template"

	"github.com/spf13/cobra"

	"github.com/qgpu-project/qgpu/internal/replay"
)

//go:embed report.md.tmpl
var reportText string

// Seeds of the report. None was used to choose the policy or its weights.
const (
	publishedSeed = 42
	staticSeed    = 5000
	churnSeed     = 31000
	memorySeed    = 1 // of the made-up demand for card memory
)

var (
	ownPolicies   = []string{"fgd", "frag"}
	churnPolicies = []string{"random", "best-fit", "fgd", "frag"}
	churnTraces   = []string{"default", "multigpu30", "gpuspec33", "gpushare60"}
	churnLoads    = []float64{0.95, 1.10}
)

// reporter makes docs/placement.md.
type reporter struct {
	command *cobra.Command
	dir     string // of the trace
	out     string
	store   *store
	seeds   int // of each kind
}

// from is as many seeds as the report uses, from first on.
func (r *reporter) from(first int64) []int64 {
	seeds := make([]int64, r.seeds)
	for i := range seeds {
		seeds[i] = first + int64(i)
	}
	return seeds
}

func (r *reporter) span(first int64) string {
	return fmt.Sprintf("%d–%d", first, first+int64(r.seeds)-1)
}

func reportCommand() *cobra.Command {
	var dir, out, runs string
	var seeds int
	c := &cobra.Command{
		Use:   "report --trace DIR -o FILE",
		Short: "Measure everything docs/placement.md says, and write it",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if seeds < 1 || seeds > publishedRuns {
				return fmt.Errorf("%d seeds: a report uses 1 to %d", seeds, publishedRuns)
			}
			s, err := openStore(runs)
			if err != nil {
				return err
			}
			return (&reporter{c, dir, out, s, seeds}).write()
		},
	}
	c.Flags().StringVar(&dir, "trace", "", "folder of the openb trace")
	c.Flags().StringVarP(&out, "output", "o", "docs/placement.md", "the page; its curves lie beside it")
	c.Flags().IntVar(&seeds, "seeds", publishedRuns, "seeds of each kind; fewer are sooner done")
	c.Flags().StringVar(&runs, "runs", "", "keep finished runs in this file, and take them from there")
	_ = c.MarkFlagRequired("trace")
	return c
}

func (r *reporter) write() error {
	data := struct {
		Reproduction, Static, Churn, Memory, Speed string
		Apart                                      difference
		Summary                                    summary
		StaticSeeds, ChurnSeeds, MemorySeeds       string
		PublishedSeeds                             string
		MemorySeed                                 int
		Machine                                    string
	}{
		StaticSeeds: r.span(staticSeed), ChurnSeeds: r.span(churnSeed), MemorySeeds: r.span(staticSeed),
		PublishedSeeds: r.span(publishedSeed), MemorySeed: memorySeed, Machine: machine(),
	}
	for _, part := range []func() error{
		func() (err error) { data.Speed, err = r.speed(); return },
		func() (err error) { data.Static, data.Summary, err = r.static(); return },
		func() (err error) { data.Churn, err = r.churn(); return },
		func() (err error) { data.Memory, err = r.memory(); return },
		func() (err error) { data.Reproduction, data.Apart, err = r.reproduction(); return },
	} {
		if err := part(); err != nil {
			return err
		}
	}
	t, err := template.New("report").Parse(reportText)
	if err != nil {
		return err
	}
	var page bytes.Buffer
	if err := t.Execute(&page, data); err != nil {
		return err
	}
	return os.WriteFile(r.out, page.Bytes(), 0o644)
}

func machine() string {
	load := "unknown"
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		load, _, _ = strings.Cut(string(b), " ")
	}
	return fmt.Sprintf("%d processors, shared with other work; load average %s at the end", runtime.NumCPU(), load)
}

// reproduction is the published table beside ours.
func (r *reporter) reproduction() (string, difference, error) {
	cells, err := reproduce(r.command, r.store, r.dir, r.from(publishedSeed))
	if err != nil {
		return "", difference{}, err
	}
	policies := replay.PublishedPolicies()
	t := newTable(append([]string{"pods"}, policies...)...)
	for _, trace := range replay.PublishedTraces() {
		row := []string{trace}
		for _, p := range policies {
			for _, c := range cells {
				if c.trace == trace && c.policy == p {
					row = append(row, fmt.Sprintf("%.2f / %.2f", c.published.mean, c.ours.mean))
				}
			}
		}
		t.add(row...)
	}
	return t.String(), differences(cells), nil
}

// summary is what the static table says in short.
type summary struct {
	Gain, Closure     float64 // means
	Least             float64 // gain on the worst trace
	Worst             string  // which that is
	Default, Gpuspec3 float64 // allocation
	Closed            int     // traces on which frag is ahead
}

// static is frag beside FGD and the upper bound, and the curves.
func (r *reporter) static() (string, summary, error) {
	s := summary{Least: 100}
	bounds, err := replay.ReadBounds(filepath.Join(r.dir, "expected", "upper_bound_lp.txt"))
	if err != nil {
		return "", s, err
	}
	traces, err := openTraces(r.dir, []string{"published"})
	if err != nil {
		return "", s, err
	}
	jobs := allOf(traces, []replay.Protocol{replay.Inflation{Load: 1.3}}, ownPolicies, r.from(staticSeed))
	runs, err := r.store.run(r.command, jobs)
	if err != nil {
		return "", s, err
	}
	t := newTable("pods", "FGD at 95 %", "FGD at 100 %", "frag at 95 %", "frag at 100 %", "gain", "bound", "gap closed", "8-card pods lost, FGD", "frag")
	all := groups(jobs, runs)
	for i := 0; i < len(all); i += len(ownPolicies) {
		fgd, ours := &all[i], &all[i+1]
		name, at := fgd.job.Trace.Name, func(p int) func(*replay.Run) float64 {
			return func(run *replay.Run) float64 { return run.At(p) }
		}
		was, is, bound := fgd.stat(at(full)), ours.stat(at(full)), bounds[name]
		gain := is.mean - was.mean
		closure := gain / (bound - was.mean) * 100
		t.add(name, fgd.stat(at(95)).String(), was.String(), ours.stat(at(95)).String(), is.String(),
			fmt.Sprintf("%+.2f", gain), fmt.Sprintf("%.2f", bound), fmt.Sprintf("%.0f %%", closure),
			fmt.Sprintf("%.1f %%", fgd.lost(eight)), fmt.Sprintf("%.1f %%", ours.lost(eight)))
		s.Gain += gain / float64(len(traces))
		s.Closure += closure / float64(len(traces))
		if gain < s.Least {
			s.Least, s.Worst = gain, name
		}
		if gain > 0 {
			s.Closed++
		}
		switch name {
		case "default":
			s.Default = is.mean
		case "gpuspec33":
			s.Gpuspec3 = is.mean
		}
	}
	return t.String(), s, r.draw(all)
}

// eight is the kind of pods with eight cards.
const eight = 4

// draw draws the curves of two traces.
func (r *reporter) draw(all []group) error {
	for i := 0; i < len(all); i += len(ownPolicies) {
		name := all[i].job.Trace.Name
		if name != "default" && name != "gpuspec33" {
			continue
		}
		c := &chart{
			title: "openb, " + name + ": mean of seeds " + r.span(staticSeed),
			x:     "arrived demand, percent of the cluster's cards", y: "allocated, percent",
		}
		for _, g := range all[i : i+len(ownPolicies)] {
			c.lines = append(c.lines, line{name: g.job.Policy, points: g.curve(80)})
		}
		c.lines = append(c.lines, line{name: "all that arrived", dashed: true, points: []point{{80, 80}, {100, 100}}})
		if err := writeFile(strings.TrimSuffix(r.out, ".md")+"-"+name+".svg", c.write); err != nil {
			return err
		}
	}
	return nil
}

// churn is all policies in the steady state.
func (r *reporter) churn() (string, error) {
	traces, err := openTraces(r.dir, churnTraces)
	if err != nil {
		return "", err
	}
	var protocols []replay.Protocol
	for _, load := range churnLoads {
		protocols = append(protocols, steady(load))
	}
	jobs := allOf(traces, protocols, churnPolicies, r.from(churnSeed))
	runs, err := r.store.run(r.command, jobs)
	if err != nil {
		return "", err
	}
	t := newTable("pods, load", "policy", "in use", "demand lost", "parts lost", "1 card", "2", "4", "8")
	for _, g := range groups(jobs, runs) {
		row := []string{
			fmt.Sprintf("%s, %.2f", g.job.Trace.Name, g.job.Protocol.(replay.Churn).Load), g.job.Policy,
			g.stat(func(r *replay.Run) float64 { return r.Steady }).String(),
			fmt.Sprintf("%.2f %%", g.stat((*replay.Run).LostPercent).mean),
		}
		for kind := range eight + 1 {
			row = append(row, fmt.Sprintf("%.1f %%", g.lost(kind)))
		}
		t.add(row...)
	}
	return t.String(), nil
}

// memory is the second benchmark, in which pods ask for card memory too.
func (r *reporter) memory() (string, error) {
	traces, err := openTraces(r.dir, []string{"default", "gpushare60", "gpushare100"})
	if err != nil {
		return "", err
	}
	for i := range traces {
		traces[i] = replay.WithMemory(traces[i], memorySeed)
	}
	jobs := allOf(traces, []replay.Protocol{replay.Inflation{Load: 1.3}}, []string{"best-fit", "fgd", "frag"}, r.from(staticSeed))
	runs, err := r.store.run(r.command, jobs)
	if err != nil {
		return "", err
	}
	t := newTable("pods", "policy", "core at 95 %", "core at 100 %", "core at the end", "card memory at the end", "parts lost", "1-card pods lost")
	for _, g := range groups(jobs, runs) {
		row := []string{g.job.Trace.Name, g.job.Policy}
		for _, at := range []int{95, full, 130} {
			row = append(row, g.stat(func(r *replay.Run) float64 { return r.At(at) }).String())
		}
		row = append(row, g.stat(func(r *replay.Run) float64 { return r.Memory }).String())
		t.add(append(row, fmt.Sprintf("%.1f %%", g.lost(0)), fmt.Sprintf("%.1f %%", g.lost(1)))...)
	}
	return t.String(), nil
}

// speed is what choosing costs.
func (r *reporter) speed() (string, error) {
	t := newTable("policy", "nodes × cards", "median", "p99", "mean", "allocations per pod")
	trace, err := replay.Open(r.dir, "default")
	if err != nil {
		return "", err
	}
	for _, policy := range []string{"fgd", "frag"} {
		for _, nodes := range []int{1000, 5000} {
			s, err := replay.MeasureSpeed(trace, policy, nodes, 5000, 1)
			if err != nil {
				return "", err
			}
			fmt.Fprintf(r.command.ErrOrStderr(), "%s on %d nodes: %v at p99\n", policy, nodes, s.P99)
			t.add(policy, fmt.Sprintf("%d × %d", s.Nodes, s.Cards/s.Nodes), ms(s.Median.Seconds()), ms(s.P99.Seconds()), ms(s.Mean.Seconds()), fmt.Sprintf("%.1f", s.AllocsPerPod))
		}
	}
	return t.String(), nil
}

func ms(seconds float64) string { return fmt.Sprintf("%.3f ms", seconds*1000) }

// table is a table in Markdown.
type table struct{ b strings.Builder }

func newTable(header ...string) *table {
	t := &table{}
	t.add(header...)
	t.b.WriteString("|" + strings.Repeat("---|", len(header)) + "\n")
	return t
}

func (t *table) add(cells ...string) {
	_, _ = io.WriteString(&t.b, "| "+strings.Join(cells, " | ")+" |\n")
}

func (t *table) String() string { return strings.TrimRight(t.b.String(), "\n") }
