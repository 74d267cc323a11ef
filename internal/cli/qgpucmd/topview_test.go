package qgpucmd

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/qgpu-project/qgpu/internal/share"
	"github.com/qgpu-project/qgpu/internal/tenant"
)

var update = flag.Bool("update", false, "write the golden files anew")

func p(percent float64) *float64 { return &percent }

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// sampleFrame is two cards: one with three tenants, of which one does not answer, and
// one without.
func sampleFrame() frame {
	state := &tenant.State{Calls: 4711, Processes: []int{10, 11}, Refused: []tenant.Refusal{{Call: "x", Count: 2}}}
	return frame{at: noon, cards: []cardView{
		{
			index: 0, uuid: "GPU-a", name: "Tesla T4", policy: share.FixedShare, total: 15 * share.GiB, busy: p(98.6),
			tenants: []tenantView{
				{id: "aaaaaaaaaaaa", program: []string{"python", "serve.py"}, class: share.Online, core: 30, used: 2 * share.GiB, quota: 5 * share.GiB, since: noon.Add(-90 * time.Second), state: state},
				{id: "bbbbbbbbbbbb", program: []string{"python", "train.py", "\x1b[2J--model", "模型"}, core: 50, used: 5*share.GiB - share.MiB, quota: 5 * share.GiB, compute: p(0), since: noon.Add(-26 * time.Hour), state: state},
				{id: "cccccccccccc", program: []string{"nbody"}, class: share.Offline, quota: 512 * share.MiB, since: noon.Add(-time.Second), failure: "connection refused"},
			},
		},
		{index: 1, uuid: "GPU-b", name: "Tesla T4", total: 15 * share.GiB},
	}}
}

func sampleView(width, height int) view {
	var past []*float64
	for i := range 12 {
		past = append(past, p(float64(i)*9))
	}
	past[3] = nil
	return view{
		frame: sampleFrame(), history: map[string][]*float64{"GPU-a": past, "GPU-b": {nil}}, width: width, height: height,
		selected: row{"GPU-a", "aaaaaaaaaaaa"},
	}
}

func checkGolden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s:\n%s\nwant:\n%s", name, got, want)
	}
}

func TestViewGolden(t *testing.T) {
	for _, width := range []int{40, 64, 80, 120} {
		checkGolden(t, fmt.Sprintf("top-%d", width), sampleView(width, 0).String())
	}
	checkGolden(t, "top-once", plain(sampleFrame()))
	v := sampleView(80, 0)
	v.err = errors.New("list tenants: \x1b]0;no\a")
	checkGolden(t, "top-error", v.String())
}

// TestViewFits checks that no screen is larger than its terminal, and that the selected
// tenant is on it where there is room for a line of the table.
func TestViewFits(t *testing.T) {
	for width := range 130 {
		for height := 1; height < 20; height++ {
			v := sampleView(width, height)
			v.selected.tenant = "cccccccccccc"
			text := v.String()
			rows := strings.Split(text, "\n")
			if len(rows) > height {
				t.Fatalf("%d×%d: %d lines", width, height, len(rows))
			}
			for _, r := range rows {
				if lipgloss.Width(r) > width {
					t.Fatalf("%d×%d: %d columns in %q", width, height, lipgloss.Width(r), r)
				}
			}
			if width >= 16 && height >= 6 && !strings.Contains(text, "\n  cccccccccccc") {
				t.Fatalf("%d×%d: the selected tenant is not in sight:\n%s", width, height, text)
			}
		}
	}
}

func TestTenantCannotSteerTheTerminal(t *testing.T) {
	v := sampleView(120, 0)
	v.selected.tenant = "bbbbbbbbbbbb"
	if text := v.String(); strings.ContainsAny(text, "\x1b\a") {
		t.Errorf("an escape sequence of the tenant's program is in %q", text)
	}
}

// TestColourChangesNoText checks that a terminal without colours loses nothing by that.
func TestColourChangesNoText(t *testing.T) {
	v := sampleView(80, 0)
	text := v.String()
	v.styles = newStyles()
	coloured := v.String()
	if !strings.Contains(coloured, "\x1b[") {
		t.Error("no colours on a terminal that has them")
	}
	if ansi.Strip(coloured) != text {
		t.Errorf("%q, without colours %q", coloured, text)
	}
}

func TestSparkline(t *testing.T) {
	for _, tc := range []struct {
		readings []*float64
		want     string
	}{
		{nil, "    "},
		{[]*float64{p(0), p(100)}, "  ▁█"},
		{[]*float64{p(100), p(100), p(-3), nil, p(50), p(140)}, "▁ ▅█"},
	} {
		if got := sparkline(tc.readings, 4); got != tc.want {
			t.Errorf("%q, want %q", got, tc.want)
		}
	}
}

func TestBar(t *testing.T) {
	for _, tc := range []struct {
		used, allotted, total share.Memory
		want                  string
	}{
		{0, 0, 0, "░░░░"},
		{0, 0, 8, "░░░░"},
		{2, 6, 8, "█▒▒░"},
		{8, 8, 8, "████"},
		{9, 20, 8, "████"},
		{4, 2, 8, "██░░"}, // more in use than allotted, as after a change
	} {
		if got := bar(tc.used, tc.allotted, tc.total, 4); got != tc.want {
			t.Errorf("%d of %d of %d: %q, want %q", tc.used, tc.allotted, tc.total, got, tc.want)
		}
	}
}
