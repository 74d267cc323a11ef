package e2e

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// workload is a program to be killed at any moment of its life.
type workload struct {
	name  string
	args  []string // of the attacker, or of cudaload if cuda
	cuda  bool
	kills int
	lives time.Duration // kills fall within this
}

var workloads = []workload{
	// Start, clients, allocations, managed memory, frees and closes, over and over.
	{name: "churn", args: []string{"churn"}, kills: 70, lives: 900 * time.Millisecond},
	// libcuda: start, context creation, every path of allocation with copies.
	{name: "cuda", args: []string{"paths", "--within", "8Mi"}, cuda: true, kills: 30, lives: 3 * time.Second},
}

// TestKilledAtAnyMoment kills tenants a hundred times. Nothing of them may be left.
func TestKilledAtAnyMoment(t *testing.T) {
	m := newMachine(t, config{})
	free := m.free()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	var all []func()
	for _, w := range workloads {
		for range w.kills {
			delay := time.Duration(random.Int64N(int64(w.lives)))
			all = append(all, func() { m.killAfter(w, delay) })
		}
	}
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	const atOnce, checkEvery = 3, 20
	for len(all) > 0 {
		batch := all[:min(checkEvery, len(all))]
		all = all[len(batch):]
		inParallel(batch, atOnce)
		m.settled(free, 0)
	}
}

// killAfter starts a tenant and kills it some time later.
func (m *machine) killAfter(w workload, delay time.Duration) {
	program := m.program("cudaload")
	if !w.cuda {
		program, _ = buildAttacker()
	}
	cmd := m.command("qgpu", tenantArgs("512Mi", append([]string{program}, w.args...)...)...)
	if err := cmd.Start(); err != nil {
		m.t.Error(err)
		return
	}
	time.Sleep(delay)
	endCommand(cmd)
}

func inParallel(jobs []func(), atOnce int) {
	slots := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	for _, job := range jobs {
		slots <- struct{}{}
		wg.Go(func() {
			job()
			<-slots
		})
	}
	wg.Wait()
}

// TestChildKilled kills one process of a tenant: its memory comes back while the
// tenant goes on.
func TestChildKilled(t *testing.T) {
	m := newMachine(t, config{})
	free := m.free()
	b := m.attacker("512Mi", "child", "64")
	r := b.report()
	r.check(t, 0)
	if n := m.charged(b); n != r.Held {
		t.Errorf("%d bytes are charged, two processes hold %d", n, r.Held)
	}
	if err := unix.Kill(r.Child, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	m.eventually("the child's memory is the tenant's again", func() bool { return m.charged(b) == r.Held/2 })
	m.eventually("the child's memory is the card's again", func() bool { return free-m.free() == r.Held/2 })
	b.end()
	m.settled(free, 0)
}

// TestGenerations holds forked, executed and daemonised descendants to one quota. The
// program is a static Go program, with no library to replace.
func TestGenerations(t *testing.T) {
	m := newMachine(t, config{})
	free := m.free()
	b := m.attacker("512Mi", "generations", "512")
	r := b.report()
	r.check(t, 2)
	if r.Held != attackerQuota {
		t.Errorf("all generations hold %d bytes, want the quota", r.Held)
	}
	if n := m.charged(b); n != r.Held {
		t.Errorf("%d bytes are charged, all generations hold %d", n, r.Held)
	}
	b.end()
	m.settled(free, 0)
}

// TestDaemon leaves a process behind that its tenant's program started. It is the
// same tenant still.
func TestDaemon(t *testing.T) {
	m := newMachine(t, config{})
	free := m.free()
	path, err := buildAttacker()
	if err != nil {
		t.Fatal(err)
	}
	out := m.mustTenant("512Mi", "/bin/sh", "-c", "setsid "+path+" churn >/dev/null 2>&1 & echo $!")
	pid, err := strconv.Atoi(strings.TrimSpace(out))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Kill(pid, unix.SIGKILL)
	m.eventually("the daemon takes memory", func() bool { return m.free() < free })
	all := m.tenants()
	if len(all) != 1 || all[0].State == nil || all[0].State.Cards[0].Quota != attackerQuota {
		t.Errorf("with a daemon left, the tenants are %+v", all)
	}
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	m.settled(free, 0)
}

// TestMediatorKilled kills a mediator. Its tenant can do nothing more with the card;
// the other goes on.
func TestMediatorKilled(t *testing.T) {
	m := newMachine(t, config{})
	free := m.free()
	orphan := m.attacker("512Mi", "hold", "64")
	orphan.report().check(t, 0)
	other := m.attacker("512Mi", "hold", "128")
	other.report().check(t, 0)
	held := free - m.free()

	if err := unix.Kill(m.of(orphan).State.Mediator, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	m.eventually("the tenant's state is unknown", func() bool {
		return strings.Count(m.mustRun("qgpu", "ps"), "unknown") == 1
	})
	r := m.ask(orphan)
	if r.Through != 0 || r.Worked != 0 {
		t.Errorf("with its mediator dead, a tenant could do %d things: %q", r.Worked, r.Notes)
	}
	if taken := free - m.free(); taken > held {
		t.Errorf("with its mediator dead, a tenant took %d bytes more", taken-held)
	}
	m.ask(other).check(t, 1)
	orphan.end()
	m.eventually("the tenant is no longer listed", func() bool { return len(m.tenants()) == 1 })
	m.eventually("its memory is free", func() bool { return free-m.free() < held })
	m.ask(other).check(t, 1)
	other.end()
	m.settled(free, 0)
}

// ask has an attacker that holds memory try its objects.
func (m *machine) ask(b *background) report {
	m.t.Helper()
	fmt.Fprintln(b.stdin)
	return b.report()
}

// TestSimulatorStopped takes the driver away under tenants: they get errors, and
// their mediators wait rather than try again and again.
func TestSimulatorStopped(t *testing.T) {
	m := newMachine(t, config{})
	var all []*background
	var mediators []int
	for range 2 {
		b := m.attacker("512Mi", "hold", "64")
		b.report().check(t, 0)
		all = append(all, b)
		mediators = append(mediators, m.of(b).State.Mediator)
	}
	m.mustRun("qgpu-sim", "stop")
	for _, b := range all {
		if r := m.ask(b); r.Through != 0 || r.Worked != 0 {
			t.Errorf("with no driver, a tenant could do %d things: %q", r.Worked, r.Notes)
		}
	}
	before := processorTime(t, mediators)
	time.Sleep(time.Second)
	// A mediator that spins takes what it can get of a second, 100 ticks.
	if ticks := processorTime(t, mediators) - before; ticks > 20 {
		t.Errorf("mediators without a driver used %d ticks of processor time in a second of nothing", ticks)
	}
	for _, b := range all {
		b.end()
	}
	m.eventually("all tenants are gone", func() bool { return len(m.tenants()) == 0 })
	for _, pid := range mediators {
		m.eventually("the mediators have ended", func() bool { return isGone(pid) })
	}
}

// processorTime is what processes have used, in clock ticks.
func processorTime(t *testing.T, pids []int) (sum int) {
	t.Helper()
	for _, pid := range pids {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue // it ended
		}
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		for _, f := range fields[11:13] { // utime, stime
			n, err := strconv.Atoi(f)
			if err != nil {
				t.Fatal(err)
			}
			sum += n
		}
	}
	return sum
}

// TestFilesClosed closes control files without freeing what was made through them,
// as a program does that forgets to, or forks and execs.
func TestFilesClosed(t *testing.T) {
	m := newMachine(t, config{})
	free := m.free()
	b := m.attacker("512Mi", "closes", "512")
	b.report().check(t, 32)
	b.end()
	m.settled(free, 0)
}

// TestManyThreads has many threads take and free memory at the same time.
func TestManyThreads(t *testing.T) {
	m := newMachine(t, config{})
	free := m.free()
	b := m.attacker("512Mi", "threads", "512")
	b.report().check(t, 1280)
	if n := m.charged(b); n != 0 {
		t.Errorf("%d bytes are charged after all were freed", n)
	}
	if n := free - m.free(); n != 0 {
		t.Errorf("the driver counts %d bytes after all were freed", n)
	}
	b.end()
	m.settled(free, 0)
}
