package ociruntime

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/qgpu-project/qgpu/internal/devfs"
)

var update = flag.Bool("update", false, "write the expected files")

// tenantOf is what the container of a tenant gets in these tests.
func tenantOf(t *testing.T, id string) additions {
	t.Helper()
	h, err := hooks("/opt/qgpu/bin/qgpu-runtime", "/run/qgpu", "/bundle/rootfs", devfs.View{
		Files: map[string]string{"/proc/driver/nvidia/version": "NVRM version\n"}, Hide: []string{"/proc/driver/nvidia/gpus/0000:02:00.0"},
	})
	if err != nil {
		t.Fatal(err)
	}
	nodes := map[string]string{}
	for _, name := range []string{"nvidiactl", "nvidia0", "nvidia-uvm"} {
		nodes["/dev/"+name] = "/run/qgpu/tenants/" + id + "/dev/" + name
	}
	return additions{
		nodes: nodes, files: mountUserSpace("/usr/lib/qgpu/nvidia-userspace/535"), hooks: h,
		majors: []int64{majorNVIDIA, 510}, notes: map[string]string{TenantAnnotation: id},
	}
}

// rewrite edits the configuration at path for a tenant, as create does.
func rewrite(t *testing.T, path, id string) string {
	t.Helper()
	var spec specs.Spec
	d, err := readDocument(path, &spec)
	if err != nil {
		t.Fatal(err)
	}
	undo(&spec, func(source string) bool { return within(source, "/run/qgpu/tenants") })
	if err := edit(&spec, tenantOf(t, id)); err != nil {
		t.Fatal(err)
	}
	if err := d.setSpec(&spec); err != nil {
		t.Fatal(err)
	}
	if err := d.write(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := json.Indent(&out, text, "", "  "); err != nil {
		t.Fatal(err)
	}
	return out.String() + "\n"
}

func copyOf(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(path, text, 0o640); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestEdit compares a pod's container's configuration with the one expected. Editing it
// again, for another run, changes it to that run's.
func TestEdit(t *testing.T) {
	path := copyOf(t, "pod.before.json")
	got := rewrite(t, path, "c1")
	const golden = "testdata/pod.after.json"
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil || got != string(want) {
		t.Errorf("the edited configuration (%v) is\n%s\nwant that of %s (go test -update writes it)", err, got, golden)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("the file's mode is %v (%v), want the one it had", info.Mode(), err)
	}
	if again := rewrite(t, path, "c2"); again != strings.ReplaceAll(got, "c1", "c2") && strings.ReplaceAll(again, "/pod1/c1", "/pod1/c2") != strings.ReplaceAll(got, "c1", "c2") {
		t.Errorf("edited once more it is\n%s", again)
	}
}

// TestDeniedDevices opens devices by the rules of a container's cgroup, as Linux applies them:
// the last that matches decides.
func TestDeniedDevices(t *testing.T) {
	n := func(v int64) *int64 { return &v }
	start := specs.LinuxDeviceCgroup{Allow: false, Access: "rwm"}
	for name, rules := range map[string][]specs.LinuxDeviceCgroup{
		"none":             nil,
		"an engine's":      {start, {Allow: true, Type: "c", Access: "m"}, {Allow: true, Type: "c", Major: n(1), Minor: n(3), Access: "rwm"}},
		"no beginning":     {{Allow: true, Type: "c", Major: n(1), Minor: n(3), Access: "rwm"}},
		"with a card":      {start, {Allow: true, Type: "c", Major: n(195), Minor: n(0), Access: "rw"}},
		"with all of them": {start, {Allow: true, Type: "c", Major: n(195), Access: "rwm"}, {Allow: true, Type: "c", Major: n(510), Minor: n(-1), Access: "rwm"}},
	} {
		got := denied(rules, []int64{195, 510})
		if got[0].Allow || !everyMajor(got[0]) || got[0].Access != "rwm" {
			t.Errorf("%s: the rules begin with %+v, not with nothing allowed", name, got[0])
		}
		for _, major := range []int64{195, 510} {
			for _, minor := range []int64{0, 255} {
				if mayOpen(got, major, minor) {
					t.Errorf("%s: device %d:%d may be opened by %+v", name, major, minor, got)
				}
			}
		}
		if !mayOpen(rules, 1, 3) != !mayOpen(got, 1, 3) {
			t.Errorf("%s: /dev/null changed its rights", name)
		}
	}
}

// mayOpen applies rules as cgroups do.
func mayOpen(rules []specs.LinuxDeviceCgroup, major, minor int64) bool {
	allowed := false
	is := func(number *int64, n int64) bool { return number == nil || *number < 0 || *number == n }
	for _, r := range rules {
		if (r.Type == "" || r.Type == "a" || r.Type == "c") && is(r.Major, major) && is(r.Minor, minor) && strings.Contains(r.Access, "r") {
			allowed = r.Allow
		}
	}
	return allowed
}

func TestMajors(t *testing.T) {
	const devices = "Character devices:\n  1 mem\n195 nvidia-frontend\n195 nvidiactl\n234 nvidia-caps\n508 nvidia-uvm\n\nBlock devices:\n  8 sd\nnvidia\nx nvidia-x\n"
	if got, want := nvidiaMajors(strings.NewReader(devices), []int64{510}), []int64{195, 234, 508, 510}; !slices.Equal(got, want) {
		t.Errorf("majors %v, want %v", got, want)
	}
}

func FuzzConfig(f *testing.F) {
	text, err := os.ReadFile("testdata/pod.before.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"process":{},"linux":{},"root":{"path":"/"}}`))
	f.Add([]byte(`{"linux":null,"process":null,"mounts":[{}],"hooks":{}}`))
	c := checker{private: []string{"/run/qgpu"}, majors: []int64{majorNVIDIA}}
	f.Fuzz(func(t *testing.T, text []byte) {
		var spec specs.Spec
		raw, err := decode(text, &spec)
		if err != nil {
			return
		}
		if _, err := identify(spec.Annotations); err != nil {
			return
		}
		if c.check(&spec, "/bundle/rootfs") != nil {
			return
		}
		undo(&spec, func(source string) bool { return within(source, "/run/qgpu/tenants") })
		if err := edit(&spec, tenantOf(t, "c1")); err != nil {
			t.Fatal(err)
		}
		d := document{raw: raw}
		if err := d.setSpec(&spec); err != nil {
			t.Fatal(err)
		}
		out, err := json.Marshal(d.raw)
		if err != nil {
			t.Fatal(err)
		}
		var again specs.Spec
		if _, err := decode(out, &again); err != nil {
			t.Fatalf("the edited configuration is damaged: %v", err)
		}
		if err := c.check(&again, "/bundle/rootfs"); err != nil && !strings.Contains(err.Error(), "/run/qgpu/tenants/c1/dev") {
			t.Errorf("what was allowed is refused once it is edited: %v", err)
		}
		for _, minor := range []int64{0, 255} {
			if mayOpen(again.Linux.Resources.Devices, majorNVIDIA, minor) {
				t.Errorf("the container may open device %d:%d: %+v", majorNVIDIA, minor, again.Linux.Resources.Devices)
			}
		}
	})
}
