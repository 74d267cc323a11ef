package sandbox

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The test runs itself as a program in a sandbox; the variable names the program.
const programVariable = "QGPU_SANDBOX_TEST"

var programs = map[string]func(*Sandbox) error{
	"look":    look,
	"machine": useMachine,
	"wait":    waitForever,
}

func TestMain(m *testing.M) {
	name, ok := os.LookupEnv(programVariable)
	if !ok {
		os.Exit(m.Run())
	}
	os.Exit(Main(Options{}, func(s *Sandbox) int {
		fmt.Println(s.Dir, s.Cgroup)
		if err := programs[name](s); err != nil {
			fmt.Println(err)
			return 7
		}
		return 0
	}))
}

// run runs the program name in a sandbox and checks that nothing is left of it.
func run(t *testing.T, name string, act func(*exec.Cmd)) (output string, code int) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to make namespaces")
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), programVariable+"="+name)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stdout)
	if !lines.Scan() {
		t.Fatal("the program did not start")
	}
	dir, cgroup, _ := strings.Cut(lines.Text(), " ")
	if act != nil {
		act(cmd)
	}
	var rest strings.Builder
	for lines.Scan() {
		fmt.Fprintln(&rest, lines.Text())
	}
	cmd.Wait()
	killed := !cmd.ProcessState.Exited()
	if !killed {
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the sandbox's folder %s is left: %v", dir, err)
		}
		if left, _ := filepath.Glob("/sys/fs/cgroup/*" + cgroup); len(left) > 0 {
			t.Errorf("cgroups are left: %v", left)
		}
		return rest.String(), cmd.ProcessState.ExitCode()
	}
	os.RemoveAll(dir)
	return rest.String(), -1
}

// look checks what a program in a sandbox sees.
func look(s *Sandbox) error {
	if os.Getppid() != 1 {
		return fmt.Errorf("the parent is process %d", os.Getppid())
	}
	links, err := net.Interfaces()
	if err != nil || len(links) != 1 || links[0].Flags&net.FlagUp == 0 {
		return fmt.Errorf("the interfaces are %v, %v", links, err)
	}
	path, err := s.NewCgroup("part")
	if err != nil {
		return err
	}
	if made, _ := filepath.Glob("/sys/fs/cgroup/*" + path); len(made) == 0 {
		return errors.New("no cgroup was made")
	}
	return os.WriteFile(s.Path("file"), nil, 0o644)
}

func TestSandbox(t *testing.T) {
	if output, code := run(t, "look", nil); code != 0 {
		t.Errorf("it exited with %d: %s", code, output)
	}
}

// useMachine writes in a machine where the outer machine must not see it, and looks for
// it after a reboot.
func useMachine(s *Sandbox) error {
	network, err := s.NewSwitch("10.77.0.1/24", net.IPv4(10, 78, 0, 1))
	if err != nil {
		return err
	}
	binds := map[string]string{"/var/lib/qgpu-sandbox-test": s.Path("bind")}
	_, behind, _ := net.ParseCIDR("10.79.0.0/24")
	for boot := range 2 {
		m, err := s.NewMachine("node", s.Path("node"), binds)
		if err != nil {
			return err
		}
		if err := network.Connect(m, net.IPv4(10, 77, 0, 2), behind); err != nil {
			return err
		}
		script := `hostname; ls /etc/qgpu-sandbox-test 2>/dev/null; touch /etc/qgpu-sandbox-test /var/lib/qgpu-sandbox-test/file; cat /proc/sys/kernel/panic; sleep 1000 & echo $!`
		output, err := runOn(m, map[string]string{"/proc/sys/kernel/panic": "/etc/hostname"}, script)
		if err != nil {
			return err
		}
		name, _ := os.ReadFile("/etc/hostname")
		want := "node\n"
		if boot > 0 {
			want += "/etc/qgpu-sandbox-test\n"
		}
		if want += string(name); !strings.HasPrefix(output, want) {
			return fmt.Errorf("at boot %d the machine said %q, not %q", boot, output, want)
		}
		if plain, err := runOn(m, nil, "cat /proc/sys/kernel/panic"); err != nil || plain == string(name) {
			return fmt.Errorf("a file given to one command is seen by others: %q, %v", plain, err)
		}
		for _, leaked := range []string{"/etc/qgpu-sandbox-test", "/var/lib/qgpu-sandbox-test"} {
			if _, err := os.Stat(leaked); !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("%s of the machine is seen outside: %v", leaked, err)
			}
		}
		if _, err := os.Stat(s.Path("bind", "file")); err != nil {
			return err
		}
		if _, err := os.Stat(m.Path("/etc/qgpu-sandbox-test")); err != nil {
			return err
		}
		m.Close()
	}
	return nil
}

func runOn(m *Machine, overrides map[string]string, script string) (string, error) {
	var output strings.Builder
	cmd := exec.CommandContext(context.Background(), "/bin/sh", "-c", script)
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.WaitDelay = 100 * time.Millisecond // what the script leaves behind holds its output
	if err := m.Start(cmd, overrides); err != nil {
		return "", err
	}
	if err := cmd.Wait(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return "", fmt.Errorf("%w: %s", err, output.String())
	}
	return output.String(), nil
}

func TestMachine(t *testing.T) {
	if output, code := run(t, "machine", nil); code != 0 {
		t.Errorf("it exited with %d: %s", code, output)
	}
}

func waitForever(*Sandbox) error {
	time.Sleep(time.Hour)
	return errors.New("nobody ended it")
}

func TestInterrupted(t *testing.T) {
	_, code := run(t, "wait", func(cmd *exec.Cmd) { cmd.Process.Signal(os.Interrupt) })
	if code != 128+2 {
		t.Errorf("the sandbox exited with %d", code)
	}
}

// Whoever starts a sandbox may be killed outright: the sandbox dies with it, and the
// next one sweeps its cgroups.
func TestKilled(t *testing.T) {
	run(t, "wait", func(cmd *exec.Cmd) { cmd.Process.Kill() })
	run(t, "look", nil)
	left, _ := filepath.Glob("/sys/fs/cgroup/*/" + cgroupPrefix + "*")
	for _, dir := range left {
		pid := strings.TrimPrefix(filepath.Base(dir), cgroupPrefix)
		if _, err := os.Stat("/proc/" + pid); errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the cgroup %s of a sandbox that is gone is left", dir)
		}
	}
}
