package loadcmd

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/qgpu-project/qgpu/internal/cuda"
	"github.com/qgpu-project/qgpu/internal/isolation"
)

// progress is what loopCommand tells from time to time.
type progress struct {
	Launches int   `json:"launches"`   // that are done
	Elapsed  int64 `json:"elapsed_ns"` // since the first
}

func loopCommand() *cobra.Command {
	duration, every := time.Hour, 250*time.Millisecond
	c := &cobra.Command{
		Use:   "loop",
		Short: "Keep the card busy with kernels, and tell how many are done",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			e, err := open()
			if err != nil {
				return err
			}
			k, err := loadKernel(e)
			if err != nil {
				return err
			}
			start := time.Now()
			told := start
			return k.keepBusy(e, func(done int) (bool, error) {
				now := time.Now()
				if now.Sub(told) < every {
					return true, nil
				}
				told = now
				err := writeJSON(c.OutOrStdout(), progress{done, now.Sub(start).Nanoseconds()})
				return now.Sub(start) < duration, err
			})
		},
	}
	c.Flags().DurationVar(&duration, "for", duration, "how long")
	c.Flags().DurationVar(&every, "every", every, "how often to tell")
	return c
}

// keepBusy launches kernels, so many ahead that the card never waits for the next,
// until more says to stop.
func (k *kernel) keepBusy(e isolation.Env, more func(done int) (bool, error)) error {
	const batch, ahead = 16, 4
	var ends [ahead]cuda.Event
	for i := range ends {
		var err error
		if ends[i], err = e.Lib.CreateEvent(true); err != nil {
			return err
		}
	}
	for n := 0; ; n++ {
		end := ends[n%ahead]
		if n >= ahead {
			if err := e.Lib.SynchronizeEvent(end); err != nil {
				return err
			}
			if on, err := more((n - ahead + 1) * batch); err != nil || !on {
				return err
			}
		}
		for range batch {
			if err := k.launch(e); err != nil {
				return err
			}
		}
		if err := e.Lib.RecordEvent(end, e.Stream); err != nil {
			return err
		}
	}
}
