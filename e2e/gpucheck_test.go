package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestGPUCheck runs the check of machines with a real card on a simulated one, so
// that it is right on the day a real one is there.
func TestGPUCheck(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to start tenants")
	}
	file := filepath.Join(t.TempDir(), "check.json")
	cmd := exec.Command("../hack/gpu-check", "--driver", "simulated", "-o", file)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("the check ends with %v:\n%s", err, out)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var report struct {
		Driver    string
		Simulated bool
		Cards     []string
		Lines     []struct{ Question, Verdict, Answer, Raw string }
	}
	if err := json.Unmarshal(text, &report); err != nil {
		t.Fatal(err)
	}
	if !report.Simulated || report.Driver == "" || len(report.Cards) != 1 {
		t.Errorf("the head of the report does not say what was checked: %+v", report)
	}
	seen := map[string]string{}
	for _, l := range report.Lines {
		seen[l.Question] = l.Verdict
		if !strings.Contains(string(out), l.Question) {
			t.Errorf("%q is in the JSON but not in the table", l.Question)
		}
		// PyTorch computes, which a simulated card does not.
		if l.Verdict == "SKIP" && !strings.HasPrefix(l.Question, "PyTorch") {
			t.Errorf("%s was skipped: %s", l.Question, l.Answer)
		}
	}
	for _, question := range []string{
		"nvidia-smi in a tenant shows the quota as the card's memory",
		"quota holds: cuMemAlloc", "quota holds: cuMemAllocManaged",
		"two tenants at once: the second sees its own processes only",
		"after kill -9 the card's memory is free again",
		"slices of 1 : 4 change shares",
	} {
		if seen[question] != "PASS" {
			t.Errorf("%s: %q", question, seen[question])
		}
	}
}
