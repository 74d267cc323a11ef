package runtimecmd

import (
	"os/exec"
	"strings"
	"testing"
)

// TestNoKubernetes keeps Kubernetes' code out of the programs on the data path.
func TestNoKubernetes(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "github.com/qgpu-project/qgpu/cmd/qgpu-runtime", "github.com/qgpu-project/qgpu/cmd/qgpu-sim").Output()
	if err != nil {
		t.Fatal(err)
	}
	packages := strings.Fields(string(out))
	if len(packages) < 100 {
		t.Fatalf("go list names %d packages only", len(packages))
	}
	for _, p := range packages {
		if strings.HasPrefix(p, "k8s.io/") || strings.HasPrefix(p, "sigs.k8s.io/") {
			t.Errorf("qgpu-runtime or qgpu-sim links %s", p)
		}
	}
}
