// Package checkcmd is the gpu-check command, which hack/gpu-check runs.
package checkcmd

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/qgpu-project/qgpu/internal/cli"
	"github.com/qgpu-project/qgpu/internal/gpucheck"
	"github.com/qgpu-project/qgpu/internal/launch"
)

// limit is how long the whole check may take.
const limit = 9 * time.Minute

// New makes the command.
func New() *cobra.Command {
	var driver, output string
	root := &cobra.Command{
		Use:   "gpu-check",
		Short: "Check whether a machine's card is shared as it should be",
		Long: `Check on a machine with a card, real or simulated, that NVIDIA's programs run
under the mediator, that quotas hold, what that costs, and that the driver's time
slices do what they should. It needs root, no network, and under ten minutes. The
card should be idle. The exit code is 1 if a line failed.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if driver != launch.DriverKernel && driver != launch.DriverSimulated {
				return fmt.Errorf("--driver %s: choose kernel or simulated", driver)
			}
			self, err := os.Executable()
			if err != nil {
				return err
			}
			// An interrupted check still stops what it started.
			ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the check has taken %v", limit))
			defer cancel()
			report, err := gpucheck.Run(ctx, gpucheck.Config{
				Bin: filepath.Dir(self), Simulated: driver == launch.DriverSimulated, Progress: c.ErrOrStderr(),
			})
			if err != nil {
				return err
			}
			if output != "" {
				if err := report.WriteFile(output); err != nil {
					return err
				}
			}
			if err := report.Write(c.OutOrStdout()); err != nil {
				return err
			}
			if report.Failed() > 0 {
				return &cli.ExitError{Code: 1}
			}
			return nil
		},
	}
	root.Flags().StringVar(&driver, "driver", launch.DriverKernel, "kernel or simulated")
	root.Flags().StringVarP(&output, "output", "o", "", "also write the report as JSON to this file")
	root.AddCommand(actCommand())
	return root
}

func actCommand() *cobra.Command {
	var pid int
	var timeslice uint64
	c := &cobra.Command{
		Use:    "act",
		Short:  "Set the time slices of another process's channel groups",
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE: func(c *cobra.Command, _ []string) error {
			return json.NewEncoder(c.OutOrStdout()).Encode(gpucheck.Act(pid, timeslice))
		},
	}
	c.Flags().IntVar(&pid, "pid", 0, "the process")
	c.Flags().Uint64Var(&timeslice, "timeslice", 0, "microseconds")
	return c
}
