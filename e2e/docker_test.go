package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// docker is Docker's engine with its state in the test's folder, without networks.
type docker struct {
	*engine
	programs string
}

// newDocker starts an engine that knows the runtime as docs/docker.md has it registered.
func newDocker(t *testing.T) *docker {
	t.Helper()
	programs, err := filepath.Abs("../.cache/docker")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(programs, "VERSION")); err != nil {
		t.Fatalf("%v; run hack/docker-engine", err)
	}
	d := &docker{newEngine(t, config{cards: 2}), programs}
	settings, images := filepath.Join(d.dir, "daemon.json"), filepath.Join(d.dir, "images")
	d.mustRun("qgpu-runtime", "configure", "--docker="+settings, "--write")
	daemon := d.dockerCommand("dockerd", "--config-file", settings, "--data-root", images, "--exec-root", filepath.Join(d.dir, "x"),
		"--host", d.host(), "--pidfile", filepath.Join(d.dir, "docker.pid"), "--cgroup-parent", "/"+d.cgroup,
		"--bridge=none", "--iptables=false", "--ip6tables=false", "--storage-driver=vfs")
	log, err := os.Create(filepath.Join(d.dir, "docker.log"))
	if err != nil {
		t.Fatal(err)
	}
	daemon.Stdout, daemon.Stderr = log, log
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("docker.log:\n%s", text[max(0, len(text)-8000):])
		}
		daemon.Process.Signal(unix.SIGTERM) // it ends its containerd, too
		daemon.Wait()
		log.Close()
	})
	d.eventually("Docker answers", func() bool { return d.call("version").code == 0 })
	return d
}

func (d *docker) host() string { return "unix://" + filepath.Join(d.dir, "docker.sock") }

// dockerCommand is a command of one of Docker's programs, which finds the others.
func (d *docker) dockerCommand(name string, args ...string) *exec.Cmd {
	cmd := d.command(filepath.Join("..", ".cache", "docker", name), args...)
	cmd.Env = append(cmd.Env, "PATH="+d.programs+":"+os.Getenv("PATH"), "DOCKER_HOST="+d.host())
	return cmd
}

func (d *docker) call(args ...string) result {
	d.t.Helper()
	return d.finish(d.dockerCommand("docker", args...))
}

func (d *docker) must(args ...string) string {
	d.t.Helper()
	r := d.call(args...)
	if r.code != 0 {
		d.t.Fatalf("docker %s exited with %d: %s%s", strings.Join(args, " "), r.code, r.stdout, r.stderr)
	}
	return r.stdout
}

// runArgs are those of docker run for a container without a network.
func runArgs(args ...string) []string {
	return append([]string{"run", "--rm", "--network=none"}, args...)
}

// TestDocker has Docker itself run containers with and without a share.
func TestDocker(t *testing.T) {
	d := newDocker(t)
	tar, err := exec.Command("tar", "-C", d.image, "-cf", filepath.Join(d.dir, "image.tar"), ".").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, tar)
	}
	d.must("import", filepath.Join(d.dir, "image.tar"), "test:1")
	share := func(memory string, args ...string) []string {
		return append([]string{"--runtime=qgpu", "--env=QGPU_MEMORY=" + memory}, args...)
	}

	r := d.call(runArgs(share("1Gi", "test:1", "cudaload", "fill")...)...)
	if r.code != 0 {
		t.Fatalf("exited with %d: %s", r.code, r.stderr)
	}
	checkFull(t, decode[filled](t, r.stdout), 1<<30)

	id := strings.TrimSpace(d.must(runArgs(share("2Gi", "--detach", "test:1", "sh", "-c", "while :; do read -t 1 x; done")...)...))
	if got := d.must("exec", id, "nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader"); strings.TrimSpace(got) != "2048 MiB" {
		t.Errorf("what is executed in the container sees %q, want 2048 MiB", got)
	}
	if tenants := d.tenants(); len(tenants) != 1 || tenants[0].ID != id {
		t.Errorf("tenants are %+v, want container %s", tenants, id)
	}
	d.must("kill", id)
	d.eventually("the container's place is free", func() bool { return len(d.folders()) == 0 })

	for _, c := range []struct {
		what, want string
		args       []string
	}{
		{"too much", "99Gi is asked for", share("99Gi", "test:1", "nvidia-smi")},
		{"privileged", "may have CAP_SYS_ADMIN", share("1Gi", "--privileged", "test:1", "nvidia-smi")},
		{"a bad amount", `"much" is not an amount`, share("much", "test:1", "nvidia-smi")},
	} {
		if r := d.call(runArgs(c.args...)...); r.code == 0 || !strings.Contains(r.stderr, c.want) {
			t.Errorf("%s: exited with %d: %s, want %q", c.what, r.code, r.stderr, c.want)
		}
	}
	if r := d.call(runArgs("--runtime=qgpu", "test:1", "sh", "-c", "echo /dev/nvidia*")...); r.code != 0 || strings.TrimSpace(r.stdout) != "/dev/nvidia*" {
		t.Errorf("a container without a share exited with %d and sees %q: %s", r.code, r.stdout, r.stderr)
	}
	d.gone()
}
