package simcmd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/qgpu-project/qgpu/internal/cli"
	"github.com/qgpu-project/qgpu/internal/nvabi"
	"github.com/qgpu-project/qgpu/internal/seccomp"
	"github.com/qgpu-project/qgpu/internal/simgpu/host"
	"github.com/qgpu-project/qgpu/internal/userspace"
)

func (o *options) runCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "run [flags] -- PROGRAM [ARGS…]",
		Short: "Run a program on simulated cards",
		Long: `Run a program on the cards of a running simulator, or, when none runs or card
flags are given, on cards of its own that last as long as it does. The exit
code is the program's. No privileges are needed.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if own := c.Flags().Changed("cards") || c.Flags().Changed("model") || c.Flags().Changed("driver-version"); !own {
				err := o.attach(args, true)
				if !errors.Is(err, host.ErrNotRunning) {
					return err
				}
			}
			return o.runAlone(c.Context(), args)
		},
	}
	o.cardFlags(c)
	return c
}

// runAlone runs args on a driver in this process, which stays its parent: where
// the kernel lets only ancestors reach a process's memory, that is enough.
func (o *options) runAlone(ctx context.Context, args []string) error {
	service, closing, err := o.newService(o.logger(os.Stderr))
	if err != nil {
		return err
	}
	defer closing()
	conn, child, err := seccomp.HandoverPair()
	if err != nil {
		return err
	}
	defer conn.Close()
	cmd := exec.Command("/proc/self/exe", append([]string{"enter", service.Version, "--"}, args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.ExtraFiles = []*os.File{child}
	signals := forwardSignals()
	err = cmd.Start()
	child.Close()
	if err != nil {
		return fmt.Errorf("start %s: %w", args[0], err)
	}
	go signals(cmd.Process)
	served := make(chan error, 1)
	go func() { served <- supervise(ctx, service.Host, conn) }()
	err = cmd.Wait()
	if exit := exitError(cmd.ProcessState); exit != nil {
		return exit
	}
	if err != nil {
		return fmt.Errorf("wait for %s: %w", args[0], err)
	}
	// Processes that the program left behind keep their cards.
	return <-served
}

func supervise(ctx context.Context, h *host.Host, conn *net.UnixConn) error {
	listener, _, err := seccomp.ReceiveListener(conn)
	if err != nil {
		return fmt.Errorf("receive the program's listener: %w", err)
	}
	defer listener.Close()
	if err := seccomp.Acknowledge(conn, nil); err != nil {
		return err
	}
	conn.Close()
	return h.Supervise(ctx, listener)
}

// forwardSignals catches signals meant for the program. Those of the terminal
// reach it anyway, as it is in the same process group.
func forwardSignals() func(*os.Process) {
	caught := make(chan os.Signal, 16)
	signal.Notify(caught, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2)
	signal.Ignore(syscall.SIGINT, syscall.SIGQUIT)
	return func(p *os.Process) {
		for s := range caught {
			p.Signal(s)
		}
	}
}

func exitError(s *os.ProcessState) error {
	if s == nil || s.Success() {
		return nil
	}
	if w, ok := s.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return &cli.ExitError{Code: 128 + int(w.Signal())}
	}
	return &cli.ExitError{Code: s.ExitCode()}
}

// attachCommand becomes a program on the running simulator's cards.
func (o *options) attachCommand() *cobra.Command {
	var noPaths bool
	c := &cobra.Command{
		Use:    "attach -- PROGRAM [ARGS…]",
		Short:  "Become a program on a running simulator's cards",
		Args:   cobra.MinimumNArgs(1),
		Hidden: true,
		RunE:   func(_ *cobra.Command, args []string) error { return o.attach(args, !noPaths) },
	}
	c.Flags().BoolVar(&noPaths, "no-paths", false, "the program has its own device view; leave file names alone")
	return c
}

func (o *options) attach(args []string, withPaths bool) error {
	client := host.Client{Dir: o.dir}
	info, err := client.Info()
	if err != nil {
		return err
	}
	conn, err := client.Attach()
	if err != nil {
		return err
	}
	return enter(conn, info.Version, args, withPaths)
}

// enterCommand is the child's side of runAlone: descriptor 3 is its socket.
func enterCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "enter VERSION -- PROGRAM [ARGS…]",
		Args:   cobra.MinimumNArgs(2),
		Hidden: true,
		RunE: func(_ *cobra.Command, args []string) error {
			f := os.NewFile(3, "simgpu")
			conn, err := seccomp.HandoverConn(f)
			f.Close()
			if err != nil {
				return err
			}
			return enter(conn, args[0], args[1:], true)
		},
	}
}

// enter filters this thread, sends the listener over conn and becomes args.
func enter(conn *net.UnixConn, version string, args []string, withPaths bool) error {
	v, err := nvabi.ParseVersion(version)
	if err != nil {
		return err
	}
	abi, err := nvabi.For(v)
	if err != nil {
		return err
	}
	env := os.Environ()
	if withPaths {
		u, err := userspace.Find(version)
		if err != nil {
			return err
		}
		env = u.Environ(env)
	}
	path, err := userspace.LookPath(args[0], env)
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	if err := seccomp.Launch(conn, host.Filter(abi, withPaths), seccomp.InstallOptions{}); err != nil {
		return fmt.Errorf("enter the simulator: %w", err)
	}
	if err := unix.Exec(path, args, env); err != nil {
		return fmt.Errorf("start %s: %w", path, err)
	}
	return nil
}
