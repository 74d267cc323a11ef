// Package checkcmd is the gpu-check command, which hack/gpu-check runs.
package checkcmd

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/qgpu-project/qgpu/internal/cli"
	"github.com/qgpu-project/qgpu/internal/gpucheck"
	"github.com/qgpu-project/qgpu/internal/launch"
	"github.com/qgpu-project/qgpu/internal/tenant"
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
under the mediator, that quotas hold, what that costs, and what the card does with
each control of its schedule. qgpu doctor tells the last, from a record in the state
folder. It needs root, no network, and under ten minutes. The
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
			if err := report.Record(stateDir()); err != nil {
				fmt.Fprintln(c.ErrOrStderr(), "gpu-check:", err)
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

// stateDir is where qgpu doctor looks for what a check has found.
func stateDir() string {
	if dir := os.Getenv("QGPU_STATE_DIR"); dir != "" {
		return dir
	}
	return tenant.DefaultDir
}

func actCommand() *cobra.Command {
	var d gpucheck.Deed
	c := &cobra.Command{
		Use:    "act",
		Short:  "Do something to another process's channel groups from outside",
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE: func(c *cobra.Command, _ []string) error {
			runtime.LockOSThread() // it may lose its privileges
			return json.NewEncoder(c.OutOrStdout()).Encode(gpucheck.Act(d))
		},
	}
	c.Flags().IntVar(&d.PID, "pid", 0, "the process")
	c.Flags().Uint64Var(&d.Timeslice, "timeslice", 0, "microseconds")
	c.Flags().StringVar((*string)(&d.Gate), "gate", "", "shut or open")
	c.Flags().BoolVar(&d.Restart, "restart", false, "restart the runlist")
	c.Flags().IntVar(&d.User, "user", 0, "call as this user without capabilities")
	return c
}
