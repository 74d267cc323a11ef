package e2e

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// TestUserNamespace runs a container whose root is nobody on the machine, as a pod with
// hostUsers: false.
func TestUserNamespace(t *testing.T) {
	e := newEngine(t, config{})
	const root = 100000 // on the machine
	err := filepath.WalkDir(e.image, func(path string, _ fs.DirEntry, err error) error { return errors.Join(err, os.Chown(path, root, root)) })
	if err != nil {
		t.Fatal(err)
	}
	spec := asking(e.spec("c", "cudaload", "fill"), "1Gi")
	spec.Linux.Namespaces = append(spec.Linux.Namespaces, specs.LinuxNamespace{Type: specs.UserNamespace})
	ids := []specs.LinuxIDMapping{{ContainerID: 0, HostID: root, Size: 65536}}
	spec.Linux.UIDMappings, spec.Linux.GIDMappings = ids, ids
	r := e.runContainer("c", spec)
	if r.code != 0 {
		t.Fatalf("exited with %d: %s", r.code, r.stderr)
	}
	checkFull(t, decode[filled](t, r.stdout), 1<<30)
	e.gone()
}

// TestOpenedDirectly opens device files in ways that no filter sees, as the container's
// root: there is no card behind any of them.
func TestOpenedDirectly(t *testing.T) {
	e := newEngine(t, config{})
	const script = `
		cat /dev/nvidiactl; cat /dev/nvidia0
		mknod /tmp/ctl c 195 255 && cat /tmp/ctl
		mknod /tmp/card c 195 0 && cat /tmp/card
		ls /dev/nvidia* /proc/driver/nvidia/gpus | wc -l`
	r := e.runContainer("c", asking(e.spec("c", "sh", "-c", script), "1Gi"))
	if n := strings.Count(r.stderr, "Permission denied") + strings.Count(r.stderr, "Operation not permitted"); n != 4 {
		t.Errorf("%d of 4 opens were refused:\n%s%s", n, r.stdout, r.stderr)
	}
	if strings.TrimSpace(r.stdout) == "0" {
		t.Errorf("the container shows no device of its card: %+v", r)
	}
	e.gone()
}

// TestSeen lists what a container sees of a machine with two cards: its own alone.
func TestSeen(t *testing.T) {
	e := newEngine(t, config{cards: 2})
	const script = "ls /dev | grep nvidia; ls /proc/driver/nvidia/gpus; cat /proc/driver/nvidia/gpus/*/information | grep Minor; grep nvidia /proc/devices; ls /proc/driver"
	r := e.runContainer("c", asking(e.spec("c", "sh", "-c", script), "1Gi", "QGPU_CARD=1"))
	want := "nvidia-uvm\nnvidia-uvm-tools\nnvidia1\nnvidiactl\n0000:02:00.0\nDevice Minor: \t 1\n195 nvidia-frontend\n510 nvidia-uvm\nnvidia\n"
	if got := strings.ReplaceAll(r.stdout, "rtc\n", ""); got != want {
		t.Errorf("the container sees\n%s%swant\n%s", got, r.stderr, want)
	}
	e.gone()
}
