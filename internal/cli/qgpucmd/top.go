package qgpucmd

import (
	"fmt"
	"io"
	"os"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// minInterval keeps top from being a load itself.
const minInterval = 100 * time.Millisecond

// plainWidth is the width of a frame that no terminal bounds, in columns.
const plainWidth = 120

func (o *options) topCommand() *cobra.Command {
	interval := time.Second
	once := false
	c := &cobra.Command{
		Use:   "top",
		Short: "Watch cards and tenants",
		Long: `Watch the cards of this machine and their tenants: memory, and the use of compute
over the last second as the driver measures it.

The driver measures a card, not a process. What a tenant uses of it is told where
that follows: it alone has work on the card, or it has none. Elsewhere stands "-".

Where the output is no terminal, one frame is printed, as with --once.

Keys: q quits, the arrows or j and k select, s sorts by memory, compute or id.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if interval < minInterval {
				return fmt.Errorf("--interval %v is too short; the shortest is %v", interval, minInterval)
			}
			source, err := o.openSource(c.Context())
			if err != nil {
				return err
			}
			out := c.OutOrStdout()
			if once || !isTerminal(out) {
				f, err := source.read(c.Context())
				if err != nil {
					return err
				}
				_, err = io.WriteString(out, plain(f))
				return err
			}
			m := newTopModel(c.Context(), source.read, interval)
			_, err = tea.NewProgram(m, tea.WithContext(c.Context()), tea.WithOutput(out)).Run()
			return err
		},
	}
	o.driverFlag(c)
	c.Flags().DurationVar(&interval, "interval", interval, "time between frames")
	c.Flags().BoolVar(&once, "once", false, "print one frame and exit")
	return c
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// plain is one frame for a file or a script: no colours, no keys.
func plain(f frame) string {
	v := view{frame: f, width: plainWidth, order: byMemory}
	return v.body().text()
}
