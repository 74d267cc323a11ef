package loadcmd

import (
	"errors"
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
			k, err := loadKernel(e, largeKernel)
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

// queued is how much work is launched ahead, on the card's clock: longer than any
// time slice, so that the card never waits for the program within one.
const queued = 40 * time.Millisecond

// keepBusy launches kernels until more says to stop.
func (k *kernel) keepBusy(e isolation.Env, more func(done int) (bool, error)) error {
	const ahead = 4
	var ends [ahead]cuda.Event
	for i := range ends {
		var err error
		if ends[i], err = e.Lib.CreateEvent(true); err != nil {
			return err
		}
	}
	each, err := k.timeOne(e)
	if err != nil {
		return err
	}
	batch := max(1, int(queued/ahead/max(each, time.Microsecond)))
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

// timeOne is about how long a launch takes on the card, others' work included.
func (k *kernel) timeOne(e isolation.Env) (time.Duration, error) {
	const launches = 16
	from, err := e.Lib.CreateEvent(false)
	if err != nil {
		return 0, err
	}
	to, err := e.Lib.CreateEvent(false)
	if err != nil {
		return 0, err
	}
	if err := errors.Join(k.launch(e), e.Lib.RecordEvent(from, e.Stream)); err != nil {
		return 0, err
	}
	for range launches {
		if err := k.launch(e); err != nil {
			return 0, err
		}
	}
	if err := errors.Join(e.Lib.RecordEvent(to, e.Stream), e.Lib.SynchronizeStream(e.Stream)); err != nil {
		return 0, err
	}
	elapsed, err := e.Lib.Elapsed(from, to)
	return elapsed / launches, err
}
