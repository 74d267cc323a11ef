// Command benchshare measures what tenants have of a simulated card's compute against what
// they asked for: policies, mixes of shares and patterns of work, online over offline
// tenants, and what enforcement costs. It writes a report in Markdown and a plot beside it.
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
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// Names of the programs that this binary is in tenants.
const (
	manyProgram = "many"
	pingProgram = "ping"
)

func main() {
	bin := flag.String("bin", "bin", "folder of the built programs")
	out := flag.String("o", "", "file to write the report to, with a plot beside it (default: standard output, no plot)")
	only := flag.String("only", "", "measure only cells whose name contains this, and print them")
	budget := flag.Duration("budget", 6*time.Minute, "leave out what is not begun by then")
	program := flag.String("program", "", "be this program instead of measuring")
	count := flag.Int("count", 1, "processes or launches of the program")
	flag.Parse()
	var err error
	switch *program {
	case "":
		err = measure(*bin, *out, *only, *budget)
	case manyProgram:
		err = runMany(*count, flag.Args())
	case pingProgram:
		err = runPing(*count)
	default:
		err = fmt.Errorf("-program %s: choose %s or %s", *program, manyProgram, pingProgram)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchshare:", err)
		os.Exit(1)
	}
}

func measure(bin, out, only string, budget time.Duration) error {
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

	r, err := s.all(only, budget, stop.Load)
	if err != nil {
		return err
	}
	if only != "" {
		for _, c := range r.cells {
			fmt.Println(c.row())
		}
		return nil
	}
	plotPath := strings.TrimSuffix(out, filepath.Ext(out)) + ".svg"
	var text bytes.Buffer
	if err := r.write(&text, filepath.Base(plotPath)); err != nil {
		return err
	}
	if out == "" {
		_, err = os.Stdout.Write(text.Bytes())
		return err
	}
	if err := os.WriteFile(plotPath, []byte(plot(r.cells)), 0o644); err != nil {
		return err
	}
	return os.WriteFile(out, text.Bytes(), 0o644)
}

// all measures everything, or those groups in which a name contains only. What is not
// begun when the budget is spent is left out.
func (s *place) all(only string, budget time.Duration, stop func() bool) (*results, error) {
	r := &results{}
	start := time.Now()
	var err error
	if r.kernels, err = s.calibrate(); err != nil {
		return nil, err
	}
	cells := func(groups []group) error {
		for _, g := range groups {
			if stop() {
				return errors.New("interrupted")
			}
			if !strings.Contains(g[0].name(), only) {
				continue
			}
			if time.Since(start) > budget {
				r.left = append(r.left, g...)
				continue
			}
			got, err := s.group(g)
			if err != nil {
				return fmt.Errorf("%s: %w", g[0].name(), err)
			}
			r.cells = append(r.cells, got...)
		}
		return nil
	}
	if err := cells(mixes(r.kernels)); err != nil {
		return nil, err
	}
	if only == "" {
		if r.online, err = s.onlineOverOffline(r.kernels); err != nil {
			return nil, fmt.Errorf("online over offline: %w", err)
		}
		if r.cost, err = s.cost(r.kernels); err != nil {
			return nil, fmt.Errorf("cost: %w", err)
		}
	}
	return r, cells(patterns(r.kernels))
}
