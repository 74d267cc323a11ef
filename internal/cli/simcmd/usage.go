package simcmd

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/qgpu-project/qgpu/internal/simgpu"
	"github.com/qgpu-project/qgpu/internal/simgpu/host"
)

// measured is what a card's processes had of it in a window of its own time.
type measured struct {
	Card      int             `json:"card"`
	Window    time.Duration   `json:"window_ns"`
	Processes map[int]portion `json:"processes"` // by process id
}

type portion struct {
	Used time.Duration `json:"used_ns"`
	Part float64       `json:"part"` // of the window
}

func (o *options) usageCommand() *cobra.Command {
	window := time.Second
	c := &cobra.Command{
		Use:   "usage",
		Short: "Measure what each process has of the cards' compute, exactly, on the cards' clocks",
		Long: `Measure what each process has of the cards' compute in a window of the cards' own
time. The cards account for every nanosecond, so the numbers are exact however busy
this machine is. A tenant of qgpu run appears as its mediator's process.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cards, err := measure(host.Client{Dir: o.dir}, window)
			if err != nil {
				return err
			}
			return json.NewEncoder(c.OutOrStdout()).Encode(cards)
		},
	}
	c.Flags().DurationVar(&window, "window", window, "how long to measure, in the cards' time")
	return c
}

// measure waits until every card's clock has gone on by window.
func measure(client host.Client, window time.Duration) ([]measured, error) {
	if window <= 0 {
		return nil, fmt.Errorf("--window %v: choose a positive time", window)
	}
	before, err := client.Usage()
	if err != nil {
		return nil, err
	}
	for {
		after, err := client.Usage()
		if err != nil {
			return nil, err
		}
		left := time.Duration(0)
		for i := range before {
			left = max(left, window-time.Duration(after[i].Now-before[i].Now))
		}
		if left <= 0 {
			return difference(before, after), nil
		}
		time.Sleep(left)
	}
}

func difference(before, after []simgpu.CardUsage) []measured {
	cards := make([]measured, len(after))
	for i, a := range after {
		m := measured{Card: i, Window: time.Duration(a.Now - before[i].Now), Processes: make(map[int]portion)}
		for pid, used := range a.Used {
			if was := before[i].Used[pid]; was <= used { // else another process's number
				used -= was
			}
			m.Processes[pid] = portion{Used: used, Part: float64(used) / float64(m.Window)}
		}
		cards[i] = m
	}
	return cards
}
