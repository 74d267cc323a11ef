package loadcmd

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"
	"unsafe"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/qgpu-project/qgpu/internal/cuda"
	"github.com/qgpu-project/qgpu/internal/isolation"
	"github.com/qgpu-project/qgpu/internal/share"
)

// kernelPTX writes each thread's index to its word of a buffer.
const kernelPTX = `.version 7.0
.target sm_75
.address_size 64
.visible .entry index(.param .u64 buffer, .param .u32 n)
{
	.reg .u64 %address<3>;
	.reg .u32 %r<6>;
	.reg .pred %outside;
	ld.param.u64 %address1, [buffer];
	ld.param.u32 %r1, [n];
	mov.u32 %r2, %ctaid.x;
	mov.u32 %r3, %ntid.x;
	mov.u32 %r4, %tid.x;
	mad.lo.u32 %r5, %r2, %r3, %r4;
	setp.ge.u32 %outside, %r5, %r1;
	@%outside ret;
	mul.wide.u32 %address2, %r5, 4;
	add.u64 %address2, %address1, %address2;
	st.global.u32 [%address2], %r5;
	ret;
}
`

// kernel is the loaded kernel with its arguments.
type kernel struct {
	fn     cuda.Function
	buffer cuda.Pointer
	n      uint32
	blocks uint32 // of a launch; those beyond n threads do nothing
}

// block is the number of threads in a block.
const block = 128

// smallKernel and largeKernel are numbers of threads: a kernel that takes little more
// than its launch, and one that keeps a card busy for far longer than that.
const (
	smallKernel = 1 << 16
	largeKernel = 1 << 22
)

func loadKernel(e isolation.Env, threads uint32) (*kernel, error) {
	m, err := e.Lib.LoadModule(kernelPTX)
	if err != nil {
		return nil, err
	}
	k := &kernel{n: threads, blocks: threads / block}
	if k.fn, err = e.Lib.Function(m, "index"); err != nil {
		return nil, err
	}
	k.buffer, err = e.Lib.Alloc(uint64(k.n) * 4)
	return k, err
}

func (k *kernel) launch(e isolation.Env) error {
	return e.Lib.Launch(k.fn, k.blocks, block, e.Stream, unsafe.Pointer(&k.buffer), unsafe.Pointer(&k.n))
}

// work launches some kernels, copies a pattern to the card and back, and compares.
func (k *kernel) work(e isolation.Env) (out worked, err error) {
	const launches = 100
	for range launches {
		if err := k.launch(e); err != nil {
			return out, err
		}
		out.Launched++
	}
	if err := e.Lib.SynchronizeStream(e.Stream); err != nil {
		return out, err
	}
	pattern := bytes.Repeat([]byte{0x5a, 0xa5, 0x0f}, int(k.n))
	back := make([]byte, len(pattern))
	if err := errors.Join(e.Lib.CopyToCard(k.buffer, pattern), e.Lib.CopyFromCard(back, k.buffer)); err != nil {
		return out, err
	}
	out.Intact = bytes.Equal(back, pattern)
	return out, nil
}

// timing is what launchCommand and cyclesCommand tell, in nanoseconds of the
// host's clock unless they say otherwise.
type timing struct {
	Count    int     `json:"count"`
	Init     int64   `json:"init_ns"`    // cuInit
	Context  int64   `json:"context_ns"` // cuCtxCreate
	Total    int64   `json:"total_ns"`   // of all Count operations
	Each     float64 `json:"each_ns"`
	Median   float64 `json:"median_ns,omitempty"` // of one operation, by batches of 10
	CardTime int64   `json:"card_ns,omitempty"`   // between events on the card's clock
	// Processor is the program's own processor time for one launch, without waiting.
	Processor float64 `json:"processor_ns,omitempty"`
}

func openTimed() (e isolation.Env, t timing, err error) {
	start := time.Now()
	if e.Lib, err = cuda.Open(); err != nil {
		return e, t, err
	}
	t.Init = time.Since(start).Nanoseconds()
	start = time.Now()
	if _, err = e.Lib.CreateContext(e.Device, 0); err != nil {
		return e, t, err
	}
	t.Context = time.Since(start).Nanoseconds()
	e.Stream, err = e.Lib.CreateStream()
	return e, t, err
}

func (t *timing) measure(n int, f func() error) error {
	start := time.Now()
	if err := f(); err != nil {
		return err
	}
	t.Count, t.Total = n, time.Since(start).Nanoseconds()
	t.Each = float64(t.Total) / float64(n)
	return nil
}

// threadTime is the processor time that this thread has used, in ns.
func threadTime() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return 0
	}
	return t.Nano()
}

func launchCommand() *cobra.Command {
	var n int
	c := &cobra.Command{
		Use:   "launch",
		Short: "Launch kernels, wait for them, and tell how long that took",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if n < 1 {
				return fmt.Errorf("--count %d: launch at least one", n)
			}
			e, t, err := openTimed()
			if err != nil {
				return err
			}
			k, err := loadKernel(e, smallKernel)
			if err != nil {
				return err
			}
			from, err1 := e.Lib.CreateEvent(false)
			to, err2 := e.Lib.CreateEvent(false)
			err = errors.Join(err1, err2, k.launch(e), e.Lib.SynchronizeStream(e.Stream), e.Lib.RecordEvent(from, e.Stream))
			if err != nil {
				return err
			}
			err = t.measure(n, func() error {
				before := threadTime()
				for range n {
					if err := k.launch(e); err != nil {
						return err
					}
				}
				t.Processor = float64(threadTime()-before) / float64(n)
				return errors.Join(e.Lib.RecordEvent(to, e.Stream), e.Lib.SynchronizeStream(e.Stream))
			})
			if err != nil {
				return err
			}
			elapsed, err := e.Lib.Elapsed(from, to)
			if err != nil {
				return err
			}
			t.CardTime = elapsed.Nanoseconds()
			return writeJSON(c.OutOrStdout(), t)
		},
	}
	c.Flags().IntVar(&n, "count", 10000, "number of launches")
	return c
}

// cyclesPerBatch is few enough that most batches are not disturbed by what else
// runs on the machine.
const cyclesPerBatch = 10

func cyclesCommand() *cobra.Command {
	var n int
	size := 4 * share.MiB
	c := &cobra.Command{
		Use:   "cycles",
		Short: "Allocate and free again and again, and tell how long that took",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if n < 1 {
				return fmt.Errorf("--count %d: allocate at least once", n)
			}
			e, t, err := openTimed()
			if err != nil {
				return err
			}
			var batches []time.Duration
			err = t.measure(n, func() error {
				start := time.Now()
				for i := range n {
					p, err := e.Lib.Alloc(uint64(size))
					if err != nil {
						return err
					}
					if err := e.Lib.Free(p); err != nil {
						return err
					}
					if (i+1)%cyclesPerBatch == 0 {
						batches = append(batches, time.Since(start))
						start = time.Now()
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
			if len(batches) > 0 {
				slices.Sort(batches)
				t.Median = float64(batches[len(batches)/2].Nanoseconds()) / cyclesPerBatch
			}
			return writeJSON(c.OutOrStdout(), t)
		},
	}
	c.Flags().IntVar(&n, "count", 1000, "number of allocations")
	c.Flags().Var(&size, "size", "size of each")
	return c
}
