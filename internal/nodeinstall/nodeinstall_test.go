package nodeinstall

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/qgpu-project/qgpu/internal/ociruntime"
	"github.com/qgpu-project/qgpu/internal/ociruntime/engineconf"
)

func plan(t *testing.T) Plan {
	t.Helper()
	program := filepath.Join(t.TempDir(), "qgpu-runtime")
	if err := os.WriteFile(program, []byte("a program"), 0o755); err != nil {
		t.Fatal(err)
	}
	return Plan{
		Root: t.TempDir(), InstallDir: "/opt/qgpu", Programs: []string{program}, Handler: "qgpu",
		Settings: Settings{Driver: "simulated", Runc: "runc"}, Configure: true, SystemdCgroup: true,
	}
}

func apply(t *testing.T, p Plan) []string {
	t.Helper()
	changed, err := p.Apply()
	if err != nil {
		t.Fatal(err)
	}
	return changed
}

func (p Plan) read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(p.Root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func TestApply(t *testing.T) {
	if settingsPath != ociruntime.DefaultSettings {
		t.Errorf("settings go to %s, and qgpu-runtime reads %s", settingsPath, ociruntime.DefaultSettings)
	}
	p := plan(t)
	all := []string{"/opt/qgpu/bin/qgpu-runtime", settingsPath, engineconf.Containerd.File, engineconf.CRIO.File}
	if changed := apply(t, p); !slices.Equal(changed, all) {
		t.Errorf("changed %v, want %v", changed, all)
	}
	settings, err := ociruntime.ReadSettings(filepath.Join(p.Root, settingsPath), func(string) string { return "" })
	if err != nil || settings.Driver != "simulated" || settings.Runc != "runc" {
		t.Errorf("qgpu-runtime reads %+v, %v, want what was set", settings, err)
	}
	for path, want := range map[string]string{
		engineconf.Containerd.File: `BinaryName = '/opt/qgpu/bin/qgpu-runtime'`,
		engineconf.CRIO.File:       `runtime_path = '/opt/qgpu/bin/qgpu-runtime'`,
	} {
		if text := p.read(t, path); !strings.Contains(text, want) {
			t.Errorf("%s has no %s:\n%s", path, want, text)
		}
	}
	if changed := apply(t, p); changed != nil {
		t.Errorf("a second time changed %v, want nothing", changed)
	}
	p.Settings.Driver = "kernel"
	if changed := apply(t, p); !slices.Equal(changed, []string{settingsPath}) {
		t.Errorf("another driver changed %v, want %s", changed, settingsPath)
	}
}

func TestReplacesRunningProgram(t *testing.T) {
	p := plan(t)
	apply(t, p)
	path := filepath.Join(p.Root, "/opt/qgpu/bin/qgpu-runtime")
	running, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer running.Close()
	if err := os.WriteFile(p.Programs[0], []byte("its new version"), 0o755); err != nil {
		t.Fatal(err)
	}
	apply(t, p)
	old := make([]byte, 64)
	n, _ := running.Read(old)
	if got := string(old[:n]); got != "a program" {
		t.Errorf("who had the program open reads %q, want what it was", got)
	}
	if got := p.read(t, "/opt/qgpu/bin/qgpu-runtime"); got != "its new version" {
		t.Errorf("the program is %q", got)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 {
		t.Errorf("folder has %v, %v, want the program alone", entries, err)
	}
}

func TestUnconfigured(t *testing.T) {
	p := plan(t)
	p.Configure = false
	apply(t, p)
	if _, err := os.Stat(filepath.Join(p.Root, "/etc/containerd")); err == nil {
		t.Error("containerd's folder was written to")
	}
}

func TestRefusesRelativeFolder(t *testing.T) {
	p := plan(t)
	p.InstallDir = "opt/qgpu"
	if _, err := p.Apply(); err == nil {
		t.Error("Apply to a relative folder succeeded")
	}
}

// What the node's owner has set, and this plan says nothing of, stays.
func TestKeepsSettings(t *testing.T) {
	p := plan(t)
	p.Settings.Userspace = "/usr/lib/nvidia"
	apply(t, p)
	p.Settings = Settings{Driver: "kernel"}
	apply(t, p)
	settings, err := ociruntime.ReadSettings(filepath.Join(p.Root, settingsPath), func(string) string { return "" })
	if err != nil || settings.Driver != "kernel" || settings.Userspace != "/usr/lib/nvidia" || settings.Runc != "runc" {
		t.Errorf("settings %+v, %v, want the new driver and the rest as it was", settings, err)
	}
	if err := os.WriteFile(filepath.Join(p.Root, settingsPath), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Apply(); err == nil {
		t.Error("settings that cannot be read were overwritten")
	}
}
