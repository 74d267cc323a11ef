package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// engine stands where a container engine does: it makes bundles and calls qgpu-runtime as
// it would call runc.
type engine struct {
	*machine
	dir    string // bundles, runc's state and the image
	image  string // a root file system with glibc, cudaload and busybox
	cgroup string // parent of the containers' cgroups
}

var engines atomic.Int32

// newEngine makes an engine on simulated cards. What it started ends with the test.
func newEngine(t *testing.T, c config) *engine {
	t.Helper()
	if _, err := exec.LookPath("runc"); err != nil {
		t.Skip("needs runc; make test-tools installs it")
	}
	m := newMachine(t, c)
	dir := filepath.Join(filepath.Dir(m.stateDir), "engine")
	e := &engine{machine: m, dir: dir, image: filepath.Join(dir, "image"), cgroup: fmt.Sprintf("qgpu-e2e-%d-%d", os.Getpid(), engines.Add(1))}
	e.makeImage()
	t.Cleanup(e.close)
	return e
}

// close deletes what containers there are, and the test's cgroups.
func (e *engine) close() {
	states, _ := os.ReadDir(filepath.Join(e.dir, "runc"))
	for _, s := range states {
		e.runtime("delete", "--force", s.Name())
	}
	for _, pattern := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
		// A runc that is killed before it has written its state leaves an empty cgroup.
		children, _ := filepath.Glob(filepath.Join(pattern, e.cgroup, "*"))
		parents, _ := filepath.Glob(filepath.Join(pattern, e.cgroup))
		for _, p := range append(children, parents...) {
			if info, err := os.Stat(p); err != nil || !info.IsDir() {
				continue
			}
			if err := unix.Rmdir(p); err != nil {
				e.t.Errorf("the test's cgroup has a process: %s: %v", p, err)
			}
		}
	}
}

// libraries are glibc's, as far as NVIDIA's programs and a Go program need them.
var libraries = []string{"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1"}

// makeImage makes a file system with glibc, a shell and our programs, and nothing of NVIDIA's.
func (e *engine) makeImage() {
	e.t.Helper()
	const libs = "/lib/x86_64-linux-gnu/"
	files := map[string]string{"/lib64/ld-linux-x86-64.so.2": "/lib64/ld-linux-x86-64.so.2", "/bin/cudaload": e.program("cudaload")}
	for _, name := range libraries {
		files[libs+name] = libs + name
	}
	if busybox, err := exec.LookPath("busybox"); err == nil {
		files["/bin/sh"] = busybox
	}
	for _, d := range []string{"proc", "sys", "dev", "tmp", "etc"} {
		if err := os.MkdirAll(filepath.Join(e.image, d), 0o755); err != nil {
			e.t.Fatal(err)
		}
	}
	for to, from := range files {
		if err := copyFile(filepath.Join(e.image, to), from); err != nil {
			e.t.Fatal(err)
		}
	}
}

func copyFile(to, from string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		return err
	}
	return out.Close()
}

// dockerCapabilities are what Docker and containerd give a container.
var dockerCapabilities = []string{"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FSETID", "CAP_FOWNER", "CAP_MKNOD", "CAP_NET_RAW", "CAP_SETGID",
	"CAP_SETUID", "CAP_SETFCAP", "CAP_SETPCAP", "CAP_NET_BIND_SERVICE", "CAP_SYS_CHROOT", "CAP_KILL", "CAP_AUDIT_WRITE"}

// spec is a container's configuration as engines write it.
func (e *engine) spec(id string, args ...string) *specs.Spec {
	deny := specs.LinuxDeviceCgroup{Allow: false, Access: "rwm"}
	mknod := specs.LinuxDeviceCgroup{Allow: true, Type: "c", Access: "m"}
	return &specs.Spec{
		Version: "1.0.2",
		Root:    &specs.Root{Path: e.image},
		Process: &specs.Process{
			Args: args, Cwd: "/", Env: []string{"PATH=/bin"},
			Capabilities: &specs.LinuxCapabilities{Bounding: dockerCapabilities, Effective: dockerCapabilities, Permitted: dockerCapabilities},
		},
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
			{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"}},
			{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
		},
		Linux: &specs.Linux{
			CgroupsPath: "/" + e.cgroup + "/" + id,
			Resources:   &specs.LinuxResources{Devices: []specs.LinuxDeviceCgroup{deny, mknod}},
			Namespaces: []specs.LinuxNamespace{{Type: specs.PIDNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace},
				{Type: specs.MountNamespace}, {Type: specs.NetworkNamespace}},
			MaskedPaths:   []string{"/proc/kcore", "/proc/keys", "/sys/firmware"},
			ReadonlyPaths: []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"},
		},
	}
}

// asking makes spec that of a container of Docker's that asks for a share.
func asking(spec *specs.Spec, memory string, more ...string) *specs.Spec {
	spec.Process.Env = append(append(spec.Process.Env, "QGPU_MEMORY="+memory), more...)
	return spec
}

// bundle writes the bundle of container id and returns its folder.
func (e *engine) bundle(id string, spec *specs.Spec) string {
	e.t.Helper()
	dir := filepath.Join(e.dir, "bundles", id)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		e.t.Fatal(err)
	}
	text, err := json.Marshal(spec)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "config.json"), text, 0o644)
	}
	if err != nil {
		e.t.Fatal(err)
	}
	return dir
}

// call is a command line of qgpu-runtime, as runc's.
func (e *engine) call(args ...string) *exec.Cmd {
	log := []string{"--root", filepath.Join(e.dir, "runc"), "--log", filepath.Join(e.dir, "log.json"), "--log-format", "json"}
	return e.command("qgpu-runtime", append(log, args...)...)
}

func (e *engine) runtime(args ...string) result {
	e.t.Helper()
	return e.finish(e.call(args...))
}

func (e *engine) mustRuntime(args ...string) string {
	e.t.Helper()
	r := e.runtime(args...)
	if r.code != 0 {
		e.t.Fatalf("qgpu-runtime %v exited with %d: %s%s", args, r.code, r.stdout, r.stderr)
	}
	return r.stdout
}

// runContainer runs a container to its end.
func (e *engine) runContainer(id string, spec *specs.Spec) result {
	e.t.Helper()
	r := e.runtime("run", "--bundle", e.bundle(id, spec), id)
	e.runtime("delete", "--force", id)
	return r
}

// startContainer runs a container beside the test.
func (e *engine) startContainer(id string, spec *specs.Spec) *background {
	e.t.Helper()
	return e.startCommand(e.call("run", "--bundle", e.bundle(id, spec), id))
}

// create creates a container whose output goes nowhere.
func (e *engine) create(id string, spec *specs.Spec) *exec.Cmd {
	return e.call("create", "--bundle", e.bundle(id, spec), id)
}

// logged is the last message of runc's log, as containerd reads it.
func (e *engine) logged() string {
	e.t.Helper()
	f, err := os.Open(filepath.Join(e.dir, "log.json"))
	if err != nil {
		e.t.Fatal(err)
	}
	defer f.Close()
	var last struct {
		Level, Msg string
		Time       time.Time
	}
	for d := json.NewDecoder(f); ; {
		err := d.Decode(&last)
		if err == io.EOF {
			return last.Msg
		}
		if err != nil {
			e.t.Fatalf("runc's log is no JSON: %v", err)
		}
	}
}

// folders are the ids of tenants that have a folder.
func (e *engine) folders() []string {
	var ids []string
	entries, _ := os.ReadDir(filepath.Join(e.stateDir, "tenants"))
	for _, d := range entries {
		ids = append(ids, d.Name())
	}
	return ids
}

// processes are those whose command line names this test's folder.
func (e *engine) processes() []string {
	var found []string
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range lines {
		text, err := os.ReadFile(path)
		if err == nil && containsAll(string(text), e.stateDir) {
			found = append(found, string(text))
		}
	}
	return found
}

// containsAll reports whether text has all of parts in it.
func containsAll(text string, parts ...string) bool {
	return !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(text, p) })
}

func encode(t testing.TB, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
