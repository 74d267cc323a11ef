package privilege

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const childVariable = "QGPU_TEST_PRIVILEGE_CHILD"

// TestMain becomes the child that drops its privileges and executes cat.
func TestMain(m *testing.M) {
	if os.Getenv(childVariable) == "" {
		os.Exit(m.Run())
	}
	runtime.LockOSThread()
	keep := Of(unix.CAP_SYS_PTRACE)
	err := Bound(keep)
	if err == nil {
		err = User(2_000_000_000, 2_000_000_000, keep)
	}
	if err == nil {
		err = unix.Exec("/bin/cat", []string{"cat", "/proc/self/status"}, nil)
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func TestDrop(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to give up root's privileges")
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{childVariable + "=1"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	status := map[string]string{}
	for line := range strings.Lines(string(out)) {
		name, value, _ := strings.Cut(line, ":")
		status[name] = strings.Join(strings.Fields(value), " ")
	}
	uids := "2000000000 2000000000 2000000000 2000000000"
	want := map[string]string{
		"Uid": uids, "Gid": uids, "Groups": "",
		"CapPrm": "0000000000080000", "CapEff": "0000000000080000", "CapBnd": "0000000000080000", "CapAmb": "0000000000080000",
	}
	for name, value := range want {
		if status[name] != value {
			t.Errorf("%s is %q after the exec, want %q", name, status[name], value)
		}
	}
}

func TestBounding(t *testing.T) {
	s, err := Bounding(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 && !s.Has(unix.CAP_SYS_PTRACE) {
		t.Errorf("Bounding(self) = %x, without CAP_SYS_PTRACE as root", s)
	}
}
