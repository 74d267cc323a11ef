package gpucheck

import (
	"bufio"
	"bytes"
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

	"golang.org/x/sys/unix"
)

// patience is how long one program may take before its line fails.
const patience = 60 * time.Second

// site is where programs run: folders of this check's own, and a simulator if the
// card is simulated.
type site struct {
	bin       string
	self      string
	dir       string
	simulated bool
	card      string // UUID of the card that is checked, once known
}

func openSite(ctx context.Context, bin string, simulated bool) (*site, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("needs root to start tenants and to change time slices; use sudo")
	}
	bin, err := filepath.Abs(bin)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "qgpu-check-")
	if err != nil {
		return nil, err
	}
	s := &site{bin: bin, self: self, dir: dir, simulated: simulated}
	err = os.Chmod(dir, 0o755)
	if err == nil && simulated {
		_, err = s.run(ctx, s.command(ctx, "qgpu-sim", "start"))
	}
	if err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	return s, nil
}

func (s *site) close() {
	if s.simulated {
		ctx := context.Background()
		if _, err := s.run(ctx, s.command(ctx, "qgpu-sim", "stop")); err != nil {
			fmt.Fprintln(os.Stderr, "gpu-check:", err)
		}
	}
	os.RemoveAll(s.dir)
}

func (s *site) program(name string) string { return filepath.Join(s.bin, name) }

func (s *site) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	path := name
	if !strings.Contains(name, "/") && strings.HasPrefix(name, "qgpu") {
		path = s.program(name)
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), "QGPU_STATE_DIR="+filepath.Join(s.dir, "state"), "QGPU_SIM_DIR="+filepath.Join(s.dir, "sim"))
	// Descendants that keep the output open do not keep the check waiting.
	cmd.WaitDelay = time.Second
	return cmd
}

// bare is a program on the card without a mediator.
func (s *site) bare(ctx context.Context, program ...string) *exec.Cmd {
	cmd := s.command(ctx, program[0], program[1:]...)
	if s.simulated {
		cmd = s.command(ctx, "qgpu-sim", append([]string{"attach", "--"}, program...)...)
	}
	cmd.Env = append(cmd.Env, "CUDA_VISIBLE_DEVICES="+s.card)
	return cmd
}

// tenant is a program on a share of the card.
func (s *site) tenant(ctx context.Context, memory string, program ...string) *exec.Cmd {
	driver := "kernel"
	if s.simulated {
		driver = "simulated"
	}
	return s.command(ctx, "qgpu", append([]string{"run", "--driver", driver, "--card", s.card, "--memory", memory, "--"}, program...)...)
}

// client is a program of ours that speaks to the driver itself.
func (s *site) client(ctx context.Context, program ...string) *exec.Cmd {
	if s.simulated {
		return s.command(ctx, "qgpu-sim", append([]string{"attach", "--no-paths", "--"}, program...)...)
	}
	return s.command(ctx, program[0], program[1:]...)
}

// run runs a command to its end, or until patience is over.
func (s *site) run(ctx context.Context, cmd *exec.Cmd) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		return "", fmt.Errorf("%s: %w", filepath.Base(cmd.Path), err)
	}
	late := time.AfterFunc(patience, func() { cmd.Process.Kill() })
	err := cmd.Wait()
	if !late.Stop() && err != nil {
		err = fmt.Errorf("not done after %v, killed", patience)
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return stdout.String(), fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// ask runs a command that prints one JSON value.
func ask[T any](ctx context.Context, s *site, cmd *exec.Cmd) (v T, raw string, err error) {
	raw, err = s.run(ctx, cmd)
	if err != nil {
		return v, raw, err
	}
	if err := json.Unmarshal([]byte(raw), &v); err != nil {
		return v, raw, fmt.Errorf("%s printed no JSON: %w", filepath.Base(cmd.Path), err)
	}
	return v, raw, nil
}

// background is a program that runs beside the check.
type background struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	lines  chan string
	stderr bytes.Buffer

	launches int // that it told of last, to counts
}

func start(cmd *exec.Cmd) (*background, error) {
	b := &background{cmd: cmd, lines: make(chan string, 4096)}
	cmd.Stderr = &b.stderr
	var err error
	if b.stdin, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Base(cmd.Path), err)
	}
	go func() {
		defer close(b.lines)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			b.lines <- lines.Text()
		}
	}()
	return b, nil
}

func decode(line string, v any) error { return json.Unmarshal([]byte(line), v) }

// next decodes the program's next line.
func next[T any](b *background) (v T, err error) {
	select {
	case line, ok := <-b.lines:
		if !ok {
			return v, fmt.Errorf("%s ended: %s", filepath.Base(b.cmd.Path), strings.TrimSpace(b.stderr.String()))
		}
		if err := decode(line, &v); err != nil {
			return v, fmt.Errorf("%s printed %q: %w", filepath.Base(b.cmd.Path), line, err)
		}
		return v, nil
	case <-time.After(patience):
		return v, fmt.Errorf("%s said nothing for %v", filepath.Base(b.cmd.Path), patience)
	}
}

func (b *background) stop() {
	b.stdin.Close()
	b.cmd.Process.Kill()
	go func() { // lets the reader end
		for range b.lines {
		}
	}()
	b.cmd.Wait()
}

func kernelRelease() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(u.Release[:])
}
