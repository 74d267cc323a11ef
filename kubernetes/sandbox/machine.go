package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// Machine is a machine inside the sandbox: mounts, network, processes and a host name
// of its own. Its folders /etc, /opt, /run and /var are copies of the outer ones, so
// that nothing written there reaches them.
type Machine struct {
	Name string
	Dir  string // keeps what is written to the machine's copied folders
	init *exec.Cmd
	gone chan struct{} // closed when process 1 has ended
}

// layout is what process 1 of a machine sets up.
type layout struct {
	Name  string            `json:"name"`
	Dir   string            `json:"dir"`
	Binds map[string]string `json:"binds"`
}

// copied are the folders of which a machine has its own copy.
var copied = []string{"/etc", "/opt", "/run", "/var"}

// readyFile is the descriptor on which process 1 of a machine says that it is set up.
const readyFile = 3

// NewMachine starts a machine. dir keeps its files: a machine that is started on the dir
// of an earlier one finds what that has written, as after a reboot. binds are folders to
// mount, by path in the machine; they are made where missing.
func (s *Sandbox) NewMachine(name, dir string, binds map[string]string) (*Machine, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	ready, report, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer ready.Close()
	m := &Machine{Name: name, Dir: dir, init: exec.Command(self), gone: make(chan struct{})}
	m.init.Env, err = role{Kind: machineInit, Machine: &layout{Name: name, Dir: dir, Binds: binds}}.environment()
	if err != nil {
		return nil, errors.Join(err, report.Close())
	}
	m.init.Stderr = os.Stderr
	m.init.ExtraFiles = []*os.File{report}
	m.init.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
		Setpgid:    true,
	}
	err = m.init.Start()
	report.Close()
	if err != nil {
		return nil, fmt.Errorf("start machine %s: %w", name, err)
	}
	go func() {
		m.init.Wait()
		close(m.gone)
	}()
	if text, err := io.ReadAll(ready); err != nil || string(text) != "ready" {
		m.Close()
		return nil, fmt.Errorf("machine %s was not set up; its process 1 said why on standard error", name)
	}
	return m, nil
}

// Close ends the machine: everything that runs in it is killed.
func (m *Machine) Close() {
	m.init.Process.Kill()
	<-m.gone
}

// PID is process 1 of the machine, as the sandbox sees it.
func (m *Machine) PID() int { return m.init.Process.Pid }

// Path is where the sandbox sees a file of the machine.
func (m *Machine) Path(name string) string { return fmt.Sprintf("/proc/%d/root%s", m.PID(), name) }

// init sets a machine up and then reaps its processes until it is killed.
func (l *layout) init() error {
	for _, step := range []func() error{l.mounts, startNetwork, func() error { return unix.Sethostname([]byte(l.Name)) }} {
		if err := step(); err != nil {
			return fmt.Errorf("machine %s: %w", l.Name, err)
		}
	}
	report := os.NewFile(readyFile, "ready")
	if _, err := report.WriteString("ready"); err != nil {
		return err
	}
	if err := report.Close(); err != nil {
		return err
	}
	return reap()
}

// reap waits for the children that process 1 inherits.
func reap() error {
	children := make(chan os.Signal, 1)
	notifyChildren(children)
	for range children {
		for {
			pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
			if pid <= 0 || err != nil {
				break
			}
		}
	}
	return nil
}

func (l *layout) mounts() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := mountProc(); err != nil {
		return err
	}
	for _, folder := range copied {
		if err := l.copyFolder(folder); err != nil {
			return fmt.Errorf("mount a copy of %s: %w", folder, err)
		}
	}
	for _, target := range slices.Sorted(maps.Keys(l.Binds)) {
		source := l.Binds[target]
		for _, dir := range []string{source, target} {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
		}
		if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s at %s: %w", source, target, err)
		}
	}
	// Volumes that kubelet mounts must reach containers.
	return unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, "")
}

func (l *layout) copyFolder(folder string) error {
	upper, work := filepath.Join(l.Dir, "upper", folder), filepath.Join(l.Dir, "work", folder)
	for _, dir := range []string{upper, work} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	return unix.Mount("overlay", folder, "overlay", 0, fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", folder, upper, work))
}

// Command is a command on the machine; start it with Start. program is an absolute path.
func (m *Machine) Command(ctx context.Context, program string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, program, args...)
}

// Start starts cmd on the machine. overrides are files that cmd alone sees in place of
// those below /proc, by path.
func (m *Machine) Start(cmd *exec.Cmd, overrides map[string]string) error {
	result := make(chan error)
	go func() {
		// The thread changes its namespaces for good, and ends with this goroutine.
		runtime.LockOSThread()
		if err := m.join(overrides); err != nil {
			result <- fmt.Errorf("enter machine %s: %w", m.Name, err)
			return
		}
		result <- cmd.Start()
	}()
	return <-result
}

// join moves the calling thread, and the children that it makes, to the machine.
func (m *Machine) join(overrides map[string]string) error {
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return err
	}
	var files []*os.File
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	kinds := []string{"ipc", "uts", "net", "pid", "mnt"}
	for _, kind := range kinds {
		f, err := os.Open(fmt.Sprintf("/proc/%d/ns/%s", m.PID(), kind))
		if err != nil {
			return err
		}
		files = append(files, f)
	}
	for i, f := range files {
		if err := unix.Setns(int(f.Fd()), 0); err != nil {
			return fmt.Errorf("join its namespace %s: %w", kinds[i], err)
		}
	}
	if len(overrides) == 0 {
		return nil
	}
	// Mounts stay those of the machine and come and go with its own, but for /proc.
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return err
	}
	if err := unix.Mount("", "/proc", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	for target, source := range overrides {
		if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s at %s: %w", source, target, err)
		}
	}
	return nil
}
