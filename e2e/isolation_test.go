package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// trial is what cudaload paths tells of an allocation path (isolation.Trial).
type trial struct {
	Path    string
	Within  bool
	Over    bool
	Taken   uint64
	Refusal string
	Leaked  int64
	Error   string
}

// isolationQuota leaves room for a context and several trials on top of it.
const isolationQuota = 2 << 30

// TestIsolation tries every allocation path of a CUDA program within and over a
// quota, on each card and driver. With QGPU_WRITE_DOCS it writes docs/isolation.md.
func TestIsolation(t *testing.T) {
	rows := map[string][]string{} // by path, a cell a variant
	var order []string
	for _, c := range variants {
		t.Run(c.String(), func(t *testing.T) {
			m := newMachine(t, c)
			idle := m.cardUsed()
			b := m.start("2Gi", m.program("cudaload"), "paths", "--within", "128Mi", "--limit", "4Gi", "--hold")
			trials := decode[[]trial](t, b.line())
			accounting := m.accounting()
			b.end()
			for _, p := range trials {
				if len(rows[p.Path]) == 0 {
					order = append(order, p.Path)
				}
				rows[p.Path] = append(rows[p.Path], checkTrial(t, p))
			}
			for _, extra := range []struct{ name, cell string }{
				{"many processes", m.manyProcesses()},
				{"ledger against the driver's own count, after all of these", accounting},
			} {
				if len(rows[extra.name]) == 0 {
					order = append(order, extra.name)
				}
				rows[extra.name] = append(rows[extra.name], extra.cell)
			}
			m.eventually("all memory is free again", func() bool { return m.cardUsed() == idle })
		})
	}
	if os.Getenv("QGPU_WRITE_DOCS") != "" && !t.Failed() {
		writeIsolation(t, order, rows)
	}
}

// checkTrial checks a path's trial and puts it in a cell of the table.
func checkTrial(t *testing.T, p trial) string {
	t.Helper()
	if !p.Within || !p.Over || p.Error != "" || p.Leaked != 0 {
		t.Errorf("%s: within %v, over %v, leaked %d bytes: %s", p.Path, p.Within, p.Over, p.Leaked, p.Error)
	}
	if p.Taken > isolationQuota {
		t.Errorf("%s took %d bytes of a quota of %d", p.Path, p.Taken, isolationQuota)
	}
	if p.Refusal == "" {
		return "works; not the card's"
	}
	return fmt.Sprintf("works; %s after %d MiB; leaks %d B", strings.TrimPrefix(p.Refusal, "CUDA_ERROR_"), p.Taken/mib, p.Leaked)
}

// accounting compares the one tenant's ledger with the driver's count.
func (m *machine) accounting() string {
	m.t.Helper()
	out := m.mustRun("qgpu", "ps", "--output", "json")
	tenants := decode[[]struct {
		State struct {
			Cards []struct{ Used, Counted, Managed int64 }
		}
	}](m.t, out)
	if len(tenants) != 1 || len(tenants[0].State.Cards) != 1 {
		m.t.Fatalf("expected one tenant on one card, got %s", out)
	}
	c := tenants[0].State.Cards[0]
	if c.Used-c.Managed != c.Counted || c.Counted == 0 {
		m.t.Errorf("the ledger has %d bytes and the driver counts %d", c.Used-c.Managed, c.Counted)
	}
	return fmt.Sprintf("error %d B of %d MiB", c.Used-c.Managed-c.Counted, c.Counted/mib)
}

// manyProcesses fills a tenant's quota from several processes at once.
func (m *machine) manyProcesses() string {
	m.t.Helper()
	const processes = 4
	const noContext = "no context"
	b := m.start("2Gi", "sh", "-c", fmt.Sprintf("exec 3<&0; for i in $(seq %d); do { %s fill --hold <&3 || echo %s; } & done; wait",
		processes, m.program("cudaload"), noContext))
	var sum uint64
	refused := 0
	for range processes {
		line := b.line()
		if line == noContext { // it did not fit any more
			refused++
			continue
		}
		got := decode[filled](m.t, line)
		if !strings.HasSuffix(got.Error, "CUDA_ERROR_OUT_OF_MEMORY") {
			m.t.Errorf("a process of several ended with %q", got.Error)
		}
		sum += got.Allocated
	}
	b.end()
	if sum > isolationQuota || sum == 0 {
		m.t.Errorf("%d processes took %d bytes of a quota of %d", processes, sum, isolationQuota)
	}
	return fmt.Sprintf("works; OUT_OF_MEMORY after %d MiB in %d processes", sum/mib, processes-refused)
}

const isolationHead = `# What a quota holds

Every path by which a CUDA program takes a card's memory, tried by a program on
NVIDIA's real libcuda in a tenant of 2 GiB: is 128 MiB to be had, do the data
copied there come back, is more than the quota refused and with which CUDA error,
and is all free again afterwards (the bytes that are not: "leaks")? The figure is
what had been taken in steps of 128 MiB when the refusal came; the rest of the quota
is CUDA's context.

The cards are simulated; no real GPU has confirmed this table yet. Written by

    make isolation

Two rows need a word. Host memory is no card's memory, and no quota of a card
limits it. Managed memory is refused by failing the mmap of /dev/nvidia-uvm, of
which libcuda makes CUDA_ERROR_UNKNOWN: there is no errno of which it makes out
of memory (tried: all of them). Its whole length is charged, whether the card holds
it or the host.

`

func writeIsolation(t *testing.T, order []string, rows map[string][]string) {
	t.Helper()
	var b strings.Builder
	b.WriteString(isolationHead)
	b.WriteString("| path |")
	for _, c := range variants {
		fmt.Fprintf(&b, " %s, driver %s |", strings.ToUpper(c.model), c.driver)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(variants)) + "\n")
	for _, path := range order {
		fmt.Fprintf(&b, "| %s | %s |\n", path, strings.Join(rows[path], " | "))
	}
	if err := os.WriteFile("../docs/isolation.md", []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}
