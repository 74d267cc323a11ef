package e2e

import (
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/qgpu-project/qgpu/internal/mediator"
	"github.com/qgpu-project/qgpu/internal/nvabi"
	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/seccomp"
	"github.com/qgpu-project/qgpu/internal/share"
	"github.com/qgpu-project/qgpu/internal/tenant"
)

// attack is a run of the attacker as a tenant of 512 MiB.
type attack struct {
	name  string
	args  []string
	tries int // at least
	// own is what the driver takes for the attacker's objects beside what it holds:
	// channel groups and address spaces, at most.
	own uint64
}

const attackerQuota = 512 << 20

// attacks are those of one tenant alone. The races are tried 20,000 times each.
var attacks = []attack{
	{name: "struct flipped after the check", args: []string{"flip-class", "20000"}, tries: 20000},
	{name: "nested struct flipped", args: []string{"flip-size", "20000"}, tries: 20000},
	{name: "control flipped", args: []string{"flip-control", "20000"}, tries: 20000, own: 64 << 20},
	{name: "descriptor swapped", args: []string{"flip-file", "20000"}, tries: 20000},
	{name: "descriptor of a mapping swapped", args: []string{"flip-mapping", "20000"}, tries: 20000},
	{name: "type, direction, high bits, XFER_CMD", args: []string{"numbers"}, tries: 2304},
	{name: "i386 and x32 calls", args: []string{"conventions"}, tries: 1024},
	{name: "other tenants' clients", args: []string{"guess"}, tries: 4500},
	{name: "device nodes", args: []string{"nodes", "DIR"}, tries: 200},
	{name: "view, mediator, control socket", args: []string{"surroundings", "STATE"}, tries: 50},
	{name: "time slices and channels", args: []string{"schedule"}, tries: 200, own: 64 << 20},
	{name: "dma-buf, fabric and other exports", args: []string{"exports"}, tries: 50},
	{name: "unknown calls", args: []string{"unknown"}, tries: 80},
	{name: "io_uring and listeners of its own", args: []string{"filters"}, tries: 190},
	{name: "objects freed by their parents", args: []string{"parents"}, tries: 40},
}

// alsoOn550 are the attacks that depend on the driver's version.
var alsoOn550 = map[string]bool{
	"type, direction, high bits, XFER_CMD": true, "other tenants' clients": true, "time slices and channels": true,
	"dma-buf, fabric and other exports": true, "unknown calls": true, "objects freed by their parents": true,
}

// TestAttacks lets a hostile tenant loose beside another one, whose objects must stay
// as they are. What got through is decided by the driver's own count of the card's
// memory, which must be what is charged.
func TestAttacks(t *testing.T) {
	for _, driver := range []string{"535", "550"} {
		t.Run(driver, func(t *testing.T) {
			m := newMachine(t, config{cards: 2, driver: driver})
			victim := m.attacker("1Gi", "hold", "256")
			victim.report().check(t, 0)
			for _, a := range attacks {
				if driver == "535" || alsoOn550[a.name] {
					t.Run(a.name, func(t *testing.T) { m.as(t).try(a, victim) })
				}
			}
			victim.end()
		})
	}
}

// as is m for a subtest.
func (m *machine) as(t *testing.T) *machine {
	sub := *m
	sub.t = t
	return &sub
}

// try runs one attack.
func (m *machine) try(a attack, victim *background) {
	t := m.t.(*testing.T)
	free := m.free()
	others := len(m.tenants())
	var args []string
	for _, arg := range a.args {
		switch arg {
		case "DIR":
			arg = filepath.Dir(m.stateDir)
		case "STATE":
			arg = m.stateDir
		}
		args = append(args, arg)
	}
	b := m.attacker("512Mi", args...)
	r := b.report()
	t.Logf("%d tries, %d got through; %d allowed calls", r.Tries, r.Through, r.Worked)
	if r.NoI386 {
		t.Log("this kernel has no i386 calls, which is as good")
	}
	r.check(t, a.tries)
	taken, charged := free-m.free(), m.charged(b)
	if charged != r.Held {
		t.Errorf("%d bytes are charged, the attacker holds %d", charged, r.Held)
	}
	if taken < r.Held || taken > r.Held+a.own || taken > attackerQuota+a.own {
		t.Errorf("the driver counts %d bytes, of which the attacker knows %d", taken, r.Held)
	}
	if a.name == "unknown calls" {
		m.checkRefusals(b)
	}
	b.end()
	fmt.Fprintln(victim.stdin)
	unharmed := decode[report](t, victim.line())
	unharmed.check(t, 1)
	m.settled(free, others)
}

// checkRefusals checks that qgpu inspect names the refused calls with their counts.
func (m *machine) checkRefusals(b *background) {
	m.t.Helper()
	counts := m.inspectRefusals(b)
	for _, name := range []string{"control 0x2080ff00", "class 0xabc0", "NV_ESC_IOCTL_XFER_CMD", "UVM command 200", "NV_ESC_RM_I2C_ACCESS"} {
		if counts[name] == 0 {
			m.t.Errorf("qgpu inspect does not count %q among the refused: %v", name, counts)
		}
	}
}

// TestAttacksAreReal shows that the races can be won: on the bare driver, which
// checks nothing, they are.
func TestAttacksAreReal(t *testing.T) {
	m := newMachine(t, config{})
	for _, name := range []string{"flip-size", "flip-control", "flip-mapping"} {
		if r := m.bare(name, "3000"); r.Through == 0 {
			t.Errorf("%s never had an effect in %d tries with nothing in its way", name, r.Tries)
		}
	}
}

// TestComputeAttacks has a tenant try, while its neighbour works, all that would keep that off
// the card: its slice, others' channels, restarts of the runlist, preemption, and kernels that
// take longer than anybody waits. What many groups are worth is TestTheUnitIsTheTenant's.
func TestComputeAttacks(t *testing.T) {
	m := newMachine(t, config{})
	path, err := buildAttacker()
	if err != nil {
		t.Fatal(err)
	}
	neighbour := m.startWorker(300, "")
	neighbour.work()
	t.Run("controls of the schedule", func(t *testing.T) {
		m := m.as(t)
		attacker := m.startTenant("", path, "freeze", "4")
		attacker.work()
		checkPart(t, "the neighbour", m.parts(neighbour)[0], 100)
		attacker.report().check(t, 1000)
		attacker.end()
	})
	t.Run("endless kernels", func(t *testing.T) {
		m := m.as(t)
		// A single one takes seconds, the card's whole time in what is measured.
		endless := m.startTenant("", m.program("cudaload"), "load", "--blocks", "1000000000", "--wait", "--seconds", "1000")
		endless.work()
		got := m.parts(neighbour, endless)
		checkPart(t, "the neighbour", got[0], 50)
		checkPart(t, "the attacker", got[1], 50)
		endless.kill()
	})
}

// TestComputeAttacksAreReal shows that the same is worth something on the bare driver.
func TestComputeAttacksAreReal(t *testing.T) {
	m := newMachine(t, config{})
	path, err := buildAttacker()
	if err != nil {
		t.Fatal(err)
	}
	load := func(flags ...string) *background {
		args := append([]string{"attach", "--", m.program("cudaload")}, longKernels...)
		b := m.startCommand(m.command("qgpu-sim", append(append(args, "--seconds", "300"), flags...)...))
		if line := b.line(); line != "ready" {
			t.Fatalf("the program said %q", line)
		}
		fmt.Fprintln(b.stdin)
		return b
	}
	one := load()
	load("--processes", "4")
	cards := decode[[]struct {
		Processes map[int]struct{ Part float64 }
	}](t, m.mustRun("qgpu-sim", "usage", "--window", window))
	if part := 100 * cards[0].Processes[one.cmd.Process.Pid].Part; math.Abs(part-20) > tolerance {
		t.Errorf("one process beside four has %.1f %% of the card, want a fifth", part)
	}
	freeze := m.startCommand(m.command("qgpu-sim", "attach", "--", path, "freeze", "1"))
	freeze.line()
	fmt.Fprintln(freeze.stdin)
	if r := freeze.report(); r.Through < 10 {
		t.Errorf("of %d tries to keep others off the card %d had an effect", r.Tries, r.Through)
	}
	if r := m.bare("schedule"); r.Through == 0 {
		t.Error("a program cannot set its own time slice with nothing in its way")
	}
}

// TestManagedMemory maps managed memory, which the driver counts for no process.
func TestManagedMemory(t *testing.T) {
	for _, driver := range []string{"535", "550"} {
		m := newMachine(t, config{driver: driver})
		free := m.free()
		b := m.attacker("512Mi", "managed", "512")
		r := b.report()
		r.check(t, 144)
		if charged := m.charged(b); charged != r.Held {
			t.Errorf("%d bytes are charged for %d of managed memory", charged, r.Held)
		}
		b.end()
		m.settled(free, 0)
	}
}

// TestPassedDescriptors passes a tenant's device files to another tenant. It gains
// nothing by them, and while it keeps them the first tenant's place stays taken as
// long as its memory does.
func TestPassedDescriptors(t *testing.T) {
	m := newMachine(t, config{})
	free := m.free()
	socket := filepath.Join(filepath.Dir(m.stateDir), "passing")
	receiver := m.attacker("512Mi", "receive", socket)
	sender := m.attacker("512Mi", "send", socket)
	sent := sender.report()
	sent.check(t, 0)
	received := receiver.report()
	received.check(t, 1700)
	if n := m.charged(receiver); n != 0 {
		t.Errorf("the receiver is charged %d bytes", n)
	}
	if n := m.charged(sender); n != sent.Held {
		t.Errorf("the sender is charged %d bytes and holds %d", n, sent.Held)
	}
	if taken := free - m.free(); taken != sent.Held {
		t.Errorf("the driver counts %d bytes, the sender holds %d", taken, sent.Held)
	}
	id := m.of(sender).ID
	sender.end()
	m.eventually("the sender's processes are gone", func() bool { return isGone(sent.Process) })
	m.eventually("the sender's memory is free, or its place taken", func() bool {
		return m.free() == free || strings.Contains(m.mustRun("qgpu", "ps"), id)
	})
	if m.free() != free && !strings.Contains(m.mustRun("qgpu", "ps"), id) {
		t.Error("the sender's memory is kept by the receiver, and its place free for others")
	}
	receiver.end()
	m.settled(free, 0)
}

// TestAdministratorRefused hands the mediator a program that may have CAP_SYS_ADMIN.
func TestAdministratorRefused(t *testing.T) {
	m := newMachine(t, config{})
	free := m.free()
	conn, version := m.startMediator()
	defer conn.Close()
	abi, err := nvabi.For(version)
	if err != nil {
		t.Fatal(err)
	}
	refused := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread is filtered, and ends
		refused <- seccomp.Launch(conn, mediator.Filter(abi), seccomp.InstallOptions{})
	}()
	if err := <-refused; err == nil || !strings.Contains(err.Error(), "CAP_SYS_ADMIN") {
		t.Errorf("a program with CAP_SYS_ADMIN in its bounding set was answered %v", err)
	}
	m.settled(free, 0)
}

// startMediator starts a mediator as qgpu run does and returns the launcher's end of
// its socket.
func (m *machine) startMediator() (*net.UnixConn, nvabi.Version) {
	m.t.Helper()
	registry, err := tenant.OpenRegistry(m.stateDir)
	if err != nil {
		m.t.Fatal(err)
	}
	card, version := m.firstCard()
	a, err := registry.Admit(context.Background(), tenant.Tenant{
		ID: "administrator", Share: share.Share{Memory: share.GiB}, PID: os.Getpid(), Driver: "simulated",
	}, []placement.Card{card})
	if err != nil {
		m.t.Fatal(err)
	}
	defer a.Close()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		m.t.Fatal(err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "launch")
	defer theirs.Close()
	cmd := m.command("qgpu-sim", "attach", "--no-paths", "--", m.program("qgpu-runtime"), "mediator", "--dir", a.Dir, "--driver", "simulated")
	cmd.ExtraFiles = []*os.File{a.Lock, a.Control, theirs}
	if err := cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { endCommand(cmd) })
	ours := os.NewFile(uintptr(fds[0]), "launch")
	defer ours.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		m.t.Fatal(err)
	}
	ready := make([]byte, len("ready\n"))
	if _, err := io.ReadFull(conn, ready); err != nil || string(ready) != "ready\n" {
		m.t.Fatalf("the mediator is not ready: %q, %v", ready, err)
	}
	return conn.(*net.UnixConn), version
}

func endCommand(cmd *exec.Cmd) {
	cmd.Process.Kill()
	cmd.Wait()
}
