package kubecmd

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/qgpu-project/qgpu/internal/clusterview"
	"github.com/qgpu-project/qgpu/internal/share"
)

// sumRow is what is given out of a node's cards, or of all.
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
}

func sumRows(v *clusterview.View) (rows []sumRow, all sumRow) {
	all.Node = "all"
	rows = []sumRow{}
	for _, n := range v.Nodes {
		row := sumRow{Node: n.Name, Cards: len(n.Cards)}
		for _, c := range n.Cards {
			row.Core += c.Core
			row.Taken += c.Taken
			row.Memory += c.Memory
			row.Tenants += c.Tenants
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
	}
	return rows, all
}

func (o *options) topCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "top",
		Short: "Sum up what is given out of each node's cards",
		Long: `Sums up what is given out of each node's cards, by the pods' placements. What pods
use of it at this moment no object of the API server says: see "qgpu top" on the node.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			v, err := o.view(c.Context())
			if err != nil {
				return err
			}
			rows, all := sumRows(v)
			return o.print(c.OutOrStdout(), append(rows, all), func(w io.Writer) error { return writeSums(w, rows, all) })
		},
	}
	o.outputFlag(c)
	return c
}

func writeSums(w io.Writer, rows []sumRow, all sumRow) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "NODE\tCARDS\tIDLE\tUNHEALTHY\tCORE\tMEMORY\tTENANTS\tLARGEST FREE")
	for _, r := range append(rows, all) {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%s\t%s\t%d\t%v\n", r.Node, r.Cards, r.Idle, r.Unfit, percent(int64(r.Core), int64(r.Cards)*share.Whole),
			fmt.Sprintf("%v/%v %s", r.Taken, r.Memory, percent(int64(r.Taken), int64(r.Memory))), r.Tenants, r.Largest)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, "\nGiven out, by placements. What is used of it, `qgpu top` tells on each node.")
	return err
}

func percent(part, of int64) string {
	if of == 0 {
		return "-"
	}
	return fmt.Sprintf("%d%%", (part*100+of/2)/of)
}
