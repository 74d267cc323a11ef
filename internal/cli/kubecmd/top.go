package kubecmd

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/qgpu-project/qgpu/internal/clusterview"
	"github.com/qgpu-project/qgpu/internal/share"
)

// sumRow is what is given out and used of a node's cards, or of all.
type sumRow struct {
	Node    string       `json:"node"`
	Cards   int          `json:"cards"`
	Idle    int          `json:"idleCards"`
	Unfit   int          `json:"unhealthyCards"`
	Core    int          `json:"corePercent"` // of 100 a card
	Taken   share.Memory `json:"memoryTakenBytes"`
	Memory  share.Memory `json:"memoryBytes"`
	Tenants int          `json:"tenants"`
	// Largest is the most memory free on one card that is healthy.
	Largest share.Memory `json:"largestFreeBytes"`
	// What tenants use, of 100 a card and of Memory; nil where that is not known of all
	// cards.
	Busy *float64      `json:"busyPercent,omitempty"`
	Used *share.Memory `json:"memoryUsedBytes,omitempty"`
}

func sumRows(v *clusterview.View, u uses) (rows []sumRow, all sumRow) {
	all = sumRow{Node: "all", Used: new(share.Memory), Busy: new(float64)}
	rows = []sumRow{}
	for _, n := range v.Nodes {
		row := sumRow{Node: n.Name, Cards: len(n.Cards), Used: new(share.Memory), Busy: new(float64)}
		for _, c := range n.Cards {
			row.Core += c.Core
			row.Taken += c.Taken
			row.Memory += c.Memory
			row.Tenants += c.Tenants
			used, busy := u.card(n.Name, c.UUID)
			row.Used, row.Busy = sum(row.Used, used), sum(row.Busy, busy)
			switch {
			case c.Unhealthy != "":
				row.Unfit++
				continue
			case c.Tenants == 0:
				row.Idle++
			}
			row.Largest = max(row.Largest, c.Free())
		}
		rows = append(rows, row)
		all.Cards += row.Cards
		all.Idle += row.Idle
		all.Unfit += row.Unfit
		all.Core += row.Core
		all.Taken += row.Taken
		all.Memory += row.Memory
		all.Tenants += row.Tenants
		all.Largest = max(all.Largest, row.Largest)
		all.Used, all.Busy = sum(all.Used, row.Used), sum(all.Busy, row.Busy)
	}
	return rows, all
}

// sum is nil if one of its parts is: not known.
func sum[N ~int64 | ~uint64 | ~float64](a, b *N) *N {
	if a == nil || b == nil {
		return nil
	}
	s := *a + *b
	return &s
}

func (o *options) topCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "top",
		Short: "Sum up what is given out and used of each node's cards",
		Long: `Sums up what is given out of each node's cards, by the pods' placements, and what
tenants use of them at this moment, as each node's agent tells through the API server:
whoever asks needs "get" on pods/proxy in the chart's namespace.

CORE and MEMORY are given out, BUSY and USED are used: the part of the last second in
which cards computed, and memory.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			config, objects, err := o.read(c.Context())
			if err != nil {
				return err
			}
			u, err := usesOf(c.Context(), config, objects, nil)
			if err != nil {
				return err
			}
			rows, all := sumRows(clusterview.Of(objects), u)
			return o.print(c.OutOrStdout(), append(rows, all), func(w io.Writer) error {
				return errors.Join(writeSums(w, rows, all), writeProblems(w, u.problems))
			})
		},
	}
	o.outputFlag(c)
	return c
}

func writeSums(w io.Writer, rows []sumRow, all sumRow) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "NODE\tCARDS\tIDLE\tUNHEALTHY\tCORE\tBUSY\tMEMORY\tUSED\tTENANTS\tLARGEST FREE")
	for _, r := range append(rows, all) {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%s\t%s\t%s\t%s\t%d\t%v\n", r.Node, r.Cards, r.Idle, r.Unfit, percent(int64(r.Core), int64(r.Cards)*share.Whole), busyOf(r),
			fmt.Sprintf("%v/%v %s", r.Taken, r.Memory, percent(int64(r.Taken), int64(r.Memory))), usedText(r.Used), r.Tenants, r.Largest)
	}
	return t.Flush()
}

// busyOf is the mean of a row's cards.
func busyOf(r sumRow) string {
	if r.Busy == nil || r.Cards == 0 {
		return "-"
	}
	mean := *r.Busy / float64(r.Cards)
	return busyText(&mean)
}

func percent(part, of int64) string {
	if of == 0 {
		return "-"
	}
	return fmt.Sprintf("%d%%", (part*100+of/2)/of)
}
