package simcmd

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/qgpu-project/qgpu/internal/simgpu/host"
)

// lostCommand makes a card unhealthy, or healthy again.
func (o *options) lostCommand(name, short string, lost bool) *cobra.Command {
	return &cobra.Command{
		Use:   name + " CARD",
		Short: short,
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			card, err := strconv.Atoi(args[0])
			if err != nil {
				return fmt.Errorf("card %q: give the N of its /dev/nvidiaN", args[0])
			}
			return host.Client{Dir: o.dir}.SetLost(card, lost)
		},
	}
}
