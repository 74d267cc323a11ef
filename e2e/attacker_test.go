package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/qgpu-project/qgpu/internal/discovery"
	"github.com/qgpu-project/qgpu/internal/nvabi"
	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/share"
	"github.com/qgpu-project/qgpu/internal/tenant"
)

// attackerDir holds the attacker once it is built.
var attackerDir string

func TestMain(m *testing.M) {
	code := 1
	defer func() { os.Exit(code) }()
	dir, err := os.MkdirTemp("", "qgpu-attacker-")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	defer os.RemoveAll(dir)
	attackerDir = dir
	code = m.Run()
}

// buildAttacker builds the attacker on first use.
var buildAttacker = sync.OnceValues(func() (string, error) {
	path := filepath.Join(attackerDir, "attacker")
	cmd := exec.Command("go", "build", "-o", path, "./attacker")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the attacker: %w: %s", err, out)
	}
	return path, nil
})

// report is what the attacker tells.
type report struct {
	Tries, Through, Worked, Interrupted int
	Held                                uint64
	Notes                               []string
	Client                              uint32
	Process, Child                      int
	NoI386                              bool `json:"no_i386"`
}

// check is that nothing got through, all that is allowed worked, and enough was tried.
func (r report) check(t *testing.T, tries int) {
	t.Helper()
	if r.Through != 0 {
		t.Errorf("%d of %d tries got through: %q", r.Through, r.Tries, r.Notes)
	} else if len(r.Notes) > 0 {
		t.Errorf("what is allowed: %q", r.Notes)
	}
	if r.Tries < tries {
		t.Errorf("%d tries were made, want %d", r.Tries, tries)
	}
}

// attacker starts the attacker as a tenant of the first card.
func (m *machine) attacker(memory string, args ...string) *background {
	m.t.Helper()
	return m.attackerWith(nil, memory, args...)
}

// attackerWith is attacker with more flags of qgpu run.
func (m *machine) attackerWith(flags []string, memory string, args ...string) *background {
	m.t.Helper()
	path, err := buildAttacker()
	if err != nil {
		m.t.Fatal(err)
	}
	command := append([]string{"run", "--driver", "simulated", "--card", "0", "--memory", memory}, flags...)
	command = append(append(command, "--", path), args...)
	return m.startCommand(m.command("qgpu", command...))
}

// report is the attacker's next report.
func (b *background) report() report {
	b.m.t.Helper()
	return decode[report](b.m.t, b.line())
}

// listed is a tenant as qgpu ps and qgpu inspect show it.
type listed struct {
	tenant.Tenant
	State *tenant.State
}

func (m *machine) tenants() []listed {
	m.t.Helper()
	return decode[[]listed](m.t, m.mustRun("qgpu", "ps", "--output", "json"))
}

// of is the tenant of b's program.
func (m *machine) of(b *background) listed {
	m.t.Helper()
	all := m.tenants()
	for _, l := range all {
		if l.PID == b.cmd.Process.Pid {
			if l.State == nil {
				m.t.Fatalf("tenant %s's mediator does not answer", l.ID)
			}
			return l
		}
	}
	m.dumpLogs()
	m.t.Fatalf("%s, process %d, is not among the tenants %+v", b.cmd, b.cmd.Process.Pid, all)
	return listed{}
}

// charged is what b's ledger says, in bytes.
func (m *machine) charged(b *background) uint64 {
	m.t.Helper()
	used, _ := m.of(b).State.Used()
	return uint64(used)
}

// inventory is what the driver itself tells of its cards.
func (m *machine) inventory() discovery.Inventory {
	m.t.Helper()
	return decode[discovery.Inventory](m.t, m.mustRun("qgpu-sim", "attach", "--no-paths", "--", m.program("qgpu-runtime"), "cards"))
}

// free is how much of the first card's memory the driver counts as free, in bytes.
func (m *machine) free() uint64 {
	m.t.Helper()
	return m.inventory().Cards[0].Free
}

// firstCard is the first card for placement, with the driver's version.
func (m *machine) firstCard() (placement.Card, nvabi.Version) {
	m.t.Helper()
	i := m.inventory()
	version, err := nvabi.ParseVersion(i.Version)
	if err != nil {
		m.t.Fatal(err)
	}
	c := i.Cards[0]
	return placement.Card{Index: c.Minor, UUID: c.UUID, Memory: share.Memory(c.Total - c.Reserved)}, version
}

// settled waits until the card is as it was when free bytes were free, and nobody but
// the tenants of others is left.
func (m *machine) settled(free uint64, others int) {
	m.t.Helper()
	m.eventually("the card is as before", func() bool { return m.free() == free })
	m.eventually("the tenant is no longer listed", func() bool { return len(m.tenants()) == others })
}

// inspectRefusals are the refused calls of b by name.
func (m *machine) inspectRefusals(b *background) map[string]uint64 {
	m.t.Helper()
	l := decode[listed](m.t, m.mustRun("qgpu", "inspect", m.of(b).ID))
	counts := map[string]uint64{}
	for _, r := range l.State.Refused {
		counts[r.Call] = r.Count
	}
	return counts
}

// bare runs the attacker on the simulated driver with no mediator.
func (m *machine) bare(args ...string) report {
	m.t.Helper()
	path, err := buildAttacker()
	if err != nil {
		m.t.Fatal(err)
	}
	return decode[report](m.t, m.mustRun("qgpu-sim", append([]string{"run", "--", path}, args...)...))
}

// isGone reports whether a process has ended.
func isGone(pid int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, os.ErrNotExist) {
		return true
	}
	_, rest, _ := strings.Cut(string(status), ") ")
	return strings.HasPrefix(rest, "Z")
}
