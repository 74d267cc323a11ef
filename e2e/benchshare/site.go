package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/qgpu-project/qgpu/e2e/site"
	"github.com/qgpu-project/qgpu/internal/simgpu/host"
)

// place is a site with what its card tells.
type place struct {
	*site.Site
	card host.Client
}

// patience is far longer than any command takes on a busy machine.
const patience = 2 * time.Minute

// life is the longest that a tenant is kept.
const life = 10 * time.Minute

func newPlace(bin string) (*place, error) {
	s, err := site.New(bin)
	if err != nil {
		return nil, err
	}
	return &place{Site: s, card: host.Client{Dir: s.SimDir()}}, nil
}

// run runs a command and returns what it prints.
func (s *place) run(name string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return site.Output(s.Command(ctx, name, args...))
}

// tenant is a program on a share of the card.
type tenant struct {
	cmd      *exec.Cmd
	cancel   context.CancelFunc
	stdin    *os.File
	stdout   *bufio.Scanner
	stderr   bytes.Buffer
	mediator int // process id, under which the card accounts for the tenant
	id       string
	core     int
}

// start starts a program as a tenant, which is ready when it says so.
func (s *place) start(flags, program []string) (*tenant, error) {
	ctx, cancel := context.WithTimeout(context.Background(), life)
	args := append([]string{"run", "--driver", "simulated"}, flags...)
	t := &tenant{cmd: s.Command(ctx, "qgpu", append(append(args, "--"), program...)...), cancel: cancel}
	stdin, write, err := os.Pipe()
	if err != nil {
		cancel()
		return nil, err
	}
	defer stdin.Close()
	t.cmd.Stdin, t.stdin, t.cmd.Stderr = stdin, write, &t.stderr
	stdout, err := t.cmd.StdoutPipe()
	if err == nil {
		err = t.cmd.Start()
	}
	if err != nil {
		write.Close()
		cancel()
		return nil, err
	}
	t.stdout = bufio.NewScanner(stdout)
	return t, nil
}

// ready waits until all tenants are, and finds their mediators.
func (s *place) ready(tenants []*tenant) error {
	for _, t := range tenants {
		if line := t.line(); line != "ready" {
			return fmt.Errorf("%s did not start: %q", strings.Join(t.cmd.Args, " "), line)
		}
	}
	out, err := s.run("qgpu", "ps", "--output", "json")
	if err != nil {
		return err
	}
	var list []struct {
		ID    string
		PID   int
		Share struct{ Core int }
		State struct{ Mediator int }
	}
	if err := json.Unmarshal(out, &list); err != nil {
		return fmt.Errorf("qgpu ps: %w", err)
	}
	for _, t := range tenants {
		for _, l := range list {
			if l.PID == t.cmd.Process.Pid {
				t.id, t.core, t.mediator = l.ID, l.Share.Core, l.State.Mediator
			}
		}
		if t.mediator == 0 {
			return errors.New("qgpu ps does not list every tenant's mediator")
		}
	}
	return nil
}

// startAll starts a tenant for each of loads. All are ended by end.
func (s *place) startAll(loads []load) (tenants []*tenant, end func(), err error) {
	end = func() {
		for _, t := range tenants {
			t.end()
		}
	}
	for _, l := range loads {
		t, err := s.start(l.flags(), l.program(s))
		if err != nil {
			return nil, end, err
		}
		tenants = append(tenants, t)
	}
	return tenants, end, s.ready(tenants)
}

// work has a tenant begin.
func (t *tenant) work() error {
	_, err := t.stdin.WriteString("\n")
	return err
}

// line is the next line that the program prints; if there is none, what it complains of.
func (t *tenant) line() string {
	if t.stdout.Scan() {
		return t.stdout.Text()
	}
	t.end()
	return strings.TrimSpace(t.stderr.String())
}

// end ends the tenant, and all that it started.
func (t *tenant) end() {
	t.cancel()
	t.stdin.Close()
	_ = t.cmd.Wait() // killed
}

// load is a tenant of the matrix.
type load struct {
	share  []string // flags of qgpu run
	memory string
	blocks int // of each kernel
	many   int // processes; 0: one
	// pattern is cudaload's; empty: constant.
	pattern string
	other   []string // instead of a load
}

func (l load) flags() []string {
	memory := l.memory
	if memory == "" {
		memory = "1Gi"
	}
	return append([]string{"--memory", memory}, l.share...)
}

func (l load) program(s *place) []string {
	if l.other != nil {
		return l.other
	}
	args := []string{filepath.Join(s.Bin, "cudaload"), "load", "--wait", "--json", "--seconds", "1000", "--blocks", strconv.Itoa(l.blocks)}
	if l.pattern != "" {
		args = append(args, "--pattern", l.pattern)
	}
	if l.many > 1 {
		args = append(args, "--processes", strconv.Itoa(l.many))
	}
	return args
}
