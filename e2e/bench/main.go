// Command bench measures what mediation costs, on a simulated card: the same
// programs with and without a mediator, in turn, in one run. It writes a report
// in Markdown. It starts a simulator and tenants of its own; it needs root.
//
//	go run ./e2e/bench -bin bin -o docs/performance.md
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/qgpu-project/qgpu/e2e/site"
)

// programs run on the card or as a tenant, in place of the measurement: this
// binary starts itself with -program.
var programs = map[string]func(io.Writer) error{
	"ioctl":             measureIoctls,
	"kernel-ioctl":      measureKernelIoctl,
	"programs":          measurePrograms,
	"filtered-programs": measureFilteredPrograms,
}

func main() {
	bin := flag.String("bin", "bin", "folder of the built programs")
	out := flag.String("o", "", "file to write the report to (default: standard output)")
	rounds := flag.Int("rounds", 7, "how often each measurement is repeated")
	program := flag.String("program", "", "be this program instead of measuring")
	flag.Parse()
	var err error
	if run, ok := programs[*program]; ok {
		err = run(os.Stdout)
	} else {
		err = measure(*bin, *out, *rounds)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func measure(bin, out string, rounds int) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("needs root to start tenants")
	}
	if rounds < 1 {
		return fmt.Errorf("-rounds %d: measure at least once", rounds)
	}
	bin, err := filepath.Abs(bin)
	if err != nil {
		return err
	}
	place, err := site.New(bin)
	if err != nil {
		return err
	}
	defer func() {
		if err := place.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
		}
	}()
	s := bench{place}
	var unused, r results
	if err := s.hostPrograms(false, &unused); err != nil { // fills the page cache
		return err
	}
	interrupted := make(chan os.Signal, 1) // ends the run in good order
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	for i := range rounds {
		if len(interrupted) > 0 {
			return errors.New("interrupted")
		}
		fmt.Fprintf(os.Stderr, "round %d of %d\n", i+1, rounds)
		if err := s.round(i, &r); err != nil {
			return err
		}
	}
	if r.memory, err = s.memoryAtRest(); err != nil {
		return err
	}
	var text bytes.Buffer
	if err := r.write(&text, rounds); err != nil {
		return err
	}
	if out == "" {
		_, err = os.Stdout.Write(text.Bytes())
		return err
	}
	return os.WriteFile(out, text.Bytes(), 0o644)
}
