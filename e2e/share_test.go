package e2e

import (
	"strings"
	"testing"
)

// filled is what cudaload fill tells.
type filled struct {
	Allocated, Free, Total uint64
	Error                  string
}

const mib = 1 << 20

// TestTwoTenants is the main job: two programs on one card, each held to its own
// memory while the other goes on, and a third that does not fit.
func TestTwoTenants(t *testing.T) {
	for _, c := range variants {
		t.Run(c.String(), func(t *testing.T) {
			m := newMachine(t, c)
			idle := m.cardUsed()
			five := m.start("5Gi", m.program("cudaload"), "fill", "--hold")
			checkFull(t, decode[filled](t, five.line()), 5<<30)
			eight := m.start("8Gi", m.program("cudaload"), "fill", "--hold")
			checkFull(t, decode[filled](t, eight.line()), 8<<30)

			if c.model == "t4" {
				r := m.tenant("4Gi", "nvidia-smi")
				if r.code == 0 || !strings.Contains(r.stderr, "no room: card 0 has") {
					t.Errorf("a third tenant of 4Gi exited with %d: %s", r.code, r.stderr)
				}
			}
			eight.end()
			m.eventually("the second tenant is gone", func() bool { return strings.Count(m.mustRun("qgpu", "ps"), "\n") == 2 })
			checkFull(t, decode[filled](t, m.mustTenant("8Gi", m.program("cudaload"), "fill")), 8<<30)
			five.kill()
			m.eventually("all memory is free again", func() bool { return m.cardUsed() == idle })
		})
	}
}

// checkFull checks that a tenant that filled its card got its quota and no more.
func checkFull(t *testing.T, got filled, quota uint64) {
	t.Helper()
	if got.Error != "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY" {
		t.Errorf("the last allocation failed with %q, want CUDA's out of memory", got.Error)
	}
	if got.Total != quota {
		t.Errorf("CUDA reports %d MiB in all, want the quota of %d MiB", got.Total/mib, quota/mib)
	}
	if got.Free >= 2*mib {
		t.Errorf("%d bytes are free after allocations of 2 MiB fail", got.Free)
	}
	if got.Allocated > quota || got.Allocated < quota*9/10 {
		t.Errorf("%d MiB were allocated of a quota of %d MiB", got.Allocated/mib, quota/mib)
	}
}
