package main

import (
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
)

// bench is a site on which everything is measured.
type bench struct{ *site.Site }

// patience is far longer than any measurement takes on a busy machine.
const patience = 5 * time.Minute

func (s bench) command(name string, args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	cmd := s.Command(ctx, name, args...)
	cmd.Cancel = func() error { defer cancel(); return cmd.Process.Kill() }
	return cmd
}

// direct runs a program on the simulated driver, without a mediator.
func (s bench) direct(program ...string) *exec.Cmd {
	return s.command("qgpu-sim", append([]string{"attach", "--"}, program...)...)
}

// tenant runs a program on a share of the same card.
func (s bench) tenant(program ...string) *exec.Cmd {
	return s.command("qgpu", append([]string{"run", "--driver", "simulated", "--memory", "5Gi", "--"}, program...)...)
}

func (s bench) cudaload() string { return filepath.Join(s.Bin, "cudaload") }

// ask runs a command and decodes the JSON it prints.
func ask[T any](s bench, cmd *exec.Cmd) (T, error) {
	var v T
	out, err := site.Output(cmd)
	if err != nil {
		return v, err
	}
	if err := json.Unmarshal(out, &v); err != nil {
		return v, fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
	}
	return v, nil
}

// timing is what cudaload tells of its launches and cycles.
type timing struct {
	Init    float64 `json:"init_ns"`
	Context float64 `json:"context_ns"`
	Each    float64 `json:"each_ns"`
	Median  float64 `json:"median_ns"` // of cycles
	// Processor is the processor time of a launch.
	Processor float64 `json:"processor_ns"`
}

// round measures everything once, the sides of each pair one right after the other,
// in an order that changes from round to round.
func (s bench) round(i int, r *results) error {
	withFirst := i%2 == 1
	// A few percent are looked for in the last: they are measured twice as often.
	return errors.Join(s.ioctls(withFirst, r), s.cuda(withFirst, r), s.hostPrograms(withFirst, r), s.hostPrograms(!withFirst, r))
}

// both asks two commands for the same, one after the other.
func both[T any](s bench, withFirst bool, without, with *exec.Cmd) (a, b T, err error) {
	var err1, err2 error
	if withFirst {
		b, err2 = ask[T](s, with)
	}
	a, err1 = ask[T](s, without)
	if !withFirst {
		b, err2 = ask[T](s, with)
	}
	return a, b, errors.Join(err1, err2)
}

func (s bench) ioctls(withFirst bool, r *results) error {
	native, err := ask[ioctlTimes](s, exec.Command(s.Self, "-program", "kernel-ioctl"))
	if err != nil {
		return err
	}
	program := []string{s.Self, "-program", "ioctl"}
	direct, mediated, err := both[ioctlTimes](s, withFirst, s.direct(program...), s.tenant(program...))
	if err != nil {
		return err
	}
	r.native = append(r.native, native.Kernel)
	r.filtered = append(r.filtered, mediated.Kernel)
	r.mediated = append(r.mediated, mediated.Share)
	r.driver.add(direct.Params, mediated.Params)
	return nil
}

func (s bench) cuda(withFirst bool, r *results) error {
	program := []string{s.cudaload(), "launch", "--count", "10000"}
	direct, mediated, err := both[timing](s, withFirst, s.direct(program...), s.tenant(program...))
	if err != nil {
		return err
	}
	r.init.add(direct.Init, mediated.Init)
	r.context.add(direct.Context, mediated.Context)
	r.launch.add(direct.Each, mediated.Each)
	r.launchTime.add(direct.Processor, mediated.Processor)

	program = []string{s.cudaload(), "cycles", "--count", "1000"}
	direct, mediated, err = both[timing](s, withFirst, s.direct(program...), s.tenant(program...))
	if err != nil {
		return err
	}
	r.cycle.add(direct.Median, mediated.Median)
	return nil
}

// hostPrograms measures them without a filter, with a container's, and in a tenant.
func (s bench) hostPrograms(withFirst bool, r *results) error {
	filtered, err := ask[[]float64](s, exec.Command(s.Self, "-program", "filtered-programs"))
	if err != nil {
		return err
	}
	without, with, err := both[[]float64](s, withFirst,
		exec.Command(s.Self, "-program", "programs"), s.tenant(s.Self, "-program", "programs"))
	if err != nil {
		return err
	}
	if r.unfiltered == nil {
		r.unfiltered, r.container = make([]pair, len(hostPrograms)), make([]pair, len(hostPrograms))
	}
	for i := range hostPrograms {
		r.unfiltered[i].add(without[i], with[i])
		r.container[i].add(filtered[i], with[i])
	}
	return nil
}

func (p *pair) add(without, with float64) {
	p.without = append(p.without, without)
	p.with = append(p.with, with)
}

// memory is what a process keeps in memory, in KiB.
type memory struct{ rss, pss, private float64 }

// processes are the memories of a mediator and the simulator.
type processes struct{ mediator, simulator memory }

// memoryAtRest measures both while a tenant holds a context and 64 MiB.
func (s bench) memoryAtRest() (p processes, err error) {
	cmd := s.tenant(s.cudaload(), "fill", "--limit", "64Mi", "--hold")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return p, err
	}
	if err := cmd.Start(); err != nil {
		return p, err
	}
	defer func() {
		stdin.Close()
		err = errors.Join(err, cmd.Wait())
	}()
	time.Sleep(5 * time.Second) // at rest
	tenants, err := ask[[]struct {
		State struct{ Mediator int }
	}](s, s.command("qgpu", "ps", "--output", "json"))
	if err != nil {
		return p, err
	}
	if len(tenants) != 1 {
		return p, fmt.Errorf("%d tenants run instead of one", len(tenants))
	}
	if p.mediator, err = memoryOf(tenants[0].State.Mediator); err != nil {
		return p, err
	}
	status, err := site.Output(s.command("qgpu-sim", "status"))
	if err != nil {
		return p, err
	}
	_, number, _ := strings.Cut(string(status), "process ")
	pid, err := strconv.Atoi(strings.TrimSpace(number))
	if err != nil {
		return p, fmt.Errorf("qgpu-sim status does not tell its process: %q", status)
	}
	p.simulator, err = memoryOf(pid)
	return p, err
}

func memoryOf(pid int) (m memory, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return m, err
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		kib, _ := strconv.ParseFloat(f[1], 64)
		switch f[0] {
		case "Rss:":
			m.rss += kib
		case "Pss:":
			m.pss += kib
		case "Private_Dirty:", "Private_Clean:":
			m.private += kib
		}
	}
	return m, nil
}
