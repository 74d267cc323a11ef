package ociruntime

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/qgpu-project/qgpu/internal/userspace"
)

const cdiSpec = `{
  "cdiVersion": "0.6.0", "kind": "nvidia.com/gpu",
  "devices": [{"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0"}]}}],
  "containerEdits": {
    "env": ["NVIDIA_CTK_LIBCUDA_DIR=/usr/lib64"],
    "deviceNodes": [{"path": "/dev/nvidiactl"}],
    "hooks": [{"hookName": "createContainer", "path": "/usr/bin/nvidia-cdi-hook", "args": ["nvidia-cdi-hook", "update-ldcache"]}],
    "mounts": [{"hostPath": "/usr/lib64/libcuda.so.535.261.03", "containerPath": "/usr/lib64/libcuda.so.535.261.03", "options": ["ro", "bind"]}]
  }
}`

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

// machine is a place with nothing of NVIDIA's.
func machine(t *testing.T) (driverFiles, string) {
	t.Setenv(userspace.Variable, "")
	dir := t.TempDir()
	return driverFiles{
		cdiDirs: []string{filepath.Join(dir, "cdi")}, libDirs: []string{filepath.Join(dir, "lib"), filepath.Join(dir, "lib64")},
		binDirs: []string{filepath.Join(dir, "bin")},
	}, dir
}

func apply(t *testing.T, f driverFiles) *specs.Spec {
	t.Helper()
	spec := &specs.Spec{Process: &specs.Process{Env: []string{"PATH=/bin"}}}
	edit, err := f.find("", "535.261.03")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // a bundle may be edited before
		if err := edit(spec); err != nil {
			t.Fatal(err)
		}
	}
	return spec
}

func destinations(spec *specs.Spec) []string {
	var all []string
	for _, m := range spec.Mounts {
		all = append(all, m.Destination)
	}
	return all
}

// TestCDI takes libraries and hooks from a CDI specification, and no device.
func TestCDI(t *testing.T) {
	f, dir := machine(t)
	write(t, filepath.Join(dir, "cdi", "a-other.json"), `{"cdiVersion": "0.6.0", "kind": "example.com/nic", "devices": [{"name": "0", "containerEdits": {"env": ["A=B"]}}]}`)
	write(t, filepath.Join(dir, "cdi", "b-damaged.yaml"), `:`)
	write(t, filepath.Join(dir, "cdi", "nvidia.json"), cdiSpec)
	spec := apply(t, f)
	if got := destinations(spec); !slices.Equal(got, []string{"/usr/lib64/libcuda.so.535.261.03"}) {
		t.Errorf("mounts %v", got)
	}
	if spec.Linux != nil && len(spec.Linux.Devices) > 0 {
		t.Errorf("devices %v", spec.Linux.Devices)
	}
	if spec.Hooks == nil || spec.Hooks.CreateContainer[0].Path != "/usr/bin/nvidia-cdi-hook" || !slices.Contains(spec.Process.Env, "NVIDIA_CTK_LIBCUDA_DIR=/usr/lib64") {
		t.Errorf("hooks %+v, environment %v", spec.Hooks, spec.Process.Env)
	}
}

// TestInstalled mounts the machine's libraries of the driver's version, by all their names.
func TestInstalled(t *testing.T) {
	f, dir := machine(t)
	lib := filepath.Join(dir, "lib")
	for _, name := range []string{"libcuda.so.535.261.03", "libnvidia-ml.so.535.261.03", "libnvidia-ml.so.530.1", "libc.so.6"} {
		write(t, filepath.Join(lib, name), "")
	}
	for link, to := range map[string]string{"libcuda.so.1": "libcuda.so.535.261.03", "libcuda.so": "libcuda.so.1", "libnvidia-ml.so.1": "libnvidia-ml.so.535.261.03", "libnvidia-x.so.1": "nowhere"} {
		if err := os.Symlink(to, filepath.Join(lib, link)); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(dir, "bin", "nvidia-smi"), "")
	spec := apply(t, f)
	want := []string{"bin/nvidia-smi", "lib/libcuda.so", "lib/libcuda.so.1", "lib/libcuda.so.535.261.03", "lib/libnvidia-ml.so.1", "lib/libnvidia-ml.so.535.261.03"}
	for i := range want {
		want[i] = UserSpaceMount + "/" + want[i]
	}
	got := destinations(spec)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("mounts\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if wantEnv := []string{"PATH=" + UserSpaceMount + "/bin:/bin", "LD_LIBRARY_PATH=" + UserSpaceMount + "/lib"}; !slices.Equal(spec.Process.Env, wantEnv) {
		t.Errorf("environment %v, want %v", spec.Process.Env, wantEnv)
	}
}

func TestNothingInstalled(t *testing.T) {
	f, dir := machine(t)
	if _, err := f.find("", "535.261.03"); err == nil || !strings.Contains(err.Error(), "nvidia-ctk cdi generate") {
		t.Errorf("a machine with no user space: %v", err)
	}
	write(t, filepath.Join(dir, "own", "535", "VERSION"), "535.261.03\n")
	t.Setenv(userspace.Variable, filepath.Join(dir, "own"))
	if _, err := f.find("", "535.54.03"); err == nil || !strings.Contains(err.Error(), "of driver 535.261.03, not 535.54.03") {
		t.Errorf("a user space of another version: %v", err)
	}
	spec := apply(t, f)
	if len(spec.Mounts) != 1 || spec.Mounts[0].Source != filepath.Join(dir, "own", "535") {
		t.Errorf("mounts %+v", spec.Mounts)
	}
}
