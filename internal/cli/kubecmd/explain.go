package kubecmd

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/qgpu-project/qgpu/internal/clusterview"
)

func (o *options) explainCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "explain POD",
		Short: "Say why a pod waits, node by node and card by card, and what would make it fit",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			v, err := o.view(c.Context())
			if err != nil {
				return err
			}
			pod := v.Pod(o.namespace, args[0])
			if pod == nil {
				return fmt.Errorf("no pod %s in namespace %s asks for a share", args[0], o.namespace)
			}
			e := v.Explain(pod)
			config, err := o.connect()
			if err != nil {
				return err
			}
			said, err := events(c.Context(), config, pod.Object)
			if err != nil {
				return err
			}
			e.Says = append(e.Says, said...)
			return o.print(c.OutOrStdout(), e, func(w io.Writer) error { return writeExplanation(w, e) })
		},
	}
	o.outputFlag(c)
	return c
}

func writeExplanation(w io.Writer, e *clusterview.Explanation) error {
	var b strings.Builder
	state := "waits"
	if e.Node != "" {
		state = "is on node " + e.Node
	}
	fmt.Fprintf(&b, "Pod %s/%s %s.\n", e.Namespace, e.Name, state)
	for _, a := range e.Asks {
		row := podRow{Share: a.Share, Slices: a.Slices}
		fmt.Fprintf(&b, "  container %q: core %s, memory %s, %v", a.Container, core(a.Share), memory(row), a.Share.Class)
		if n := a.Share.Cards(); n > 1 {
			fmt.Fprintf(&b, ", on %d cards", n)
		}
		if len(a.Slices) > 0 {
			fmt.Fprintf(&b, "; card %s", cards(a.Slices))
		}
		b.WriteByte('\n')
	}
	section(&b, "Kubernetes says", e.Says)
	if len(e.Verdicts) > 0 {
		b.WriteString("\nNodes:\n")
	}
	for _, v := range e.Verdicts {
		if v.Fits {
			fmt.Fprintf(&b, "  %s: has room\n", v.Node)
			continue
		}
		fmt.Fprintf(&b, "  %s: %s\n", v.Node, headline(v))
		for _, c := range v.Cards {
			fmt.Fprintf(&b, "    card %d (%s) %s\n", c.Card, c.Model, c.Says)
		}
	}
	if e.Node == "" {
		section(&b, "What would make it fit", e.Would)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func headline(v clusterview.Verdict) string {
	if len(v.Reasons) == 0 {
		return "no room"
	}
	return strings.Join(v.Reasons, "; ")
}

func section(b *strings.Builder, title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s:\n", title)
	for _, line := range lines {
		fmt.Fprintf(b, "  %s\n", line)
	}
}
