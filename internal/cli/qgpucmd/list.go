package qgpucmd

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/qgpu-project/qgpu/internal/tenant"
)

func (o *options) psCommand() *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "ps",
		Short: "List the tenants of this machine",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			r, err := tenant.OpenRegistry(o.stateDir)
			if err != nil {
				return err
			}
			tenants, err := r.ObserveAll(c.Context())
			if err != nil {
				return err
			}
			switch output {
			case "json":
				return writeJSON(c.OutOrStdout(), tenants)
			case "table":
				return writeTable(c.OutOrStdout(), tenants)
			}
			return fmt.Errorf("--output %s: choose table or json", output)
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return c
}

func (o *options) inspectCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "inspect ID",
		Short: "Show all about a tenant, as JSON",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			r, err := tenant.OpenRegistry(o.stateDir)
			if err != nil {
				return err
			}
			t, err := r.Get(args[0])
			if err != nil {
				return err
			}
			return writeJSON(c.OutOrStdout(), r.Observe(c.Context(), t))
		},
	}
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

func writeTable(w io.Writer, tenants []tenant.Observation) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "ID\tPROGRAM\tCARD\tCORE\tMEMORY\tSINCE")
	for _, l := range tenants {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", l.ID, program(l.Program), cardList(l), core(l), memory(l), since(l.Since))
	}
	return t.Flush()
}

func program(args []string) string {
	const most = 40
	text := []rune(strings.Join(args, " "))
	if len(text) > most {
		return string(text[:most-1]) + "…"
	}
	return string(text)
}

func cardList(l tenant.Observation) string {
	var cards []string
	for _, s := range l.Placement {
		cards = append(cards, fmt.Sprint(s.Index))
	}
	return strings.Join(cards, ",")
}

func core(l tenant.Observation) string {
	if l.Share.Core == 0 {
		return "-"
	}
	return fmt.Sprintf("%d%%", l.Share.Core)
}

func memory(l tenant.Observation) string {
	if l.State == nil {
		return "unknown"
	}
	used, quota := l.State.Used()
	return fmt.Sprintf("%v/%v", used, quota)
}

func since(t time.Time) string {
	return time.Since(t).Truncate(time.Second).String()
}
