package e2e

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// All shares here are measured by the simulated card itself, on its own clock. What a busy
// machine still does to them is to delay programs and pacers: hence the tolerance.
const (
	tolerance = 5.0 // points of the card
	window    = "1500ms"
)

// longKernels are arguments of cudaload load that have the card never wait for the
// program, even if that does not run for hundreds of milliseconds.
var longKernels = []string{"load", "--blocks", "131072", "--wait", "--json"}

// worker is a tenant that keeps its card busy once it is told to.
type worker struct {
	*background
	mediator int
	id       string
}

// startWorker starts a tenant with a share, given as flags of qgpu run, whose program is
// ready to work for seconds of the card's time.
func (m *machine) startWorker(seconds int, flags string) *worker {
	m.t.Helper()
	load := append([]string{m.program("cudaload")}, longKernels...)
	return m.startTenant(flags, append(load, "--seconds", strconv.Itoa(seconds))...)
}

// startTenant starts a program that says it is ready.
func (m *machine) startTenant(flags string, program ...string) *worker {
	m.t.Helper()
	known := m.mediators()
	args := append([]string{"run", "--driver", "simulated", "--memory", "2Gi"}, strings.Fields(flags)...)
	w := &worker{background: m.startCommand(m.command("qgpu", append(append(args, "--"), program...)...))}
	if line := w.line(); line != "ready" {
		m.t.Fatalf("the program said %q", line)
	}
	for id, pid := range m.mediators() {
		if _, ok := known[id]; !ok {
			w.mediator, w.id = pid, id
		}
	}
	return w
}

func (w *worker) work() { fmt.Fprintln(w.stdin) }

// mediators are the process ids of the tenants' mediators, by tenant.
func (m *machine) mediators() map[string]int {
	m.t.Helper()
	pids := make(map[string]int)
	for _, t := range decode[[]struct {
		ID    string
		State struct{ Mediator int }
	}](m.t, m.mustRun("qgpu", "ps", "-o", "json")) {
		pids[t.ID] = t.State.Mediator
	}
	return pids
}

// parts measures what workers have of the first card, in percent.
func (m *machine) parts(workers ...*worker) []float64 {
	m.t.Helper()
	cards := decode[[]struct {
		Processes map[int]struct{ Part float64 }
	}](m.t, m.mustRun("qgpu-sim", "usage", "--window", window))
	var parts []float64
	for _, w := range workers {
		parts = append(parts, 100*cards[0].Processes[w.mediator].Part)
	}
	m.t.Logf("parts of the card: %.1f %%", parts)
	return parts
}

func checkPart(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > tolerance {
		t.Errorf("%s had %.1f %% of the card, want %.0f", what, got, want)
	}
}

// checkCapped checks the part of a tenant that may not have more than want. A busy machine
// opens its windows late, which costs it some.
func checkCapped(t *testing.T, what string, got, want float64) {
	t.Helper()
	if got > want+tolerance || got < want*0.7 {
		t.Errorf("%s had %.1f %% of the card, want %.0f and no more", what, got, want)
	}
}

// TestPolicies has tenants of 25 and 75 percent work at the same time, and then the larger
// one alone.
func TestPolicies(t *testing.T) {
	for _, c := range []struct {
		policy             string
		small, large, idle float64
		check              func(t *testing.T, what string, got, want float64)
	}{
		{"best-effort", 50, 50, 100, checkPart},
		{"burst-share", 25, 75, 100, checkPart},
		{"fixed-share", 25, 75, 25, checkCapped},
	} {
		t.Run(c.policy, func(t *testing.T) {
			m := newMachine(t, config{})
			small := m.startWorker(60, "--core 25 --policy "+c.policy)
			large := m.startWorker(60, "--core 75")
			small.work()
			large.work()
			got := m.parts(small, large)
			c.check(t, "the tenant of 25 %", got[0], c.small)
			c.check(t, "the tenant of 75 %", got[1], c.large)
			large.kill()
			m.eventually("the large tenant is gone", func() bool { return len(m.mediators()) == 1 })
			c.check(t, "the tenant of 25 %, alone", m.parts(small)[0], c.idle)
		})
	}
}

func TestAnotherPolicyIsRefused(t *testing.T) {
	m := newMachine(t, config{})
	first := m.startWorker(1, "--core 25 --policy fixed-share")
	r := m.run("qgpu", "run", "--driver", "simulated", "--memory", "1Gi", "--policy", "burst-share", "--", "true")
	if r.code == 0 || !strings.Contains(r.stderr, "is shared by fixed-share, by tenant") {
		t.Errorf("a tenant with another policy exited with %d: %s", r.code, r.stderr)
	}
	first.kill()
}

// TestOnlineFirst has an offline tenant give way to an online one, and go on when that
// ends.
func TestOnlineFirst(t *testing.T) {
	m := newMachine(t, config{})
	offline := m.startWorker(60, "--class offline --core 50")
	offline.work()
	checkCapped(t, "the offline tenant alone", m.parts(offline)[0], 50)
	online := m.startWorker(60, "--class online")
	online.work()
	got := m.parts(offline, online)
	checkPart(t, "the offline tenant", got[0], 0)
	checkPart(t, "the online tenant", got[1], 100)
	online.kill()
	m.eventually("the online tenant is gone", func() bool { return len(m.mediators()) == 1 })
	checkCapped(t, "the offline tenant alone again", m.parts(offline)[0], 50)
}

// TestTheUnitIsTheTenant compares tenants of several processes with one of a single process.
func TestTheUnitIsTheTenant(t *testing.T) {
	m := newMachine(t, config{})
	load := append([]string{m.program("cudaload")}, longKernels...)
	many := m.startTenant("", append(load, "--seconds", "60", "--processes", "4")...)
	one := m.startWorker(60, "")
	many.work()
	one.work()
	got := m.parts(many, one)
	checkPart(t, "the tenant of four processes", got[0], 50)
	checkPart(t, "the tenant of one process", got[1], 50)
}

// TestSet changes the shares of a tenant that works.
func TestSet(t *testing.T) {
	m := newMachine(t, config{})
	w := m.startWorker(60, "--core 20 --policy fixed-share")
	w.work()
	checkCapped(t, "the tenant of 20 %", m.parts(w)[0], 20)
	var id string
	for id = range m.mediators() {
	}
	m.mustRun("qgpu", "set", id, "--core", "60", "--memory", "3Gi")
	checkCapped(t, "the tenant of 60 %", m.parts(w)[0], 60)
	if r := m.run("qgpu", "set", id, "--memory", "8Mi"); r.code == 0 || !strings.Contains(r.stderr, "8 MiB of card 0 are asked for, and ") {
		t.Errorf("less memory than is in use was accepted: %d, %s", r.code, r.stderr)
	}
	if ps := m.mustRun("qgpu", "ps"); !strings.Contains(ps, "60%") || !strings.Contains(ps, "/3Gi") {
		t.Errorf("qgpu ps does not show the new share:\n%s", ps)
	}
}

// TestCapsOnABusyMachine has many times more programs than processors want one. Windows are
// kept all the same, also short ones: who paces, and who answers those, comes first. The
// programs may be too slow to use theirs, and have something at least.
func TestCapsOnABusyMachine(t *testing.T) {
	m := newMachine(t, config{})
	small := m.startWorker(60, "--core 10 --policy fixed-share")
	large := m.startWorker(60, "--core 60")
	small.work()
	large.work()
	m.parts(small, large)
	for range 6 * runtime.NumCPU() {
		hog := exec.Command("sh", "-c", "while :; do :; done")
		if err := hog.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { endCommand(hog) })
	}
	got := m.parts(small, large)
	for i, want := range []float64{10, 60} {
		if got[i] > want+2 || got[i] < want*0.3 {
			t.Errorf("a tenant of %.0f %% had %.1f %% of the card", want, got[i])
		}
	}
}

// pacers are the two processes that pace a tenant.
type pacers struct{ supervisor, pacer int }

// pacersOf finds the pacers of a worker, 0 where there is none.
func (m *machine) pacersOf(w *worker) (p pacers) {
	m.t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		m.t.Fatal(err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		text, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		line := string(text)
		if !strings.Contains(line, "\x00pacer\x00") || !strings.Contains(line, m.stateDir) || !strings.Contains(line, w.id) {
			continue
		}
		if strings.Contains(line, "\x00--supervisor") {
			p.pacer = pid
		} else {
			p.supervisor = pid
		}
	}
	return p
}

// TestPacerKilled: who takes the place of a pacer that is killed while the tenant's window
// is shut opens it again, and all have their shares.
func TestPacerKilled(t *testing.T) {
	m := newMachine(t, config{})
	small := m.startWorker(60, "--core 10 --policy fixed-share")
	small.work()
	checkCapped(t, "the small tenant", m.parts(small)[0], 10)
	for range 3 {
		before := m.pacersOf(small)
		if before.pacer == 0 || before.supervisor == 0 {
			t.Fatalf("there are %+v to pace a tenant, want one and who watches it", before)
		}
		if err := syscall.Kill(before.pacer, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		m.eventually("another pacer is there", func() bool {
			now := m.pacersOf(small)
			return now.pacer != 0 && now.pacer != before.pacer && now.supervisor == before.supervisor
		})
	}
	large := m.startWorker(60, "--core 50")
	large.work()
	got := m.parts(small, large)
	checkCapped(t, "the small tenant", got[0], 10)
	checkCapped(t, "the large tenant", got[1], 50)
}
