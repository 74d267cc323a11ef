package simcmd

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/qgpu-project/qgpu/internal/simgpu/host"
)

func (o *options) startCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "start",
		Short: "Start simulated cards that programs can share",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.start(); err != nil {
				return err
			}
			return o.status(c.OutOrStdout())
		},
	}
	o.cardFlags(c)
	return c
}

// start runs the service as a process of its own and waits until it serves.
func (o *options) start() error {
	if _, _, err := o.cardConfigs(); err != nil {
		return err
	}
	if err := os.MkdirAll(o.dir, 0o755); err != nil {
		return fmt.Errorf("make the simulator's folder: %w", err)
	}
	log, err := os.OpenFile(o.logPath(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("open the simulator's log: %w", err)
	}
	defer log.Close()
	ready, child, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ready.Close()
	cmd := exec.Command("/proc/self/exe", append([]string{"serve"}, o.cardArgs()...)...)
	cmd.Stderr = log
	cmd.ExtraFiles = []*os.File{child}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	child.Close()
	if err != nil {
		return fmt.Errorf("start the simulator: %w", err)
	}
	defer cmd.Process.Release()
	line, err := bufio.NewReader(ready).ReadString('\n')
	switch {
	case strings.TrimSpace(line) == readyLine:
		return nil
	case line != "":
		return errors.New(strings.TrimSpace(line))
	}
	return fmt.Errorf("the simulator ended at once; its log is %s (%w)", o.logPath(), err)
}

const readyLine = "ready"

func (o *options) logPath() string { return filepath.Join(o.dir, "simgpu.log") }

func (o *options) serveCommand() *cobra.Command {
	c := &cobra.Command{
		Use:    "serve",
		Short:  "Serve simulated cards in the foreground",
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE: func(c *cobra.Command, _ []string) error {
			ready := os.NewFile(3, "ready")
			err := o.serve(c, ready)
			if err != nil {
				fmt.Fprintln(ready, err)
			}
			return err
		},
	}
	o.cardFlags(c)
	return c
}

// sparePlaces are those in which goroutines run beside one for each processor. A thread that
// answers a real-time caller then need not wait until another, which a busy machine does
// not let run, makes room for it.
const sparePlaces = 6

func (o *options) serve(c *cobra.Command, ready io.WriteCloser) error {
	runtime.GOMAXPROCS(runtime.NumCPU() + sparePlaces)
	ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	service, closing, err := o.newService(o.logger(os.Stderr))
	if err != nil {
		return err
	}
	defer closing()
	listener, err := host.Listen(o.dir)
	if err != nil {
		return err
	}
	fmt.Fprintln(ready, readyLine)
	ready.Close()
	return service.Serve(ctx, listener)
}

func (o *options) stopCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "stop",
		Short: "Stop the simulated cards; programs on them lose their driver",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			client := host.Client{Dir: o.dir}
			if err := client.Stop(); err != nil {
				return err
			}
			for range 500 { // it closes its socket within moments
				if _, err := client.Info(); err != nil {
					return nil
				}
				time.Sleep(10 * time.Millisecond)
			}
			return errors.New("the simulator still answers 5 s after it was asked to stop")
		},
	}
}

func (o *options) statusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Say what is simulated",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return o.status(c.OutOrStdout()) },
	}
}

func (o *options) status(w io.Writer) error {
	info, err := host.Client{Dir: o.dir}.Info()
	if err != nil {
		return err
	}
	counts := map[string]int{}
	for _, m := range info.Models {
		counts[m]++
	}
	var cards []string
	for _, m := range slices.Compact(slices.Sorted(slices.Values(info.Models))) {
		cards = append(cards, fmt.Sprintf("%d × %s", counts[m], m))
	}
	_, err = fmt.Fprintf(w, "simulated cards: %s; driver %s; process %d\n", strings.Join(cards, ", "), info.Version, info.PID)
	return err
}
