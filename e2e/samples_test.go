//go:build samples

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSamples runs NVIDIA's CUDA samples, fetched by hack/cuda-samples, with and
// without a mediator. They use the CUDA runtime, and judge themselves.
func TestSamples(t *testing.T) {
	dir, err := filepath.Abs("../.cache/cuda-samples")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range variants {
		t.Run(c.String(), func(t *testing.T) {
			m := newMachine(t, c)
			for _, sample := range []string{"deviceQuery", "bandwidthTest"} {
				program := filepath.Join(dir, sample)
				if _, err := os.Stat(program); err != nil {
					t.Fatalf("%v; run make samples", err)
				}
				for how, out := range map[string]string{
					"alone":    m.mustRun("qgpu-sim", "run", "--", program),
					"a tenant": m.mustTenant("3Gi", program),
				} {
					if !strings.Contains(out, "Result = PASS") {
						t.Errorf("%s, %s:\n%s", sample, how, out)
					}
				}
			}
		})
	}
}
