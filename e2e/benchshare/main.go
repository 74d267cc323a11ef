// Command benchshare measures what tenants have of a simulated card's compute against what
// they asked for: policies, mixes of shares and patterns of work, online over offline
// tenants, and what enforcement costs. It writes a report in Markdown and two plots beside it.
// It starts a simulator and tenants of its own; it needs root.
//
//	go run ./e2e/benchshare -bin bin -o docs/compute.md
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// pingProgram is the name of the program that this binary is in tenants.
const pingProgram = "ping"

func main() {
	bin := flag.String("bin", "bin", "folder of the built programs")
	out := flag.String("o", "", "file to write the report to, with plots beside it (default: standard output, no plots)")
	only := flag.String("only", "", "measure only cells whose name contains this, and print them")
	budget := flag.Duration("budget", 12*time.Minute, "leave out what is not begun by then")
	quick := flag.Bool("quick", false, "of all patterns but equal kernels, measure 30:70 alone")
	program := flag.String("program", "", "be this program instead of measuring")
	count := flag.Int("count", 1, "launches of the program")
	flag.Parse()
	var err error
	switch *program {
	case "":
		err = measure(*bin, *out, plan{*only, *budget, *quick})
	case pingProgram:
		err = runPing(*count)
	default:
		err = fmt.Errorf("-program %s: choose %s", *program, pingProgram)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchshare:", err)
		os.Exit(1)
	}
}

// plan says what to measure.
type plan struct {
	only   string // only groups in which a name contains this
	budget time.Duration
	quick  bool
}

func measure(bin, out string, p plan) error {
	if os.Geteuid() != 0 {
		return errors.New("needs root to start tenants")
	}
	bin, err := filepath.Abs(bin)
	if err != nil {
		return err
	}
	s, err := newPlace(bin)
	if err != nil {
		return err
	}
	defer func() {
		if err := s.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "benchshare:", err)
		}
	}()
	var stop atomic.Bool // ends the run in good order
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	go func() { <-interrupted; stop.Store(true) }()

	r, err := s.all(p, stop.Load)
	if err != nil {
		return err
	}
	if p.only != "" {
		for _, c := range r.cells {
			fmt.Println(c.row())
		}
		return nil
	}
	plotPath := strings.TrimSuffix(out, filepath.Ext(out)) + ".svg"
	var text bytes.Buffer
	if err := r.write(&text, strings.TrimSuffix(filepath.Base(out), filepath.Ext(out))); err != nil {
		return err
	}
	if out == "" {
		_, err = os.Stdout.Write(text.Bytes())
		return err
	}
	if err := os.WriteFile(plotPath, []byte(plot(r.cells)), 0o644); err != nil {
		return err
	}
	tradePath := strings.TrimSuffix(out, filepath.Ext(out)) + "-slices.svg"
	if err := os.WriteFile(tradePath, []byte(plotTrade(trade())), 0o644); err != nil {
		return err
	}
	return os.WriteFile(out, text.Bytes(), 0o644)
}

// all measures what the plan says. What is not begun when the budget is spent is left out.
func (s *place) all(p plan, stop func() bool) (*results, error) {
	r := &results{}
	start := time.Now()
	var err error
	if r.kernels, err = s.calibrate(); err != nil {
		return nil, err
	}
	if p.only == "" { // first, as the matrix may not fit into the budget
		if r.online, err = s.onlineOverOffline(r.kernels); err != nil {
			return nil, fmt.Errorf("online over offline: %w", err)
		}
		if r.cost, err = s.cost(r.kernels); err != nil {
			return nil, fmt.Errorf("cost: %w", err)
		}
	}
	groups := matrix(r.kernels, p.quick)
	for i, g := range groups {
		if stop() {
			return nil, errors.New("interrupted")
		}
		if !g.has(p.only) {
			continue
		}
		if time.Since(start) > p.budget {
			r.left = append(r.left, g...)
			continue
		}
		fmt.Fprintf(os.Stderr, "%3d of %d groups, %v:\n", i+1, len(groups), time.Since(start).Round(time.Second))
		got, err := s.group(g)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", g[0].name(), err)
		}
		r.cells = append(r.cells, got...)
	}
	return r, nil
}

// has tells whether the name of one of the scenes contains part.
func (g group) has(part string) bool {
	return slices.ContainsFunc(g, func(s scene) bool { return strings.Contains(s.name(), part) })
}
