// Command benchscheduler measures how many pods a second qgpu-scheduler binds that ask for shares
// of cards, against pods that ask for a plain extended resource, which the same program
// schedules without qGPU's plugin. The API server is real; nodes are objects without a
// kubelet. All pods exist before the scheduler starts, so that making them costs it
// nothing, and the two kinds take turns, so that a busy machine slows both.
// What the cards were given is added up after each round.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"k8s.io/klog/v2"

	"github.com/qgpu-project/qgpu/internal/replay"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "benchscheduler:", err)
		os.Exit(1)
	}
}

func run() error {
	program := flag.String("scheduler", "bin/qgpu-scheduler", "the scheduler to measure")
	crd := flag.String("crd", "deploy/helm/qgpu/templates/crd.yaml", "the definition of inventories")
	sizes := flag.String("nodes", "1000,5000", "numbers of nodes to measure with, ascending")
	pods := flag.Int("pods", 2000, "pods of each kind a round")
	rounds := flag.Int("rounds", 3, "rounds of each kind")
	placement := flag.String("placement", "binpack", "how nodes and cards are chosen")
	percentage := flag.Int("percentage", 100, "how many nodes qGPU's profile looks at, in percent; 0: as many as Kubernetes does by default")
	trace := flag.String("trace", "", "compare with the simulator instead, placing the pods of the openb trace in this folder one by one")
	verbose := flag.Bool("v", false, "show what the parts log")
	flag.Parse()
	if !*verbose {
		klog.SetOutput(io.Discard)
		klog.LogToStderr(false)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()

	dir, err := os.MkdirTemp("", "benchscheduler")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	level := slog.LevelWarn
	if *verbose {
		level = slog.LevelDebug
	}
	s, err := newSite(ctx, dir, slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})), *crd)
	if err != nil {
		return err
	}
	defer s.close()
	if *trace != "" {
		return reportAgreement(ctx, s, *program, *placement, *trace, *pods)
	}
	if err := s.writeConfig(*placement, *percentage); err != nil {
		return err
	}
	fmt.Println("| nodes | pods | plain, pods/s | qGPU, pods/s | ratio | plain, CPU ms/pod | qGPU, CPU ms/pod | ratio |")
	fmt.Println("|---|---|---|---|---|---|---|---|")
	for field := range strings.SplitSeq(*sizes, ",") {
		nodes, err := strconv.Atoi(field)
		if err != nil {
			return fmt.Errorf("--nodes: %w", err)
		}
		if err := s.growTo(ctx, nodes); err != nil {
			return err
		}
		results, err := s.compare(ctx, *program, *pods, *rounds, *verbose)
		if err != nil {
			return err
		}
		report(nodes, *pods, results[plainKind], results[sharedKind])
	}
	return nil
}

// reportAgreement compares with the simulator on the trace in dir.
func reportAgreement(ctx context.Context, s *site, program, policy, dir string, pods int) error {
	t, err := replay.Open(dir, "")
	if err != nil {
		return err
	}
	found, err := s.agree(ctx, program, policy, playable(t, pods))
	if err != nil {
		return err
	}
	fmt.Println(found)
	return nil
}

// report prints medians, and the rounds' own rates after them.
func report(nodes, pods int, plain, shared []result) {
	rate := func(r result) float64 { return r.rate }
	cpu := func(r result) float64 { return float64(r.cpu.Microseconds()) / 1000 }
	a, b, c, d := median(plain, rate), median(shared, rate), median(plain, cpu), median(shared, cpu)
	fmt.Printf("| %d | %d | %.0f (%s) | %.0f (%s) | %.2f | %.1f | %.1f | %.2f |\n",
		nodes, pods, a, list(plain, rate), b, list(shared, rate), b/a, c, d, d/c)
}

func median(results []result, of func(result) float64) float64 {
	var values []float64
	for _, r := range results {
		values = append(values, of(r))
	}
	slices.Sort(values)
	return values[len(values)/2]
}

func list(results []result, of func(result) float64) string {
	words := make([]string, len(results))
	for i, r := range results {
		words[i] = fmt.Sprintf("%.0f", of(r))
	}
	return strings.Join(words, ", ")
}
