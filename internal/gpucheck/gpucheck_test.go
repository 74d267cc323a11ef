package gpucheck

import (
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/qgpu-project/qgpu/internal/isolation"
)

func TestJudge(t *testing.T) {
	good := isolation.Trial{Path: "p", Within: true, Over: true, Taken: quotaMiB * mib}
	changed := func(change func(*isolation.Trial)) []isolation.Trial {
		t := good
		change(&t)
		return []isolation.Trial{t}
	}
	for _, c := range []struct {
		name   string
		trials []isolation.Trial
		want   string // part of the error
	}{
		{"good", []isolation.Trial{good}, ""},
		{"none", nil, "0 trials"},
		{"failed", changed(func(t *isolation.Trial) { t.Error = "CUDA_ERROR_UNKNOWN" }), "CUDA_ERROR_UNKNOWN"},
		{"does not work", changed(func(t *isolation.Trial) { t.Within = false }), "within"},
		{"not refused", changed(func(t *isolation.Trial) { t.Over = false }), "not refused"},
		{"a byte too much", changed(func(t *isolation.Trial) { t.Taken++ }), "of a quota"},
		{"leaked", changed(func(t *isolation.Trial) { t.Leaked = 4096 }), "4096 bytes"},
		{"more came back than was taken", changed(func(t *isolation.Trial) { t.Leaked = -4096 }), "-4096 bytes"},
	} {
		err := judge(c.trials)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

func TestFirstRefusal(t *testing.T) {
	for _, c := range []struct {
		statuses []uint32
		want     string
	}{
		{[]uint32{0, 0}, ""},
		{nil, "nothing to try"},
		{[]uint32{0, 0x1b, 0x40}, "0x1b"},
	} {
		err := firstRefusal(c.statuses)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.statuses, err, c.want)
		}
	}
}

func TestReportSaysWhatFailed(t *testing.T) {
	var progress strings.Builder
	c := &check{cfg: Config{Progress: &progress}, report: &Report{Driver: "535.309.01", Simulated: true, Cards: []string{"0: Tesla T4"}}}
	c.answer("works", "3 MiB", "raw of what works", nil)
	c.answer("fails", "unused", "status\n 0x1b", errors.New("refused"))
	c.skip("missing", "PyTorch is not installed")
	if c.report.Failed() != 1 {
		t.Errorf("%d lines failed", c.report.Failed())
	}
	var table strings.Builder
	if err := c.report.Write(&table); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"SIMULATED: says nothing about a real card", "PASS  works", "3 MiB", "FAIL  fails", "refused", "raw: status 0x1b",
		"SKIP  missing", "PyTorch is not installed", "1 of 3 lines failed",
	} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("the table does not say %q:\n%s", want, table.String())
		}
	}
	if strings.Contains(table.String(), "raw of what works") {
		t.Error("the table shows raw output of a line that passed")
	}
	if got := strings.Count(progress.String(), "\n"); got != 3 {
		t.Errorf("progress has %d lines", got)
	}
}

func TestAbridge(t *testing.T) {
	if got := abridge("a\n  b\t"); got != "a b" {
		t.Errorf("%q", got)
	}
	if got := abridge(strings.Repeat("x", 10_000)); len(got) > 410 || !strings.Contains(got, "…") {
		t.Errorf("%d bytes", len(got))
	}
}

func TestControlsAreOneTable(t *testing.T) {
	r := &Report{Mechanisms: Mechanisms{Slices: true}}
	c := &check{report: r}
	c.control(setName, asRoot, []uint32{0, 0}, nil, "not measured")
	c.control(restartName, asUser, []uint32{0x1b}, nil, "not measured")
	c.control(disableName, asOther, nil, errors.New("no such process"), "none")
	r.effect(setName, asRoot, "1 : 3.9")
	var table strings.Builder
	if err := r.Write(&table); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`SET_TIMESLICE +root, on the tenant's file +accepted +1 : 3.9`,
		`RESTART_RUNLIST +user without capabilities.* +the driver answers NV_STATUS 0x1b +not measured`,
		`DISABLE_CHANNELS +root, by a client of its own +no such process +none`,
		`verdict: time slices may be used, gates may not be used`,
	} {
		if !regexp.MustCompile(want).MatchString(table.String()) {
			t.Errorf("no %q in\n%s", want, table.String())
		}
	}
}

func TestRatioWords(t *testing.T) {
	for want, c := range map[string][2]float64{"none": {1.2, 1}, "1 : 3.00": {3, 1}, "1 : 0.20": {0.2, 1}} {
		if got := ratioWords(c[0], c[1], nil); !strings.HasPrefix(got, want) {
			t.Errorf("%v: %q, want %q", c, got, want)
		}
	}
}

// TestCounts has a program that goes on, pauses and ends.
func TestCounts(t *testing.T) {
	b := &background{lines: make(chan string, 8)}
	b.lines <- `{"launches":10}`
	b.drain()
	if n := b.counts(0); n != 0 {
		t.Errorf("%d launches of a program that says nothing", n)
	}
	b.lines <- `{"launches":12}`
	b.lines <- `noise`
	b.lines <- `{"launches":17}`
	close(b.lines)
	if n := b.counts(time.Minute); n != 7 {
		t.Errorf("%d launches, want 7", n)
	}
}

func TestRecord(t *testing.T) {
	dir := t.TempDir()
	if r, err := Recorded(dir); r != nil || err != nil {
		t.Errorf("a record out of nothing: %+v, %v", r, err)
	}
	r := &Report{Driver: "535.1", Mechanisms: Mechanisms{Gates: true}}
	if err := r.Record(dir); err != nil {
		t.Fatal(err)
	}
	got, err := Recorded(dir)
	if err != nil || got.Driver != r.Driver || got.Mechanisms != r.Mechanisms {
		t.Errorf("recorded %+v, %v", got, err)
	}
}
