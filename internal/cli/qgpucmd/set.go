package qgpucmd

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/qgpu-project/qgpu/internal/launch"
	"github.com/qgpu-project/qgpu/internal/share"
	"github.com/qgpu-project/qgpu/internal/tenant"
)

func (o *options) setCommand() *cobra.Command {
	var to share.Share
	c := &cobra.Command{
		Use:   "set ID [--core N] [--memory M]",
		Short: "Change a running tenant's share",
		Long: `Change a running tenant's share, at once. What is not named stays. Memory below
what the tenant has in use is refused.`,
		Example: `  qgpu set 3f2a --core 50 --memory 8Gi`,
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if !c.Flags().Changed("core") && !c.Flags().Changed("memory") {
				return errors.New("nothing to change: name --core, --memory or both")
			}
			r, err := tenant.OpenRegistry(o.stateDir)
			if err != nil {
				return err
			}
			t, err := r.Get(args[0])
			if err != nil {
				return err
			}
			s := t.Share
			if c.Flags().Changed("core") {
				s.Core = to.Core
			}
			if c.Flags().Changed("memory") {
				s.Memory = to.Memory
			}
			node, err := launch.Open(c.Context(), t.Driver, o.simDir)
			if err != nil {
				return err
			}
			if t, err = r.Resize(c.Context(), t.ID, s, node.PlacementCards()); err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "tenant %s: core %d, memory %v\n", t.ID, t.Share.Core, t.Share.Memory)
			return err
		},
	}
	c.Flags().IntVar(&to.Core, "core", 0, "compute, in percent of a card")
	c.Flags().Var(&to.Memory, "memory", "card memory, for example 8Gi")
	return c
}
