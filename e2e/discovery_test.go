package e2e

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/qgpu-project/qgpu/internal/discovery"
)

// TestCardFallsOffTheBus watches cards through the driver's own calls, as an agent does,
// while one of them is lost and comes back. NVIDIA's own tool says the same of it, and the
// other card serves on.
func TestCardFallsOffTheBus(t *testing.T) {
	m := newMachine(t, config{cards: 2, model: "a100", driver: "550"})
	ctx, cancel := context.WithCancel(t.Context())
	reports, done := make(chan discovery.Inventory, 16), make(chan error, 1)
	finder := discovery.Finder{Driver: discovery.Simulated, SimDir: m.simDir, Bin: m.bin}
	go func() {
		done <- finder.Watch(ctx, func(_ string, inv discovery.Inventory) { reports <- inv })
	}()
	next := func() discovery.Inventory {
		t.Helper()
		select {
		case inv := <-reports:
			return inv
		case err := <-done:
			t.Fatalf("the watch ended: %v", err)
		case <-time.After(patience):
			t.Fatal("nothing is reported")
		}
		panic("unreachable")
	}
	whole := next()
	if len(whole.Cards) != 2 || len(whole.Lost) != 0 || whole.Cards[1].Total == 0 {
		t.Fatalf("cards %+v", whole)
	}

	m.mustRun("qgpu-sim", "lose", "1")
	lost := next()
	if len(lost.Cards) != 1 || len(lost.Lost) != 1 || lost.Lost[0].Minor != 1 || lost.Lost[0].Address != whole.Cards[1].Address ||
		!strings.Contains(lost.Lost[0].Reason, "fell off the bus") {
		t.Errorf("one lost: %+v", lost)
	}
	smi := m.run("qgpu-sim", "run", "--", "nvidia-smi", "-L")
	if said := smi.stdout + smi.stderr; !strings.Contains(said, "GPU is lost") || !strings.Contains(said, whole.Cards[0].UUID) {
		t.Errorf("nvidia-smi says %s", said)
	}
	m.mustTenant("1Gi", m.program("cudaload"), "paths", "--within", "8Mi")

	m.mustRun("qgpu-sim", "recover", "1")
	if back := next(); len(back.Cards) != 2 || len(back.Lost) != 0 || back.Cards[1].UUID != whole.Cards[1].UUID {
		t.Errorf("back again: %+v", back)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("the watch ended with %v", err)
	}

	t.Log("a simulator that ends is reported, and none is started")
	ctx = t.Context()
	go func() {
		done <- finder.Watch(ctx, func(string, discovery.Inventory) { reports <- discovery.Inventory{} })
	}()
	next()
	m.mustRun("qgpu-sim", "stop")
	if err := <-done; err == nil {
		t.Error("the watch of a simulator that ended ended well")
	}
	if err := finder.Watch(ctx, func(string, discovery.Inventory) {}); err == nil || !strings.Contains(err.Error(), "no simulator runs") {
		t.Errorf("without a simulator: %v", err)
	}
}
