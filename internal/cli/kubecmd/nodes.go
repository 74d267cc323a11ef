package kubecmd

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/qgpu-project/qgpu/internal/clusterview"
	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/share"
)

// nodeRow is a node with its cards.
type nodeRow struct {
	Name          string       `json:"name"`
	Policy        share.Policy `json:"policy"`
	Driver        string       `json:"driver,omitempty"`
	DriverVersion string       `json:"driverVersion,omitempty"`
	Problems      []string     `json:"problems,omitempty"`
	Cards         []cardRow    `json:"cards"`
}

// cardRow is a card with what its tenants were given.
type cardRow struct {
	Index     int          `json:"index"`
	UUID      string       `json:"uuid"`
	Model     string       `json:"model"`
	Core      int          `json:"corePercent"`
	Taken     share.Memory `json:"memoryTakenBytes"`
	Memory    share.Memory `json:"memoryBytes"`
	Tenants   int          `json:"tenants"`
	Online    int          `json:"online,omitempty"`
	Offline   int          `json:"offline,omitempty"`
	Whole     bool         `json:"whole,omitempty"`
	Unhealthy string       `json:"unhealthy,omitempty"`
}

func nodeRows(v *clusterview.View) []nodeRow {
	rows := make([]nodeRow, 0, len(v.Nodes))
	for _, n := range v.Nodes {
		row := nodeRow{Name: n.Name, Policy: n.Policy, Problems: n.Problems, Cards: []cardRow{}}
		if n.Inventory != nil {
			row.Driver, row.DriverVersion = n.Inventory.Driver, n.Inventory.DriverVersion
		}
		for _, c := range n.Cards {
			row.Cards = append(row.Cards, cardRow{
				Index: c.Index, UUID: c.UUID, Model: c.Model, Core: c.Core, Taken: c.Taken, Memory: c.Memory,
				Tenants: c.Tenants, Online: c.Online, Offline: c.Offline, Whole: c.Whole, Unhealthy: c.Unhealthy,
			})
		}
		rows = append(rows, row)
	}
	return rows
}

func (o *options) nodesCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "nodes",
		Aliases: []string{"node", "cards"},
		Short:   "List nodes with their cards: what is given out, policy and health",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			v, err := o.view(c.Context())
			if err != nil {
				return err
			}
			rows := nodeRows(v)
			return o.print(c.OutOrStdout(), rows, func(w io.Writer) error { return writeNodes(w, rows) })
		},
	}
	o.outputFlag(c)
	return c
}

func writeNodes(w io.Writer, rows []nodeRow) error {
	if len(rows) == 0 {
		_, err := fmt.Fprintln(w, "No node has cards. Label those that do: kubectl label node NODE qgpu-device-enable=enable")
		return err
	}
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "NODE\tPOLICY\tCARD\tMODEL\tCORE\tMEMORY\tTENANTS\tHEALTH")
	for _, n := range rows {
		if len(n.Cards) == 0 {
			fmt.Fprintf(t, "%s\t%s\t-\t-\t-\t-\t-\t-\n", n.Name, n.Policy)
		}
		for _, c := range n.Cards {
			fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%d/100%%\t%v/%v\t%s\t%s\n", n.Name, n.Policy, c.Index, c.Model, c.Core, c.Taken, c.Memory, tenants(c), health(c))
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, n := range rows {
		for _, p := range n.Problems {
			if _, err := fmt.Fprintf(w, "\n%s: %s", n.Name, p); err != nil {
				return err
			}
		}
	}
	if anyProblem(rows) {
		_, err := fmt.Fprintln(w)
		return err
	}
	return nil
}

func anyProblem(rows []nodeRow) bool {
	for _, n := range rows {
		if len(n.Problems) > 0 {
			return true
		}
	}
	return false
}

// tenants counts a card's tenants, and says which are not ordinary.
func tenants(c cardRow) string {
	text := fmt.Sprintf("%d/%d", c.Tenants, placement.MaxTenants)
	var of []string
	if c.Online > 0 {
		of = append(of, fmt.Sprintf("%d online", c.Online))
	}
	if c.Offline > 0 {
		of = append(of, fmt.Sprintf("%d offline", c.Offline))
	}
	if c.Whole {
		of = append(of, "whole card")
	}
	if len(of) > 0 {
		text += " (" + strings.Join(of, ", ") + ")"
	}
	return text
}

func health(c cardRow) string {
	if c.Unhealthy == "" {
		return "ok"
	}
	return c.Unhealthy
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
