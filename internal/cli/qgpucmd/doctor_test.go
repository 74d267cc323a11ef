package qgpucmd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/qgpu-project/qgpu/internal/gpucheck"
)

// TestDoctorTellsTheVerdict has checks of every outcome, and none.
func TestDoctorTellsTheVerdict(t *testing.T) {
	card, none := finding{grade: fine, value: "535.1, of a known branch"}, finding{grade: lacking}
	both := gpucheck.Mechanisms{Slices: true, Gates: true}
	for name, c := range map[string]struct {
		report *gpucheck.Report
		driver finding
		grade  grade
		says   string
	}{
		"never, no card":  {nil, none, fine, "no card to check"},
		"never":           {nil, card, lacking, "never checked"},
		"good":            {&gpucheck.Report{Driver: "535.1", Mechanisms: both}, card, fine, "time slices may be used, gates may be used"},
		"no gates":        {&gpucheck.Report{Driver: "535.1", Mechanisms: gpucheck.Mechanisms{Slices: true}}, card, lacking, "gates may not be used"},
		"no slices":       {&gpucheck.Report{Driver: "535.1", Mechanisms: gpucheck.Mechanisms{Gates: true}}, card, lacking, "time slices may not be used"},
		"another driver":  {&gpucheck.Report{Driver: "535.12", Mechanisms: both}, card, lacking, "driver 535.12"},
		"simulated":       {&gpucheck.Report{Driver: "535.1", Mechanisms: both, Simulated: true}, none, fine, "on a simulated card"},
		"simulated, real": {&gpucheck.Report{Driver: "535.1", Mechanisms: both, Simulated: true}, card, lacking, "on a simulated card"},
	} {
		o := &options{stateDir: filepath.Join(t.TempDir(), "state")}
		if c.report != nil {
			c.report.Date = time.Now()
			if err := c.report.Record(o.stateDir); err != nil {
				t.Fatal(err)
			}
		}
		f := o.shares(c.driver)
		if f.grade != c.grade || !strings.Contains(f.value, c.says) || f.grade != fine && f.todo == "" {
			t.Errorf("%s: %+v, want %s with %q", name, f, c.grade, c.says)
		}
	}
	o := &options{stateDir: t.TempDir()}
	if err := os.WriteFile(filepath.Join(o.stateDir, "gpu-check.json"), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if f := o.shares(card); f.grade != lacking || !strings.Contains(f.value, "damaged") {
		t.Errorf("a damaged record: %+v", f)
	}
}
