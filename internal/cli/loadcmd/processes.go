package loadcmd

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"syscall"

	"github.com/spf13/cobra"
)

// child is another process of the same load.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// loadProcesses works in several processes, which begin at the same time, and tells what
// they had together. They end with this one.
func (o loadOptions) loadProcesses(c *cobra.Command) (loaded, error) {
	var children []*child
	defer func() {
		for _, ch := range children {
			ch.cmd.Process.Kill()
			_ = ch.cmd.Wait() // it has ended by then, or was killed
		}
	}()
	for range o.processes {
		ch, err := startChild(c)
		if err != nil {
			return loaded{}, err
		}
		children = append(children, ch)
	}
	for _, ch := range children {
		if line, err := ch.out.ReadString('\n'); line != readyLine+"\n" {
			return loaded{}, fmt.Errorf("one of the processes said %q: %w", line, err)
		}
	}
	if o.wait {
		if err := awaitLine(c); err != nil {
			return loaded{}, err
		}
	}
	for _, ch := range children {
		if _, err := io.WriteString(ch.in, "\n"); err != nil {
			return loaded{}, fmt.Errorf("have a process begin: %w", err)
		}
	}
	all := make([]loaded, len(children))
	for i, ch := range children {
		if err := json.NewDecoder(ch.out).Decode(&all[i]); err != nil {
			return loaded{}, fmt.Errorf("one of the processes did not tell how it fared: %w", err)
		}
	}
	return sum(all), nil
}

// startChild runs this program again with the same flags, as one process.
func startChild(c *cobra.Command) (*child, error) {
	args := append(slices.Clone(os.Args[1:]), "--"+processesFlag+"=1", "--"+samplesFlag, "--wait", "--json")
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Stderr = c.ErrOrStderr()
	// The thread that makes it is the program's first, which lives as long.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start another process: %w", err)
	}
	return &child{cmd, in, bufio.NewReader(out)}, nil
}

// sum is what processes had together.
func sum(all []loaded) (r loaded) {
	for i, one := range all {
		r.Kernels += one.Kernels
		r.GPUTime += one.GPUTime
		r.Elapsed = max(r.Elapsed, one.Elapsed)
		if i == 0 || one.Kernel < r.Kernel {
			r.Kernel = one.Kernel
		}
		r.Samples = append(r.Samples, one.Samples...)
	}
	slices.Sort(r.Samples)
	r.summarize()
	return r
}
