// Package ociruntime makes containers tenants. It stands where container engines call
// runc, and hands every command on to runc. Before it does so for a container that is to
// have cards it asks who the container is and what it may have, starts its mediator,
// writes its device files and libraries into the bundle, and puts itself, and so runc and
// all that runc starts, under the tenant's filter. It knows OCI bundles and runc's
// command line. What a pod may have the node's agent knows, what is on a card the
// registry of tenants.
//
// Linux inherits filters. So a container's processes, its hooks, and those that are
// executed in it later are filtered from their beginning, by the very filter of `qgpu
// run`, beside whatever seccomp profile the container has; the kernel takes the stricter
// of two filters' answers. Nothing depends on what runc or its libseccomp can do.
package ociruntime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/qgpu-project/qgpu/internal/cli"
	"github.com/qgpu-project/qgpu/internal/tenant"
)

// Run obeys one command line of runc's, args without the program. It returns only if it
// fails, or after commands that it does something after.
func Run(ctx context.Context, s Settings, args []string) error {
	line := parse(args)
	runc, err := s.runc()
	if err == nil {
		err = obey(ctx, s, runc, &line)
	}
	var exit *cli.ExitError
	if err != nil && !errors.As(err, &exit) {
		if logErr := line.report(err, time.Now()); logErr != nil {
			err = fmt.Errorf("%w (and the log cannot be written: %w)", err, logErr)
		}
	}
	return err
}

func obey(ctx context.Context, s Settings, runc string, line *commandLine) error {
	switch line.command {
	case "create", "run":
		runtime.LockOSThread() // for good: the filter is this thread's
		if err := create(ctx, s, line); err != nil {
			return err
		}
	case "exec":
		runtime.LockOSThread()
		if err := execute(ctx, s, line); err != nil {
			return err
		}
	case "delete":
		return remove(ctx, s, runc, line)
	}
	return become(runc, line.args)
}

// become makes this process runc.
func become(runc string, args []string) error {
	return fmt.Errorf("start %s: %w", runc, unix.Exec(runc, append([]string{runc}, args...), os.Environ()))
}

// sweepPatience is how long remove waits for a container's mediator to end: it has as
// soon as the driver has freed the container's memory.
const sweepPatience = 10 * time.Second

// remove has runc delete a container and then sweeps what the tenant left, so that its
// place is free when the engine takes the container for gone.
func remove(ctx context.Context, s Settings, runc string, line *commandLine) error {
	registry := tenant.At(s.StateDir)
	if !registry.Has(line.id) && !registry.IsOutsider(line.id) {
		return become(runc, line.args)
	}
	cmd := exec.CommandContext(ctx, runc, line.args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		// It may be running. If it is not there, what a failed create left is swept.
		if sweepErr := registry.Sweep(ctx, line.id, 0); sweepErr != nil {
			return sweepErr
		}
		return &cli.ExitError{Code: max(exit.ExitCode(), 1)}
	case err != nil:
		return fmt.Errorf("start %s: %w", runc, err)
	}
	if err := registry.ForgetOutsider(line.id); err != nil {
		return err
	}
	return registry.Sweep(ctx, line.id, sweepPatience)
}
