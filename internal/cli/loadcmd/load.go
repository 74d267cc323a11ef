package loadcmd

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
	"unsafe"

	"github.com/spf13/cobra"

	"github.com/qgpu-project/qgpu/internal/cuda"
	"github.com/qgpu-project/qgpu/internal/isolation"
)

// Patterns of work.
const (
	constant = "constant" // the card never waits for the program
	bursty   = "bursty"   // a few kernels, and then nothing for a while
)

// loadOptions say how a load works.
type loadOptions struct {
	seconds float64 // of the card's time
	pattern string
	blocks  uint32 // of each kernel
	idle    time.Duration
	wait    bool
	json    bool
}

// loaded is what a load tells. All times are the card's.
type loaded struct {
	Kernels int   `json:"kernels"`
	Elapsed int64 `json:"elapsed_ns"` // from the first kernel's start to the last one's end
	Kernel  int64 `json:"kernel_ns"`  // the shortest time that one took: one that was not interrupted
	// GPUTime is Kernels × Kernel: what the kernels had of the card, without the time for
	// which they were kept waiting.
	GPUTime int64   `json:"gpu_time_ns"`
	Part    float64 `json:"part"` // GPUTime of Elapsed
	// Latency is the time from the moment at which a kernel could start to its end.
	Latency latency `json:"latency_ns"`
}

type latency struct {
	P50 int64 `json:"p50"`
	P90 int64 `json:"p90"`
	P99 int64 `json:"p99"`
	Max int64 `json:"max"`
}

func loadCommand() *cobra.Command {
	o := loadOptions{}
	c := &cobra.Command{
		Use:   "load",
		Short: "Use the card in a pattern for some time, and tell how much of it there was",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if o.pattern != constant && o.pattern != bursty {
				return fmt.Errorf("--pattern %s: choose %s or %s", o.pattern, constant, bursty)
			}
			if o.seconds <= 0 || o.blocks == 0 {
				return errors.New("--seconds and --blocks must be positive")
			}
			l, err := newLoad(o)
			if err != nil {
				return err
			}
			if o.wait {
				fmt.Fprintln(c.OutOrStdout(), "ready")
				if _, err := bufio.NewReader(c.InOrStdin()).ReadString('\n'); err != nil {
					return fmt.Errorf("wait for a line of standard input: %w", err)
				}
			}
			out, err := l.run()
			if err != nil {
				return err
			}
			return out.write(c.OutOrStdout(), o.json)
		},
	}
	f := c.Flags()
	f.Float64Var(&o.seconds, "seconds", 5, "how long, on the card's clock")
	f.StringVar(&o.pattern, "pattern", constant, "constant or bursty")
	f.Uint32Var(&o.blocks, "blocks", 1<<15, "thread blocks of each kernel: how long it takes, which should be less than a time slice")
	f.DurationVar(&o.idle, "idle", 20*time.Millisecond, "pause between the bursts of a bursty load")
	f.BoolVar(&o.wait, "wait", false, `print "ready" and start with a line of standard input`)
	f.BoolVar(&o.json, "json", false, "tell as one JSON object")
	return c
}

func (r loaded) write(w io.Writer, asJSON bool) error {
	if asJSON {
		return writeJSON(w, r)
	}
	_, err := fmt.Fprintf(w, "%d kernels of %v in %v: %.1f %% of the card; latency p50 %v, p99 %v\n", r.Kernels,
		time.Duration(r.Kernel), time.Duration(r.Elapsed), 100*r.Part, time.Duration(r.Latency.P50), time.Duration(r.Latency.P99))
	return err
}

// load is a load under way.
type load struct {
	loadOptions
	e      isolation.Env
	k      *kernel
	rounds []round // in rotation
	start  cuda.Event
	took   []time.Duration // of the kernels that were timed
	out    loaded
}

// A round is some kernels, the first of which is timed.
type round struct{ from, first, end cuda.Event }

// roundKernels is the number of kernels of a round, ahead how many rounds are submitted
// before the first of them is waited for.
const (
	roundKernels = 32
	ahead        = 48
)

func newLoad(o loadOptions) (*load, error) {
	e, err := open()
	if err != nil {
		return nil, err
	}
	l := &load{loadOptions: o, e: e}
	if l.k, err = loadKernel(e, smallKernel); err != nil {
		return nil, err
	}
	if l.start, err = e.Lib.CreateEvent(false); err != nil {
		return nil, err
	}
	n := ahead
	if o.pattern == bursty {
		n = 1
	}
	for range n {
		var r round
		for _, ev := range []*cuda.Event{&r.from, &r.first, &r.end} {
			if *ev, err = e.Lib.CreateEvent(true); err != nil {
				return nil, err
			}
		}
		l.rounds = append(l.rounds, r)
	}
	// The first launch of a kernel loads it.
	return l, errors.Join(l.launch(), e.Lib.SynchronizeStream(e.Stream))
}

func (l *load) launch() error {
	const block = 128
	return l.e.Lib.Launch(l.k.fn, l.blocks, block, l.e.Stream, unsafe.Pointer(&l.k.buffer), unsafe.Pointer(&l.k.n))
}

// submit submits a round.
func (l *load) submit(r round) error {
	lib, s := l.e.Lib, l.e.Stream
	if err := errors.Join(lib.RecordEvent(r.from, s), l.launch(), lib.RecordEvent(r.first, s)); err != nil {
		return err
	}
	for range roundKernels - 1 {
		if err := l.launch(); err != nil {
			return err
		}
	}
	return lib.RecordEvent(r.end, s)
}

// finish waits for a round and reports whether there is time for more.
func (l *load) finish(r round) (more bool, err error) {
	if err := l.e.Lib.SynchronizeEvent(r.end); err != nil {
		return false, err
	}
	took, err := l.e.Lib.Elapsed(r.from, r.first)
	if err != nil {
		return false, err
	}
	elapsed, err := l.e.Lib.Elapsed(l.start, r.end)
	if err != nil {
		return false, err
	}
	l.took = append(l.took, took)
	l.out.Kernels += roundKernels
	l.out.Elapsed = elapsed.Nanoseconds()
	return elapsed.Seconds() < l.seconds, nil
}

func (l *load) run() (loaded, error) {
	if err := l.e.Lib.RecordEvent(l.start, l.e.Stream); err != nil {
		return loaded{}, err
	}
	for n := 0; ; n++ {
		r := l.rounds[n%len(l.rounds)]
		if n >= len(l.rounds) {
			more, err := l.finish(r)
			if err != nil {
				return loaded{}, err
			}
			if !more {
				break // what else was submitted ends with the context, uncounted
			}
			if l.pattern == bursty {
				time.Sleep(l.idle)
			}
		}
		if err := l.submit(r); err != nil {
			return loaded{}, err
		}
	}
	slices.Sort(l.took)
	at := func(p float64) int64 { return l.took[int(p*float64(len(l.took)-1))].Nanoseconds() }
	l.out.Latency = latency{P50: at(0.5), P90: at(0.9), P99: at(0.99), Max: at(1)}
	l.out.Kernel = at(0)
	l.out.GPUTime = int64(l.out.Kernels) * l.out.Kernel
	l.out.Part = float64(l.out.GPUTime) / float64(l.out.Elapsed)
	return l.out, nil
}
