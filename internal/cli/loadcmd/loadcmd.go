// Package loadcmd is the cudaload command: a CUDA program for tests, demos and
// benchmarks that allocates, copies and launches as it is told.
package loadcmd

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/qgpu-project/qgpu/internal/cuda"
	"github.com/qgpu-project/qgpu/internal/isolation"
	"github.com/qgpu-project/qgpu/internal/share"
)

// New makes the command.
func New() *cobra.Command {
	root := &cobra.Command{
		Use:   "cudaload",
		Short: "A CUDA program that does as it is told",
		PersistentPreRun: func(*cobra.Command, []string) {
			runtime.LockOSThread() // a CUDA context belongs to a thread
		},
	}
	root.AddCommand(infoCommand(), fillCommand(), pathsCommand(), launchCommand(), loopCommand(), loadCommand(), cyclesCommand())
	return root
}

func writeJSON(w io.Writer, v any) error { return json.NewEncoder(w).Encode(v) }

// card is what infoCommand tells of a card.
type card struct {
	Name   string `json:"name"`
	Total  uint64 `json:"total"`
	SMs    int    `json:"multiprocessors"`
	Major  int    `json:"compute_major"`
	Minor  int    `json:"compute_minor"`
	Driver int    `json:"cuda_driver"`
}

func infoCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "info",
		Short: "List the cards that CUDA offers, as JSON",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			lib, err := cuda.Open()
			if err != nil {
				return err
			}
			devices, err := lib.Devices()
			if err != nil {
				return err
			}
			cards := []card{}
			for _, d := range devices {
				one, err := describe(lib, d)
				if err != nil {
					return err
				}
				cards = append(cards, one)
			}
			return writeJSON(c.OutOrStdout(), cards)
		},
	}
}

func describe(lib *cuda.Library, d cuda.Device) (c card, err error) {
	if c.Name, err = lib.Name(d); err != nil {
		return c, err
	}
	if c.Total, err = lib.TotalMemory(d); err != nil {
		return c, err
	}
	if c.Driver, err = lib.DriverVersion(); err != nil {
		return c, err
	}
	for attribute, to := range map[int]*int{
		cuda.AttributeMultiprocessors: &c.SMs, cuda.AttributeComputeMajor: &c.Major, cuda.AttributeComputeMinor: &c.Minor,
	} {
		if *to, err = lib.Attribute(d, attribute); err != nil {
			return c, err
		}
	}
	return c, nil
}

// open starts CUDA with a context on the first card.
func open() (isolation.Env, error) {
	lib, err := cuda.Open()
	if err != nil {
		return isolation.Env{}, err
	}
	e := isolation.Env{Lib: lib}
	if _, err := lib.CreateContext(e.Device, 0); err != nil {
		return e, err
	}
	e.Stream, err = lib.CreateStream()
	return e, err
}

// filled is what fillCommand tells.
type filled struct {
	Allocated uint64 `json:"allocated"`
	Free      uint64 `json:"free"`
	Total     uint64 `json:"total"`
	Error     string `json:"error"`
}

func fillCommand() *cobra.Command {
	chunk, limit := 64*share.MiB, share.Memory(1<<50)
	var hold bool
	var run string
	c := &cobra.Command{
		Use:   "fill",
		Short: "Allocate until CUDA says out of memory, and tell how much that was",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			e, err := open()
			if err != nil {
				return err
			}
			k, err := loadKernel(e, smallKernel) // while there is room for it
			if err != nil {
				return err
			}
			out := fill(e, uint64(chunk), uint64(limit))
			if out.Free, out.Total, err = e.Lib.MemoryInfo(); err != nil {
				return err
			}
			if err := writeJSON(c.OutOrStdout(), out); err != nil {
				return err
			}
			if run != "" {
				if err := runProgram(c, run); err != nil {
					return err
				}
			}
			if hold {
				return workOnDemand(c, e, k)
			}
			return nil
		},
	}
	c.Flags().Var(&chunk, "chunk", "size of the first allocations; it is halved down to 2Mi as the card fills")
	c.Flags().Var(&limit, "limit", "stop at this much")
	c.Flags().StringVar(&run, "run", "", "run this shell command while the memory is held")
	c.Flags().BoolVar(&hold, "hold", false, "keep the memory until standard input closes or a signal comes; work at every line of it")
	return c
}

// worked is what a round of work tells.
type worked struct {
	Launched int  `json:"launched"`
	Intact   bool `json:"intact"` // what was copied to the card came back
}

// workOnDemand launches kernels and copies for every line of standard input.
func workOnDemand(c *cobra.Command, e isolation.Env, k *kernel) error {
	lines := make(chan struct{})
	go func() {
		defer close(lines)
		for in := bufio.NewScanner(c.InOrStdin()); in.Scan(); {
			lines <- struct{}{}
		}
	}()
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
	for {
		select {
		case <-end:
			return nil
		case _, more := <-lines:
			if !more {
				return nil
			}
		}
		out, err := k.work(e)
		if err != nil {
			return err
		}
		if err := writeJSON(c.OutOrStdout(), out); err != nil {
			return err
		}
	}
}

// fill allocates in chunks, the last ones smaller, until nothing more is to be had.
func fill(e isolation.Env, chunk, limit uint64) (out filled) {
	const smallest = uint64(2 * share.MiB)
	for out.Allocated < limit {
		_, err := e.Lib.Alloc(min(chunk, limit-out.Allocated))
		if err == nil {
			out.Allocated += min(chunk, limit-out.Allocated)
			continue
		}
		out.Error = err.Error()
		if !errors.Is(err, cuda.ErrOutOfMemory) || chunk <= smallest {
			break
		}
		chunk /= 2
	}
	return out
}

func runProgram(c *cobra.Command, command string) error {
	cmd := exec.CommandContext(c.Context(), "sh", "-c", command)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, c.OutOrStdout(), c.ErrOrStderr()
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("run %q: %w", command, err)
	}
	return nil
}

func waitForEnd() {
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		end <- syscall.SIGTERM
	}()
	<-end
}

func pathsCommand() *cobra.Command {
	within, limit := 64*share.MiB, 64*share.GiB
	var only string
	var hold bool
	c := &cobra.Command{
		Use:   "paths",
		Short: "Try every way of taking card memory, within and over what there is",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			e, err := open()
			if err != nil {
				return err
			}
			trials := []isolation.Trial{}
			for _, p := range isolation.Paths() {
				if only == "" || only == p.Name {
					trials = append(trials, isolation.Try(e, p, uint64(within), uint64(limit)))
				}
			}
			if len(trials) == 0 {
				return fmt.Errorf("--only %q: there is no such path", only)
			}
			if err := writeJSON(c.OutOrStdout(), trials); err != nil {
				return err
			}
			if hold {
				waitForEnd()
			}
			return nil
		},
	}
	c.Flags().Var(&within, "within", "what is taken at a time")
	c.Flags().Var(&limit, "limit", "where to give up expecting an error")
	c.Flags().StringVar(&only, "only", "", "try this path alone")
	c.Flags().BoolVar(&hold, "hold", false, "keep the context until standard input closes or a signal comes")
	return c
}
