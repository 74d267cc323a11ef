package chart

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/qgpu-project/qgpu/internal/nodeinstall"
)

// The real containerd reads the drop-in, beside a configuration of either format, and
// has the runtime then.
func TestContainerdReadsDropIn(t *testing.T) {
	containerd := tool(t, "containerd")
	for name, version := range map[string]string{"format 2": "2", "format 3": "3"} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			program := filepath.Join(root, "qgpu-runtime")
			if err := os.WriteFile(program, nil, 0o755); err != nil {
				t.Fatal(err)
			}
			plan := nodeinstall.Plan{Root: root, InstallDir: "/opt/qgpu", Programs: []string{program}, Handler: "qgpu", Configure: true, SystemdCgroup: true}
			if _, err := plan.Apply(); err != nil {
				t.Fatal(err)
			}
			main := filepath.Join(root, "config.toml")
			text := "version = " + version + "\nimports = [\"" + filepath.Join(root, "etc/containerd/conf.d/*.toml") + "\"]\n"
			if err := os.WriteFile(main, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			out, err := exec.CommandContext(t.Context(), containerd, "--config", main, "config", "dump").CombinedOutput()
			if err != nil {
				t.Fatalf("containerd config dump: %v\n%s", err, out)
			}
			_, runtime, found := strings.Cut(string(out), "containerd.runtimes.qgpu]")
			if !found || !strings.Contains(runtime, "BinaryName = '/opt/qgpu/bin/qgpu-runtime'") || !strings.Contains(runtime, "SystemdCgroup = true") {
				t.Errorf("containerd has no runtime qgpu with its program:\n%s", out)
			}
		})
	}
}
