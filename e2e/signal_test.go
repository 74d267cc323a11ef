package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSignalStorm has signals arrive every half millisecond while a tenant allocates
// and frees. No call may be executed twice, and none be lost: every allocation has a
// handle of its own, so that a second execution fails with a duplicate name, and at
// the end the driver's count is what is charged.
func TestSignalStorm(t *testing.T) {
	m := newMachine(t, config{})
	free := m.free()
	for _, c := range []struct {
		name, mode string
		flags      []string
	}{
		{"killable, restarted", "restart", nil},
		{"killable, repeated", "plain", nil},
		{"interruptible, restarted", "restart", []string{"--interruptible"}},
		{"interruptible, repeated", "plain", []string{"--interruptible"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := m.as(t)
			const pairs = 4000
			b := m.attackerWith(c.flags, "512Mi", "storm", fmt.Sprint(pairs), c.mode)
			r := b.report()
			t.Logf("%d calls came back interrupted", r.Interrupted)
			r.check(t, pairs)
			if r.Worked != 2*pairs {
				t.Errorf("%d of %d calls worked", r.Worked, 2*pairs)
			}
			if n := m.charged(b); n != r.Held {
				t.Errorf("%d bytes are charged, the tenant holds %d", n, r.Held)
			}
			if n := free - m.free(); n != r.Held {
				t.Errorf("the driver counts %d bytes, the tenant holds %d", n, r.Held)
			}
			b.end()
			m.settled(free, 0)
		})
	}
}

// shell is a command that runs script as a tenant.
func (m *machine) shell(script string) *exec.Cmd {
	return m.command("qgpu", tenantArgs("512Mi", "/bin/sh", "-c", script)...)
}

// TestProgramItself checks that a tenant's program is as if it had been started with
// no qgpu before it: how it ends, where it runs, and what it inherits.
func TestProgramItself(t *testing.T) {
	m := newMachine(t, config{})
	for _, code := range []int{0, 1, 42, 255} {
		if r := m.finish(m.shell(fmt.Sprint("exit ", code))); r.code != code {
			t.Errorf("a program that exits with %d exited with %d: %s", code, r.code, r.stderr)
		}
	}
	for _, s := range []unix.Signal{unix.SIGTERM, unix.SIGKILL, unix.SIGSEGV} {
		cmd := m.shell(fmt.Sprintf("kill -%d $$", s))
		m.finish(cmd)
		if status := cmd.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != s {
			t.Errorf("a program that dies of %v ended with %v", s, cmd.ProcessState)
		}
	}
	cmd := m.shell("pwd; echo \"$QGPU_TEST_WORD\"; cat; umask; ls /proc/self/fd | wc -l")
	cmd.Dir = "/usr/share"
	cmd.Env = append(cmd.Env, "QGPU_TEST_WORD=two words")
	cmd.Stdin = strings.NewReader("from standard input\n")
	bare := exec.Command("/bin/sh", cmd.Args[len(cmd.Args)-2:]...)
	bare.Dir, bare.Env, bare.Stdin = cmd.Dir, cmd.Env, strings.NewReader("from standard input\n")
	want := m.finish(bare)
	if got := m.finish(cmd); got != want {
		t.Errorf("as a tenant the program ended with %+v, without qgpu with %+v", got, want)
	}
}

// TestSignalsReachProgram sends signals to a tenant from outside.
func TestSignalsReachProgram(t *testing.T) {
	m := newMachine(t, config{})
	for _, c := range []struct {
		name  string
		to    int // factor of the process: -1 is its group
		sig   unix.Signal
		trap  bool
		ended string
	}{
		{"SIGTERM kills", 1, unix.SIGTERM, false, "signal: terminated"},
		{"SIGTERM is handled", 1, unix.SIGTERM, true, "exit status 7"},
		{"SIGINT to the group kills", -1, unix.SIGINT, false, "signal: interrupt"},
		{"SIGINT to the group is handled", -1, unix.SIGINT, true, "exit status 7"},
	} {
		script := "echo ready; while :; do sleep 0.05; done"
		if c.trap {
			script = "trap 'exit 7' INT TERM; " + script
		}
		cmd := m.shell(script)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		b := m.startCommand(cmd)
		b.line()
		if err := unix.Kill(c.to*cmd.Process.Pid, c.sig); err != nil {
			t.Fatal(err)
		}
		b.wait()
		if got := cmd.ProcessState.String(); got != c.ended {
			t.Errorf("%s: the program ended with %q, want %q", c.name, got, c.ended)
		}
	}
}

// TestTerminal gives a tenant a terminal.
func TestTerminal(t *testing.T) {
	m := newMachine(t, config{})
	master, slave := openTerminal(t)
	cmd := m.shell("test -t 0 && test -t 1 && stty size && echo ready; exec sleep 1000")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer endCommand(cmd)
	var seen bytes.Buffer
	lines := bufio.NewScanner(io.TeeReader(master, &seen))
	for lines.Scan() && strings.TrimSpace(lines.Text()) != "ready" {
	}
	if !strings.Contains(seen.String(), "33 77") {
		t.Errorf("a terminal of 33 lines and 77 columns is %q to the tenant", seen.String())
	}
	if _, err := master.Write([]byte{3}); err != nil { // control-C
		t.Fatal(err)
	}
	cmd.Wait()
	if got := cmd.ProcessState.String(); got != "signal: interrupt" {
		t.Errorf("after control-C the program ended with %q", got)
	}
}

// openTerminal makes a pseudoterminal of 33 lines and 77 columns.
func openTerminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 33, Col: 77}); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { slave.Close() })
	return master, slave
}
