package qgpucmd

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/qgpu-project/qgpu/internal/launch"
	"github.com/qgpu-project/qgpu/internal/share"
)

func (o *options) demoCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "Show two programs sharing one card",
		Long: `Show two programs sharing one card, each held to its own memory, and a third
that does not fit. On a machine without NVIDIA's driver the card is simulated.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			d, err := newDemo(c.Context(), c.OutOrStdout())
			if err != nil {
				return err
			}
			defer d.close()
			return d.show()
		},
	}
}

// demo plays the programs that a user would type.
type demo struct {
	ctx    context.Context
	out    io.Writer
	bin    string // folder of the programs
	dir    string // of its own state
	driver string
}

func newDemo(ctx context.Context, out io.Writer) (*demo, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("the demo starts tenants, which needs root; use sudo")
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	d := &demo{ctx: ctx, out: out, bin: filepath.Dir(exe), driver: launch.DriverKernel}
	if _, err := os.Stat("/dev/nvidiactl"); err != nil {
		d.driver = launch.DriverSimulated
	}
	if d.dir, err = os.MkdirTemp("", "qgpu-demo-"); err != nil {
		return nil, err
	}
	return d, os.Chmod(d.dir, 0o755)
}

func (d *demo) close() {
	if d.driver == launch.DriverSimulated {
		d.command("qgpu-sim", "stop").Run()
	}
	os.RemoveAll(d.dir)
}

func (d *demo) command(name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(d.ctx, filepath.Join(d.bin, name), args...)
	cmd.Env = append(os.Environ(), "QGPU_STATE_DIR="+filepath.Join(d.dir, "state"), "QGPU_SIM_DIR="+filepath.Join(d.dir, "sim"))
	return cmd
}

func (d *demo) say(format string, args ...any) {
	fmt.Fprintf(d.out, "\n\x1b[1m── "+format+"\x1b[0m\n", args...)
}

// run runs a command, shows it and its output, and returns the output.
func (d *demo) run(name string, args ...string) (string, error) {
	fmt.Fprintf(d.out, "$ %s %s\n", name, strings.Join(args, " "))
	out, err := d.command(name, args...).CombinedOutput()
	d.out.Write(out)
	return string(out), err
}

func (d *demo) show() error {
	fmt.Fprintf(d.out, "qGPU: two unmodified programs on one card (%s driver)\n", d.driver)
	if d.driver == launch.DriverSimulated {
		if _, err := d.run("qgpu-sim", "start", "--model", "t4"); err != nil {
			return err
		}
	}
	before, err := d.wholeCard()
	if err != nil {
		return err
	}

	five, err := d.fill(5 * share.GiB)
	if err != nil {
		return err
	}
	defer five.end()
	eight, err := d.fill(8 * share.GiB)
	if err != nil {
		return err
	}
	defer eight.end()

	d.say("Who has what")
	if _, err := d.run("qgpu", "ps"); err != nil {
		return err
	}
	if err := d.refused(); err != nil {
		return err
	}
	d.say("The first goes on working while the second is full: it launches kernels, copies data and compares")
	five.say("go on")
	fmt.Fprintln(d.out, five.line())

	d.say("Both end; all memory is free again")
	five.end()
	eight.end()
	after, err := d.wholeCard()
	if err != nil {
		return err
	}
	if before != after {
		return fmt.Errorf("the card had %s in use before and has %s after", before, after)
	}
	fmt.Fprintln(d.out, "\nthe card is as it was")
	return d.compute()
}

// wholeCard asks for the card's use of memory without a share.
func (d *demo) wholeCard() (string, error) {
	query := []string{"nvidia-smi", "--query-gpu=name,memory.used,memory.total", "--format=csv,noheader"}
	d.say("The card itself")
	deadline := time.Now().Add(10 * time.Second)
	for {
		cmd := exec.CommandContext(d.ctx, query[0], query[1:]...)
		if d.driver == launch.DriverSimulated {
			cmd = d.command("qgpu-sim", append([]string{"run", "--"}, query...)...)
		}
		out, err := cmd.Output()
		if err != nil {
			return "", fmt.Errorf("ask nvidia-smi: %w", err)
		}
		// A tenant that just ended takes moments to be gone.
		if ps, _ := d.command("qgpu", "ps").Output(); strings.Count(string(ps), "\n") == 1 || time.Now().After(deadline) {
			fmt.Fprintf(d.out, "$ %s\n%s", strings.Join(query, " "), out)
			return string(out), nil
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// fill starts a tenant that fills its share and shows what it sees.
func (d *demo) fill(memory share.Memory) (*demoTenant, error) {
	d.say("A tenant of %v allocates until CUDA says out of memory, then looks at its card", memory)
	args := []string{"run", "--driver", d.driver, "--memory", memory.String(), "--", "cudaload", "fill", "--hold", "--run", "nvidia-smi; echo"}
	fmt.Fprintf(d.out, "$ qgpu %s\n", strings.Join(args, " "))
	cmd := d.command("qgpu", args...)
	cmd.Env = append(cmd.Env, "PATH="+d.bin+":"+os.Getenv("PATH"))
	t := &demoTenant{cmd: cmd}
	var err error
	if t.stdin, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	t.stdout = bufio.NewScanner(stdout)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	var got struct {
		Allocated, Free, Total uint64
		Error                  string
	}
	if err := json.Unmarshal([]byte(t.line()), &got); err != nil {
		t.end()
		return nil, fmt.Errorf("the program did not fill its share: %w", err)
	}
	fmt.Fprintf(d.out, "allocated %d MiB; CUDA reports %d MiB free of %d MiB; then: %s\n",
		got.Allocated>>20, got.Free>>20, got.Total>>20, got.Error)
	for line := t.line(); line != ""; line = t.line() {
		fmt.Fprintln(d.out, line)
	}
	return t, nil
}

// refused shows a tenant that no longer fits.
func (d *demo) refused() error {
	node, err := launch.Open(d.ctx, d.driver, filepath.Join(d.dir, "sim"))
	if err != nil {
		return err
	}
	most := share.Memory(0)
	for _, c := range node.PlacementCards() {
		most = max(most, c.Memory)
	}
	tooMuch := (most - 13*share.GiB).GiBUp() + share.GiB
	d.say("A third tenant that no longer fits is refused, with the reason")
	if _, err := d.run("qgpu", "run", "--driver", d.driver, "--card", "0", "--memory", tooMuch.String(), "--", "nvidia-smi"); err == nil {
		return errors.New("the third tenant was admitted")
	}
	return nil
}

// demoTenant is a tenant that runs beside the demo.
type demoTenant struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Scanner
}

func (t *demoTenant) line() string {
	if t.stdout.Scan() {
		return t.stdout.Text()
	}
	return ""
}

func (t *demoTenant) say(line string) { fmt.Fprintln(t.stdin, line) }

func (t *demoTenant) end() {
	t.stdin.Close()
	t.cmd.Wait()
}
