package e2e

import (
	"math/rand/v2"
	"syscall"
	"testing"
	"time"
)

// killed are those whose sudden end must cost no neighbour anything.
var killed = []struct {
	who    string
	find   func(m *machine, victim *worker) int
	serves bool // the victim goes on as before
}{
	{"the pacer", func(m *machine, v *worker) int { return m.pacersOf(v).pacer }, true},
	{"the pacer's supervisor", func(m *machine, v *worker) int { return m.pacersOf(v).supervisor }, true},
	{"the mediator", func(_ *machine, v *worker) int { return v.mediator }, true},
	{"the program", func(_ *machine, v *worker) int { return v.cmd.Process.Pid }, false},
}

// TestHelpersKilled kills, at any moment, all that belongs to a tenant of a fixed share, one
// after the other. Its neighbour has what it had; the tenant has no more than its share, and
// what it had, too, as long as its program lives.
func TestHelpersKilled(t *testing.T) {
	m := newMachine(t, config{})
	victim := m.startWorker(120, "--core 30 --policy fixed-share")
	neighbour := m.startWorker(120, "--core 50")
	victim.work()
	neighbour.work()
	m.parts(victim, neighbour)
	for _, k := range killed {
		time.Sleep(time.Duration(rand.Int64N(int64(100 * time.Millisecond))))
		pid := k.find(m, victim)
		if pid == 0 {
			t.Fatalf("%s is not to be found", k.who)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatalf("kill %s: %v", k.who, err)
		}
		m.eventually(k.who+" is gone or replaced", func() bool { return isGone(pid) })
		got := m.parts(victim, neighbour)
		t.Logf("%s was killed", k.who)
		checkCapped(t, "the neighbour", got[1], 50)
		if k.serves {
			checkCapped(t, "the tenant", got[0], 30)
		} else if got[0] > tolerance {
			t.Errorf("a tenant whose program was killed had %.1f %%", got[0])
		}
	}
}

// TestPacerAndSupervisorKilled kills both at once while the tenant's window is shut. Nobody
// can pace it any more: it is let on the card with the shortest slices, by a restart that its
// neighbour's pacer makes, and the neighbour keeps its share.
func TestPacerAndSupervisorKilled(t *testing.T) {
	m := newMachine(t, config{})
	victim := m.startWorker(120, "--core 5 --policy fixed-share") // its window is shut nearly always
	neighbour := m.startWorker(120, "--core 50")
	victim.work()
	neighbour.work()
	m.parts(victim, neighbour)
	p := m.pacersOf(victim)
	for _, pid := range []int{p.supervisor, p.pacer} {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	m.eventually("both are gone", func() bool { return isGone(p.supervisor) && isGone(p.pacer) })
	got := m.parts(victim, neighbour)
	if got[0] < 1 {
		t.Errorf("the tenant's gate stays shut: it had %.1f %% of the card", got[0])
	}
	checkCapped(t, "the neighbour", got[1], 50)
}
