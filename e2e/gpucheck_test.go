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
	file := filepath.Join(t.TempDir(), "check.json")
	m := newMachine(t, config{})
	cmd := exec.Command("../hack/gpu-check", "--driver", "simulated", "-o", file)
	cmd.Env = append(os.Environ(), "QGPU_STATE_DIR="+m.stateDir)
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
		Controls  []struct{ Control, Caller, Answer, Effect string }
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
		"slices of 1 : 4 change shares", "shut channels stop a busy tenant", "channels let on again go on where they were",
	} {
		if seen[question] != "PASS" {
			t.Errorf("%s: %q", question, seen[question])
		}
	}
	for i, want := range []string{
		"SET_TIMESLICE: accepted", "RESTART_RUNLIST: the driver answers NV_STATUS 0x1b", "SET_TIMESLICE: accepted",
		"RESTART_RUNLIST: accepted", "DISABLE_CHANNELS: accepted", "DISABLE_CHANNELS and RESTART_RUNLIST: accepted",
		"DISABLE_CHANNELS: accepted", "DISABLE_CHANNELS (off) and RESTART_RUNLIST: accepted",
	} {
		if i >= len(report.Controls) || report.Controls[i].Control+": "+report.Controls[i].Answer != want {
			t.Errorf("the table of controls has no %q: %+v", want, report.Controls)
		}
	}
	if doctor := m.run("qgpu", "doctor").stdout; !strings.Contains(doctor, "time slices may be used, gates may be used") {
		t.Errorf("qgpu doctor does not tell the verdict:\n%s", doctor)
	}
}
