// Package placementcmd is the qgpu-placement-sim command: it replays a trace, or a
// cluster's own history, under placement policies and compares what they strand.
package placementcmd

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/qgpu-project/qgpu/internal/replay"
)

// options are those of the root command.
type options struct {
	trace    string
	pods     []string
	policies []string
	protocol string
	loads    []float64
	seeds    string
	memory   int64
	svg      string
}

// New makes the command.
func New() *cobra.Command {
	o := &options{}
	c := &cobra.Command{
		Use:   "qgpu-placement-sim --trace DIR",
		Short: "Compare placement policies on a trace or on a cluster's own history",
		Long: `qgpu-placement-sim replays pods against a model of a cluster under placement
policies, and says how much of the cards each could give away, and whose pods it
turned away. DIR holds nodes.csv and pods.csv, as "kubectl qgpu export-trace" writes
them, or the published openb trace.

Protocols:
  inflation  pods arrive in random order and stay, up to LOAD times the cluster's cards
  churn      pods come and go at random around a steady LOAD; who does not fit is lost
  history    pods come and go at their recorded times; who does not fit waits

Equal seeds give equal results, whatever else the machine does.`,
		Example: `  qgpu-placement-sim --trace openb --policy frag,fgd,best-fit --seeds 5000-5009
  qgpu-placement-sim --trace openb --protocol churn --load 0.95,1.1 --policy frag,fgd
  qgpu-placement-sim --trace my-export --protocol history --policy frag,best-fit`,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE:         func(c *cobra.Command, _ []string) error { return o.run(c) },
	}
	f := c.Flags()
	f.StringVar(&o.trace, "trace", "", "folder of the trace")
	f.StringSliceVar(&o.pods, "pods", []string{""}, "lists of pods in a folder of the openb layout, or \"published\": the 17 of the published table")
	f.StringSliceVar(&o.policies, "policy", []string{"frag", "fgd", "best-fit"}, "policies: "+strings.Join(replay.Policies(), ", "))
	f.StringVar(&o.protocol, "protocol", "inflation", "inflation, churn or history")
	f.Float64SliceVar(&o.loads, "load", nil, "offered load, of the cluster's cards (default 1.3; churn 0.95)")
	f.StringVar(&o.seeds, "seeds", "1-3", "seeds, such as 42-51 or 1,2,3")
	f.Int64Var(&o.memory, "synthetic-memory", 0, "make up a demand for card memory, with this seed; 0: use what the trace records")
	f.StringVar(&o.svg, "svg", "", "draw curves into this file (inflation)")
	_ = c.MarkFlagRequired("trace")
	c.AddCommand(reproduceCommand(), reportCommand())
	return c
}

func (o *options) run(c *cobra.Command) error {
	jobs, err := o.jobs()
	if err != nil {
		return err
	}
	runs, err := runAll(c, jobs, nil)
	if err != nil {
		return err
	}
	if err := printTables(c.OutOrStdout(), jobs, runs); err != nil {
		return err
	}
	if o.svg == "" {
		return nil
	}
	return writeFile(o.svg, curves(jobs, runs).write)
}

// jobs are all runs that o asks for.
func (o *options) jobs() ([]replay.Job, error) {
	for _, p := range o.policies {
		if err := replay.ValidatePolicy(p); err != nil {
			return nil, err
		}
	}
	seeds, err := parseSeeds(o.seeds)
	if err != nil {
		return nil, err
	}
	protocols, err := o.protocols()
	if err != nil {
		return nil, err
	}
	traces, err := openTraces(o.trace, o.pods)
	if err != nil {
		return nil, err
	}
	var jobs []replay.Job
	for _, t := range traces {
		if o.memory != 0 {
			t = replay.WithMemory(t, o.memory)
		}
		jobs = append(jobs, allOf([]*replay.Trace{t}, protocols, o.policies, seeds)...)
	}
	return jobs, nil
}

func allOf(traces []*replay.Trace, protocols []replay.Protocol, policies []string, seeds []int64) []replay.Job {
	var jobs []replay.Job
	for _, t := range traces {
		for _, protocol := range protocols {
			for _, policy := range policies {
				for _, seed := range seeds {
					jobs = append(jobs, replay.Job{Trace: t, Policy: policy, Seed: seed, Protocol: protocol})
				}
			}
		}
	}
	return jobs
}

func (o *options) protocols() ([]replay.Protocol, error) {
	loads := o.loads
	if o.protocol == "history" {
		return []replay.Protocol{replay.History{}}, nil
	}
	if len(loads) == 0 {
		loads = []float64{map[string]float64{"inflation": 1.3, "churn": 0.95}[o.protocol]}
	}
	var protocols []replay.Protocol
	for _, load := range loads {
		switch {
		case o.protocol != "inflation" && o.protocol != "churn":
			return nil, fmt.Errorf("protocol %q is unknown; the protocols are inflation, churn and history", o.protocol)
		case !(load > 0 && load <= 10):
			return nil, fmt.Errorf("load %v is not in 0…10; 1 is as much as the cluster has", load)
		case o.protocol == "inflation":
			protocols = append(protocols, replay.Inflation{Load: load})
		default:
			protocols = append(protocols, steady(load))
		}
	}
	return protocols, nil
}

// steady is the churn that all numbers of docs/placement.md come from.
func steady(load float64) replay.Churn { return replay.Churn{Load: load, WarmUp: 2, Measured: 4} }

func openTraces(dir string, lists []string) ([]*replay.Trace, error) {
	var traces []*replay.Trace
	for _, name := range lists {
		names := []string{name}
		if name == "published" {
			names = replay.PublishedTraces()
		}
		for _, name := range names {
			t, err := replay.Open(dir, name)
			if err != nil {
				return nil, err
			}
			traces = append(traces, t)
		}
	}
	return traces, nil
}

// parseSeeds reads 1,2,10-19.
func parseSeeds(text string) ([]int64, error) {
	const most = 10_000
	var seeds []int64
	for part := range strings.SplitSeq(text, ",") {
		first, last, span := strings.Cut(part, "-")
		if !span {
			last = first
		}
		from, err := strconv.ParseInt(strings.TrimSpace(first), 10, 64)
		to, err2 := strconv.ParseInt(strings.TrimSpace(last), 10, 64)
		if err = errors.Join(err, err2); err != nil || to < from || to-from >= most {
			return nil, fmt.Errorf("seeds %q: write for example 42-51 or 1,2,3", text)
		}
		for s := from; s <= to; s++ {
			seeds = append(seeds, s)
		}
	}
	return seeds, nil
}

// runAll makes the runs and shows progress on standard error. done is called after each.
func runAll(c *cobra.Command, jobs []replay.Job, done func(replay.Job, *replay.Run)) ([]*replay.Run, error) {
	p := newProgress(c.ErrOrStderr(), len(jobs))
	defer p.end()
	return replay.RunAll(c.Context(), jobs, func(j replay.Job, r *replay.Run) {
		if done != nil {
			done(j, r)
		}
		p.step(fmt.Sprintf("%s %s seed %d", r.Trace, r.Policy, r.Seed))
	})
}

// printTables prints a table for each trace and protocol.
func printTables(w io.Writer, jobs []replay.Job, runs []*replay.Run) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	title := ""
	for _, g := range groups(jobs, runs) {
		if t := g.title(); t != title {
			title = t
			fmt.Fprintf(out, "\n%s\n%s\n", title, g.header())
		}
		fmt.Fprintln(out, g.row())
	}
	return out.Flush()
}

// group is the runs that differ in their seeds only.
type group struct {
	job  replay.Job
	runs []*replay.Run
}

func groups(jobs []replay.Job, runs []*replay.Run) []group {
	var out []group
	for i, j := range jobs {
		last := len(out) - 1
		if last < 0 || out[last].job.Trace != j.Trace || out[last].job.Policy != j.Policy || out[last].job.Protocol != j.Protocol {
			out = append(out, group{job: j})
			last++
		}
		out[last].runs = append(out[last].runs, runs[i])
	}
	return out
}

func (g *group) title() string {
	name := g.job.Trace.Name
	if name == "" {
		name = "trace"
	}
	switch p := g.job.Protocol.(type) {
	case replay.Inflation:
		return fmt.Sprintf("%s, inflation to %g: percent of cards allocated", name, p.Load)
	case replay.Churn:
		return fmt.Sprintf("%s, churn at %g: percent of cards in use", name, p.Load)
	}
	return name + ", history: percent of cards in use"
}

func (g *group) header() string {
	lost := "\tlost %"
	for _, k := range replay.Kinds() {
		lost += "\t" + k
	}
	switch g.job.Protocol.(type) {
	case replay.Inflation:
		return "policy\tat 95 %\tat 100 %\tat the end" + lost
	case replay.History:
		return "policy\tin use" + strings.Replace(lost, "lost", "waited", 1) + "\tmean wait"
	}
	return "policy\tin use" + lost
}

func (g *group) row() string {
	cells := []string{g.job.Policy}
	switch p := g.job.Protocol.(type) {
	case replay.Inflation:
		for _, at := range []int{95, 100, int(math.Round(p.Load * 100))} {
			cells = append(cells, g.stat(func(r *replay.Run) float64 { return r.At(at) }).String())
		}
	default:
		cells = append(cells, g.stat(func(r *replay.Run) float64 { return r.Steady }).String())
	}
	cells = append(cells, fmt.Sprintf("%.2f", g.stat((*replay.Run).LostPercent).mean))
	for k := range g.runs[0].Lost {
		cells = append(cells, fmt.Sprintf("%.1f", g.lost(k)))
	}
	if _, ok := g.job.Protocol.(replay.History); ok {
		wait := g.stat(func(r *replay.Run) float64 { return r.Waited / float64(max(1, total(r.Arrived[:]))) }).mean
		cells = append(cells, (time.Duration(wait) * time.Second).String())
	}
	return strings.Join(cells, "\t")
}

// lost is the percent of pods of a kind that were lost, of all seeds together.
func (g *group) lost(kind int) float64 {
	var arrived, lost int
	for _, r := range g.runs {
		arrived += r.Arrived[kind]
		lost += r.Lost[kind]
	}
	if arrived == 0 {
		return 0
	}
	return float64(lost) / float64(arrived) * 100
}

func total(v []int) (sum int) {
	for _, n := range v {
		sum += n
	}
	return sum
}

// stat is a mean over seeds with its standard deviation.
type stat struct {
	mean, deviation float64
	n               int
}

func (g *group) stat(of func(*replay.Run) float64) stat {
	s := stat{n: len(g.runs)}
	for _, r := range g.runs {
		s.mean += of(r) / float64(s.n)
	}
	for _, r := range g.runs {
		d := of(r) - s.mean
		s.deviation += d * d
	}
	if s.n > 1 {
		s.deviation = math.Sqrt(s.deviation / float64(s.n-1))
	}
	return s
}

func (s stat) String() string {
	if s.n < 2 {
		return fmt.Sprintf("%.2f", s.mean)
	}
	return fmt.Sprintf("%.2f ± %.2f", s.mean, s.deviation)
}

// curves draws what is allocated over what arrived, the mean of all seeds, of the
// first trace.
func curves(jobs []replay.Job, runs []*replay.Run) *chart {
	c := &chart{x: "arrived demand, percent of the cluster's cards", y: "allocated, percent"}
	for _, g := range groups(jobs, runs) {
		if g.job.Trace != jobs[0].Trace || g.job.Protocol != jobs[0].Protocol {
			continue
		}
		c.title = g.title()
		c.lines = append(c.lines, line{name: g.job.Policy, points: g.curve(70)})
	}
	return c
}

// curve is the mean curve from a percent of arrived load on.
func (g *group) curve(from int) []point {
	var points []point
	for at := from; at < len(g.runs[0].Allocated); at++ {
		v := g.stat(func(r *replay.Run) float64 { return r.At(at) }).mean
		if !math.IsNaN(v) {
			points = append(points, point{float64(at), v})
		}
	}
	return points
}

func writeFile(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	err = write(f)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return err
}
