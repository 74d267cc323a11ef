package loadcmd

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
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
	graphs   = "graphs"   // as constant, most kernels by CUDA graphs
)

var patterns = []string{constant, bursty, graphs}

// loadOptions say how a load works.
type loadOptions struct {
	seconds float64 // of the card's time
	pattern string
	blocks  uint32        // of each kernel
	kernel  time.Duration // about how long each takes; 0: as its blocks do
	streams int
	idle    time.Duration
	wait    bool
	json    bool
	samples bool

	processes int
}

func (o loadOptions) validate() error {
	switch {
	case !slices.Contains(patterns, o.pattern):
		return fmt.Errorf("--pattern %s: choose one of %s", o.pattern, strings.Join(patterns, ", "))
	case o.seconds <= 0 || o.blocks == 0:
		return errors.New("--seconds and --blocks must be positive")
	case o.streams < 1 || o.streams > maxStreams:
		return fmt.Errorf("--streams %d: choose 1 to %d", o.streams, maxStreams)
	case o.processes < 1 || o.processes > maxProcesses:
		return fmt.Errorf("--processes %d: choose 1 to %d", o.processes, maxProcesses)
	}
	return nil
}

const (
	maxStreams   = 64
	maxProcesses = 256
)

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
	// Samples are the times that Latency is of, sorted.
	Samples []int64 `json:"samples_ns,omitempty"`
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
			if err := o.validate(); err != nil {
				return err
			}
			work := o.load
			if o.processes > 1 {
				work = o.loadProcesses
			}
			out, err := work(c)
			if err != nil {
				return err
			}
			if !o.samples {
				out.Samples = nil
			}
			return out.write(c.OutOrStdout(), o.json)
		},
	}
	f := c.Flags()
	f.Float64Var(&o.seconds, "seconds", 5, "how long, on the card's clock")
	f.StringVar(&o.pattern, "pattern", constant, strings.Join(patterns, ", "))
	f.Uint32Var(&o.blocks, "blocks", 1<<15, "thread blocks of each kernel: how long it takes, which should be less than a time slice")
	f.DurationVar(&o.kernel, "kernel", 0, "about how long each kernel takes on an idle card, instead of --blocks")
	f.IntVar(&o.streams, "streams", 1, "streams of each process, which take turns")
	f.IntVar(&o.processes, processesFlag, 1, "processes that work like this at the same time")
	f.DurationVar(&o.idle, "idle", 20*time.Millisecond, "pause between the bursts of a bursty load")
	f.BoolVar(&o.wait, "wait", false, `print "ready" and start with a line of standard input`)
	f.BoolVar(&o.json, "json", false, "tell as one JSON object")
	f.BoolVar(&o.samples, samplesFlag, false, "tell all times that the latency is of, too")
	return c
}

// Flags that one process gives to others.
const (
	processesFlag = "processes"
	samplesFlag   = "samples"
)

// load works in this process.
func (o loadOptions) load(c *cobra.Command) (loaded, error) {
	l, err := newLoad(o)
	if err != nil {
		return loaded{}, err
	}
	if o.wait {
		if err := awaitLine(c); err != nil {
			return loaded{}, err
		}
	}
	return l.run()
}

// awaitLine says that the program is ready and waits for a line.
func awaitLine(c *cobra.Command) error {
	fmt.Fprintln(c.OutOrStdout(), readyLine)
	if _, err := bufio.NewReader(c.InOrStdin()).ReadString('\n'); err != nil {
		return fmt.Errorf("wait for a line of standard input: %w", err)
	}
	return nil
}

const readyLine = "ready"

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
	graph  cuda.Exec
	start  cuda.Event
	took   []time.Duration // of the kernels that were timed
	out    loaded
}

// A round is some kernels, the first of which is timed.
type round struct {
	stream           cuda.Stream
	from, first, end cuda.Event
}

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
	l.k.blocks = o.blocks
	if l.start, err = e.Lib.CreateEvent(false); err != nil {
		return nil, err
	}
	n := ahead
	if o.pattern == bursty {
		n = 1
	}
	if err := l.prepare(max(n, o.streams)); err != nil {
		return nil, err
	}
	// The first launch of a kernel loads it.
	if err := errors.Join(l.launch(e.Stream), e.Lib.SynchronizeStream(e.Stream)); err != nil {
		return nil, err
	}
	if o.kernel > 0 {
		each, err := l.k.timeOne(e)
		if err == nil {
			_, err = l.k.stretch(e, each, o.kernel)
		}
		if err != nil {
			return nil, err
		}
	}
	if o.pattern == graphs {
		l.graph, err = e.Lib.Capture(e.Stream, func() error { return l.launches(e.Stream) })
	}
	return l, err
}

// prepare makes n rounds, on all streams in turn.
func (l *load) prepare(n int) (err error) {
	streams := []cuda.Stream{l.e.Stream}
	for len(streams) < l.streams {
		s, err := l.e.Lib.CreateStream()
		if err != nil {
			return err
		}
		streams = append(streams, s)
	}
	for i := range n {
		r := round{stream: streams[i%len(streams)]}
		for _, ev := range []*cuda.Event{&r.from, &r.first, &r.end} {
			if *ev, err = l.e.Lib.CreateEvent(true); err != nil {
				return err
			}
		}
		l.rounds = append(l.rounds, r)
	}
	return nil
}

func (l *load) launch(s cuda.Stream) error {
	return l.e.Lib.Launch(l.k.fn, l.k.blocks, block, s, unsafe.Pointer(&l.k.buffer), unsafe.Pointer(&l.k.n))
}

// launches launches all kernels of a round but the first.
func (l *load) launches(s cuda.Stream) error {
	for range roundKernels - 1 {
		if err := l.launch(s); err != nil {
			return err
		}
	}
	return nil
}

// submit submits a round.
func (l *load) submit(r round) error {
	lib, s := l.e.Lib, r.stream
	if err := errors.Join(lib.RecordEvent(r.from, s), l.launch(s), lib.RecordEvent(r.first, s)); err != nil {
		return err
	}
	var err error
	if l.graph != 0 {
		err = lib.LaunchGraph(l.graph, s)
	} else {
		err = l.launches(s)
	}
	return errors.Join(err, lib.RecordEvent(r.end, s))
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
	for _, d := range l.took {
		l.out.Samples = append(l.out.Samples, d.Nanoseconds())
	}
	slices.Sort(l.out.Samples)
	l.out.Kernel = l.out.Samples[0]
	l.out.GPUTime = int64(l.out.Kernels) * l.out.Kernel
	l.out.summarize()
	return l.out, nil
}

// summarize sets what follows from the samples, GPUTime and Elapsed.
func (r *loaded) summarize() {
	at := func(p float64) int64 { return r.Samples[int(p*float64(len(r.Samples)-1))] }
	r.Latency = latency{P50: at(0.5), P90: at(0.9), P99: at(0.99), Max: at(1)}
	r.Part = float64(r.GPUTime) / float64(r.Elapsed)
}
