package placementcmd

import (
	"fmt"
	"io"
	"math"
	"path/filepath"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/qgpu-project/qgpu/internal/replay"
)

const (
	publishedTable = "expected/analysis_allo_discrete.csv"
	publishedRuns  = 10 // of each cell
	// full is the percent of arrived load at which tables are compared.
	full = 100
	// Bars of the reproduction, in points.
	mostMean, mostApart = 0.1, 0.5
)

func reproduceCommand() *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use:   "reproduce --trace DIR",
		Short: "Make the published table of the openb trace anew and compare",
		Long: `reproduce runs the six published policies on the 17 published lists of pods with
the ten published seeds, and compares the cards allocated at 100 % arrived load with
DIR/` + publishedTable + `.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			seeds := (&reporter{seeds: publishedRuns}).from(publishedSeed)
			cells, err := reproduce(c, &store{runs: map[string]*replay.Run{}}, dir, seeds)
			if err != nil {
				return err
			}
			d := differences(cells)
			if err := d.print(c.OutOrStdout(), cells); err != nil {
				return err
			}
			if d.Mean > mostMean || d.Most > mostApart {
				return fmt.Errorf("the table is not reproduced: %.2f points apart in the mean (at most %g), %.2f at most (at most %g)", d.Mean, mostMean, d.Most, mostApart)
			}
			return nil
		},
	}
	c.Flags().StringVar(&dir, "trace", "", "folder of the openb trace")
	_ = c.MarkFlagRequired("trace")
	return c
}

// cell is one cell of the published table, and ours.
type cell struct {
	trace, policy   string
	published, ours stat
}

// reproduce makes all cells, traces by policies.
func reproduce(c *cobra.Command, s *store, dir string, seeds []int64) ([]cell, error) {
	published, err := replay.ReadPublished(filepath.Join(dir, publishedTable))
	if err != nil {
		return nil, err
	}
	traces, err := openTraces(dir, []string{"published"})
	if err != nil {
		return nil, err
	}
	jobs := allOf(traces, []replay.Protocol{replay.Inflation{Load: 1.3}}, replay.PublishedPolicies(), seeds)
	runs, err := s.run(c, jobs)
	if err != nil {
		return nil, err
	}
	var cells []cell
	for _, g := range groups(jobs, runs) {
		theirs := g
		theirs.runs = nil
		for _, r := range g.runs {
			curve, ok := published[replay.PublishedRun{Trace: r.Trace, Policy: r.Policy, Seed: r.Seed}]
			if !ok {
				return nil, fmt.Errorf("the published table has no %s on %s with seed %d", r.Policy, r.Trace, r.Seed)
			}
			theirs.runs = append(theirs.runs, &replay.Run{Allocated: curve})
		}
		at := func(r *replay.Run) float64 { return r.At(full) }
		cells = append(cells, cell{g.job.Trace.Name, g.job.Policy, theirs.stat(at), g.stat(at)})
	}
	return cells, nil
}

// difference sums up how far apart cells are, in points.
type difference struct{ Mean, Most float64 }

func differences(cells []cell) (d difference) {
	for _, c := range cells {
		apart := math.Abs(c.ours.mean - c.published.mean)
		d.Mean += apart / float64(len(cells))
		d.Most = max(d.Most, apart)
	}
	return d
}

func (d difference) print(w io.Writer, cells []cell) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "trace\tpolicy\tpublished\tours\tdifference")
	for _, c := range cells {
		fmt.Fprintf(out, "%s\t%s\t%v\t%v\t%+.2f\n", c.trace, c.policy, c.published, c.ours, c.ours.mean-c.published.mean)
	}
	if err := out.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%d cells: %.3f points apart in the mean, %.2f at most\n", len(cells), d.Mean, d.Most)
	return err
}
