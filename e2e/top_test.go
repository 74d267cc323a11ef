package e2e

import (
	"regexp"
	"strings"
	"testing"
)

// TestTop has a frame printed while one tenant of two works.
func TestTop(t *testing.T) {
	m := newMachine(t, config{})
	holds := m.start("2Gi", m.program("cudaload"), "fill", "--hold")
	holds.line()
	m.start("1Gi", "sleep", "1000")
	var frame string
	m.eventually("both tenants are listed", func() bool {
		frame = m.mustRun("qgpu", "top", "--once")
		return strings.Contains(frame, "2 tenants")
	})
	for _, want := range []string{
		`card 0  Tesla T4  best-effort  2 tenants\n`,
		`  memory   █+▒+░+  2Gi used, 3Gi allotted of [\d.]+Gi\n`,
		`  compute  \d+%\n`,
		`\n  [0-9a-f]{12} .* +(2Gi|20\d\dMi)/2Gi .*cudaload fill --hold\n`,
		`\n  [0-9a-f]{12}  ordinary +- +0% +0/1Gi .*sleep 1000\n`,
	} {
		if !regexp.MustCompile(want).MatchString(frame) {
			t.Errorf("no %q in\n%s", want, frame)
		}
	}
	if strings.Contains(frame, "\x1b") {
		t.Errorf("colours in a file: %q", frame)
	}
}
