// Package site is a place of its own for a benchmark: a simulated T4, a registry of
// tenants, and the built programs that use both. It knows nothing of what is measured.
package site

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Site is a simulator and a registry of tenants of one run's own.
type Site struct {
	Bin  string // folder of the built programs
	Self string // this program, which tenants may run too
	dir  string
}

// New starts the simulator. bin is the folder of the built programs.
func New(bin string) (*Site, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "qgpu-bench-")
	if err != nil {
		return nil, err
	}
	s := &Site{Bin: bin, Self: self, dir: dir}
	err = os.Chmod(dir, 0o755) // mediators are users of their own
	if err == nil {
		_, err = Output(s.Command(context.Background(), "qgpu-sim", "start", "--model", "t4", "--driver-version", "535"))
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return s, nil
}

// Close ends the simulator and removes the site's folder.
func (s *Site) Close() error {
	_, err := Output(s.Command(context.Background(), "qgpu-sim", "stop"))
	return errors.Join(err, os.RemoveAll(s.dir))
}

// SimDir is the simulator's folder.
func (s *Site) SimDir() string { return filepath.Join(s.dir, "sim") }

// Command is a command of the built program name at the site, killed when ctx ends.
func (s *Site) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(s.Bin, name), args...)
	cmd.Env = append(os.Environ(), "QGPU_STATE_DIR="+filepath.Join(s.dir, "state"), "QGPU_SIM_DIR="+s.SimDir())
	return cmd
}

// Output runs cmd and returns what it prints. An error says what it complained of.
func Output(cmd *exec.Cmd) ([]byte, error) {
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return out, nil
}
