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
	duration, every, length := time.Hour, 250*time.Millisecond, time.Duration(0)
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
			each, err := k.timeOne(e)
			if err == nil && length > 0 {
				each, err = k.stretch(e, each, length)
			}
			if err != nil {
				return err
			}
			start := time.Now()
			told := start
			return k.keepBusy(e, each, func(done int) (bool, error) {
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
	c.Flags().DurationVar(&length, "kernel", length, "about how long each kernel takes on the card (default: as long as it does)")
	c.Flags().DurationVar(&every, "every", every, "how often to tell")
	return c
}

// queued is how much work is launched ahead, on the card's clock: longer than any
// time slice, so that the card never waits for the program within one.
const queued = 40 * time.Millisecond

// keepBusy launches kernels, which take each, until more says to stop.
func (k *kernel) keepBusy(e isolation.Env, each time.Duration, more func(done int) (bool, error)) error {
	const ahead = 4
	var ends [ahead]cuda.Event
	for i := range ends {
		var err error
		if ends[i], err = e.Lib.CreateEvent(true); err != nil {
			return err
		}
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

// stretch makes the kernel, which takes each, about so long by its number of blocks, and
// returns how long it takes then.
func (k *kernel) stretch(e isolation.Env, each, length time.Duration) (time.Duration, error) {
	const rounds, most = 3, 1 << 30
	for range rounds {
		k.blocks = uint32(min(max(float64(k.blocks)*float64(length)/float64(max(each, time.Microsecond)), 1), most))
		var err error
		if each, err = k.time(e, 1); err != nil {
			return 0, err
		}
	}
	return each, nil
}

// timeOne is about how long a launch takes on the card, others' work included.
func (k *kernel) timeOne(e isolation.Env) (time.Duration, error) { return k.time(e, 16) }

// time is timeOne by so many launches.
func (k *kernel) time(e isolation.Env, launches int) (time.Duration, error) {
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
	return elapsed / time.Duration(launches), err
}
