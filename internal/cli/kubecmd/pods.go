package kubecmd

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/qgpu-project/qgpu/internal/clusterview"
	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/share"
)

// podRow is one container of a pod, with its share and its cards.
type podRow struct {
	Namespace string            `json:"namespace"`
	Pod       string            `json:"pod"`
	Container string            `json:"container"`
	Phase     string            `json:"phase"`
	Node      string            `json:"node,omitempty"`
	Share     share.Share       `json:"share"`
	Slices    []placement.Slice `json:"slices,omitempty"`
	Used      *share.Memory     `json:"memoryUsedBytes,omitempty"` // nil: not known
	Busy      *float64          `json:"busyPercent,omitempty"`     // of a card's compute; nil: not known
	Problem   string            `json:"problem,omitempty"`
}

// podRows lists the containers with shares. An empty namespace is all.
func podRows(v *clusterview.View, u uses, namespace string) []podRow {
	rows := []podRow{}
	for _, p := range v.Pods {
		if namespace != "" && p.Object.Namespace != namespace {
			continue
		}
		row := podRow{
			Namespace: p.Object.Namespace, Pod: p.Object.Name, Phase: string(p.Object.Status.Phase),
			Node: p.Object.Spec.NodeName, Problem: p.Problem,
		}
		if p.Object.DeletionTimestamp != nil {
			row.Phase = "Terminating"
		}
		if p.Request == nil {
			rows = append(rows, row)
			continue
		}
		for _, c := range p.Request.Containers {
			row.Container, row.Share, row.Slices = c.Name, c.Share, nil
			if p.Placement != nil {
				row.Slices = p.Placement.Containers[c.Name]
			}
			var problem string
			row.Used, row.Busy, problem = u.container(string(p.Object.UID), c.Name)
			row.Problem = cmp.Or(p.Problem, problem)
			rows = append(rows, row)
		}
	}
	return rows
}

// nodesOf are the nodes that rows lie on.
func nodesOf(rows []podRow) map[string]bool {
	nodes := make(map[string]bool)
	for _, r := range rows {
		nodes[r.Node] = true
	}
	return nodes
}

func (o *options) podsCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "pods",
		Aliases: []string{"pod"},
		Short:   "List pods with shares, the cards that they lie on, and what they use",
		Long: `Lists the containers that ask for shares, the cards that they lie on, and what they use.

USED is card memory, as the container's mediator counts it. BUSY is its part of a card's
compute over the last second, where that is known: drivers measure cards, so it is "-"
where another tenant has work on the same card. Both come from the node's agent, through
the API server: whoever asks needs "get" on pods/proxy in the chart's namespace.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			config, objects, err := o.read(c.Context())
			if err != nil {
				return err
			}
			namespace := o.namespace
			if o.allNamespaces {
				namespace = ""
			}
			v := clusterview.Of(objects)
			u, err := usesOf(c.Context(), config, objects, nodesOf(podRows(v, uses{}, namespace)))
			if err != nil {
				return err
			}
			rows := podRows(v, u, namespace)
			return o.print(c.OutOrStdout(), rows, func(w io.Writer) error {
				return errors.Join(writePods(w, rows), writeProblems(w, u.problems))
			})
		},
	}
	o.outputFlag(c)
	o.allFlag(c)
	return c
}

func writePods(w io.Writer, rows []podRow) error {
	if len(rows) == 0 {
		_, err := fmt.Fprintln(w, "No pod asks for a share.")
		return err
	}
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "NAMESPACE\tPOD\tCONTAINER\tPHASE\tCORE\tBUSY\tMEMORY\tUSED\tCLASS\tNODE\tCARDS")
	for _, r := range rows {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%v\t%s\t%s\n", r.Namespace, r.Pod, dash(r.Container), r.Phase,
			core(r.Share), busyText(r.Busy), memory(r), usedText(r.Used), r.Share.Class, dash(r.Node), dash(cards(r.Slices)))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	seen := ""
	for _, r := range rows {
		if name := r.Namespace + "/" + r.Pod; r.Problem != "" && name != seen {
			seen = name
			if _, err := fmt.Fprintf(w, "\n%s: %s\n", name, r.Problem); err != nil {
				return err
			}
		}
	}
	return nil
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func core(s share.Share) string {
	switch {
	case s.Core == 0:
		return "-"
	case s.Class == share.Offline:
		return fmt.Sprintf("≤%d%%", s.Core)
	}
	return fmt.Sprintf("%d%%", s.Core)
}

// memory is the sum of what the container has, or asks for.
func memory(r podRow) string {
	var sum share.Memory
	for _, s := range r.Slices {
		sum += s.Memory
	}
	switch {
	case sum > 0:
		return sum.String()
	case r.Share.WholeCards():
		return "all"
	case r.Share.Memory > 0:
		return r.Share.Memory.String()
	}
	return "-"
}

// cards writes slices as 0, or where there are several with what lies on each:
// 0:80%/30Gi,1:80%/30Gi.
func cards(of []placement.Slice) string {
	if len(of) == 1 {
		return fmt.Sprint(of[0].Index)
	}
	sorted := slices.SortedFunc(slices.Values(of), func(a, b placement.Slice) int { return a.Index - b.Index })
	var list []string
	for _, s := range sorted {
		list = append(list, fmt.Sprintf("%d:%d%%/%v", s.Index, s.Core, s.Memory))
	}
	return strings.Join(list, ",")
}
