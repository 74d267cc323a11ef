// Package sandbox runs a program in namespaces of its own: mounts, network and
// processes, with cgroups below a folder of its own. What the program does to them ends
// with it, however it ends; the machine's own mounts, network and cgroups stay as they
// are. Inside, further machines can be made (see Machine). It knows nothing of what
// runs there.
package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Sandbox is the inside of a sandbox.
type Sandbox struct {
	// Dir is a folder of the sandbox's own on the machine's file system. It is removed
	// when the sandbox ends.
	Dir string `json:"dir"`
	// Cgroup is the path of the sandbox's own cgroup, the same in every hierarchy.
	Cgroup string `json:"cgroup"`
}

// Options of a sandbox.
type Options struct {
	// Outside runs beside the sandbox, in the machine's own namespaces, until ctx ends.
	Outside func(ctx context.Context, s *Sandbox)
	// Keep leaves Dir after the end.
	Keep bool
	Log  *slog.Logger
}

// role tells a re-executed program what it is. The variable's value is its JSON.
type role struct {
	Kind    string   `json:"kind"`
	Sandbox *Sandbox `json:"sandbox,omitempty"`
	Machine *layout  `json:"machine,omitempty"`
}

const (
	roleVariable = "QGPU_SANDBOX_ROLE"

	sandboxInit = "init"    // process 1 of the sandbox
	inside      = "inside"  // the program, in the sandbox
	machineInit = "machine" // process 1 of a Machine
)

// Main runs inside, in a sandbox, and returns what it returns: the program's exit
// status. It executes the program again for that, so call it first of all in main or
// TestMain. It needs root.
func Main(o Options, program func(*Sandbox) int) int {
	r, err := currentRole()
	if err == nil {
		switch r.Kind {
		case inside:
			return program(r.Sandbox)
		case sandboxInit:
			err = r.Sandbox.init()
		case machineInit:
			err = r.Machine.init()
		default:
			var code int
			if code, err = enter(o); err == nil {
				return code
			}
		}
	}
	fmt.Fprintln(os.Stderr, "sandbox:", err)
	return 1
}

func currentRole() (role, error) {
	text, ok := os.LookupEnv(roleVariable)
	if !ok {
		return role{}, nil
	}
	var r role
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return role{}, fmt.Errorf("%s is not what this program sets: %w", roleVariable, err)
	}
	return r, os.Unsetenv(roleVariable)
}

func (r role) environment() ([]string, error) {
	text, err := json.Marshal(r)
	return append(os.Environ(), roleVariable+"="+string(text)), err
}

// enter makes a sandbox, runs the program in it to its end, and removes the sandbox.
func enter(o Options) (code int, err error) {
	if os.Geteuid() != 0 {
		return 0, errors.New("namespaces and cgroups need root; run this as root")
	}
	// The sandbox is killed when the thread that started it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	dir, err := os.MkdirTemp("", "qgpu-sandbox-")
	if err != nil {
		return 0, err
	}
	if !o.Keep {
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	}
	if err := os.Chmod(dir, 0o755); err != nil { // mediators are users of their own
		return 0, err
	}
	cgroups, err := makeCgroups()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, cgroups.remove()) }()
	s := &Sandbox{Dir: dir, Cgroup: cgroups.path}

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if o.Outside != nil {
		go o.Outside(ctx, s)
	}
	return s.run()
}

// run is the outer half: it starts process 1 and passes on what the user signals.
func (s *Sandbox) run() (int, error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	if cmd.Env, err = (role{Kind: sandboxInit, Sandbox: s}).environment(); err != nil {
		return 0, err
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWPID | unix.CLONE_NEWIPC,
		Pdeathsig:  unix.SIGKILL,
		Setpgid:    true, // a terminal's Ctrl-C comes once, from here
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGQUIT, unix.SIGHUP)
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("start the sandbox: %w", err)
	}
	done := make(chan struct{})
	defer close(done)
	go func() {
		for {
			select {
			case s := <-signals:
				cmd.Process.Signal(s)
			case <-done:
				return
			}
		}
	}()
	err = cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return 0, err
	}
	if status := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() {
		return 0, fmt.Errorf("the sandbox was killed by signal %d", status.Signal())
	}
	return cmd.ProcessState.ExitCode(), nil
}

// init is process 1 of the sandbox. It ends with the program, and all else with it.
func (s *Sandbox) init() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("part from the machine's mounts: %w", err)
	}
	if err := mountProc(); err != nil {
		return err
	}
	if err := startNetwork(); err != nil {
		return err
	}
	env, err := role{Kind: inside, Sandbox: s}.environment()
	if err != nil {
		return err
	}
	code, err := supervise(env)
	if err != nil {
		return err
	}
	os.Exit(code)
	return nil
}

func mountProc() error {
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	return nil
}

// supervise runs the program as a child, reaps whatever else ends, and returns the
// child's exit status.
func supervise(env []string) (int, error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGQUIT, unix.SIGHUP)
	pid, err := syscall.ForkExec(self, os.Args, &syscall.ProcAttr{Env: env, Files: []uintptr{0, 1, 2}})
	if err != nil {
		return 0, fmt.Errorf("start the program in its sandbox: %w", err)
	}
	go func() {
		for s := range signals {
			unix.Kill(pid, s.(syscall.Signal))
		}
	}()
	for {
		var status unix.WaitStatus
		ended, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 0, fmt.Errorf("wait for the program: %w", err)
		case ended == pid && status.Signaled():
			return 128 + int(status.Signal()), nil
		case ended == pid:
			return status.ExitStatus(), nil
		}
	}
}

// Path joins names to the sandbox's folder.
func (s *Sandbox) Path(names ...string) string {
	return filepath.Join(append([]string{s.Dir}, names...)...)
}
