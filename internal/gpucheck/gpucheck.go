// Package gpucheck asks a machine with a card, real or simulated, the questions
// that decide whether what was proved on simulated cards holds on it: do NVIDIA's
// programs run under the mediator, do quotas hold, what does it cost, what
// does the card do with each control of its schedule? It runs the built programs as a user
// would and goes on after every failure. It knows how to judge an answer, not how
// anything is done.
package gpucheck

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"
)

// Config says what to check.
type Config struct {
	Bin       string // folder of the built programs
	Simulated bool   // check a simulated card, which is started for it
	// Progress receives each line as it is known; nil discards them.
	Progress io.Writer
}

// Verdict is the outcome of one line.
type Verdict string

// The verdicts. A line is skipped when the machine lacks what it is about, or when
// what it builds on has failed.
const (
	Pass Verdict = "PASS"
	Fail Verdict = "FAIL"
	Skip Verdict = "SKIP"
)

// Line is one question and its answer.
type Line struct {
	Question string  `json:"question"`
	Verdict  Verdict `json:"verdict"`
	Answer   string  `json:"answer"` // why, in words
	Raw      string  `json:"raw,omitempty"`
}

// Report is all that was found out.
type Report struct {
	Date      time.Time `json:"date"`
	Kernel    string    `json:"kernel"`
	Driver    string    `json:"driver"` // version; empty if it told none
	Simulated bool      `json:"simulated"`
	Cards     []string  `json:"cards"`
	Lines     []Line    `json:"lines"`
	// Controls is what the card does with each control of its schedule, Mechanisms what may
	// be used of them.
	Controls   []Control  `json:"controls"`
	Mechanisms Mechanisms `json:"mechanisms"`
}

// Failed counts the lines that failed.
func (r *Report) Failed() int {
	n := 0
	for _, l := range r.Lines {
		if l.Verdict == Fail {
			n++
		}
	}
	return n
}

// check is a check under way.
type check struct {
	cfg    Config
	site   *site
	report *Report
}

// Run checks the machine. The error is for what keeps the check from beginning;
// what is found wrong is in the report.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	if cfg.Progress == nil {
		cfg.Progress = io.Discard
	}
	s, err := openSite(ctx, cfg.Bin, cfg.Simulated)
	if err != nil {
		return nil, err
	}
	defer s.close()
	c := &check{cfg: cfg, site: s, report: &Report{Date: time.Now().UTC().Truncate(time.Second), Kernel: kernelRelease(), Simulated: cfg.Simulated}}
	if !c.driver(ctx) {
		return c.report, nil // nothing else can be asked
	}
	c.programs(ctx)
	c.quotas(ctx)
	c.neighbours(ctx)
	c.costs(ctx)
	c.slices(ctx)
	c.gates(ctx)
	return c.report, nil
}

// answer adds a line. A nil err passes.
func (c *check) answer(question, answer, raw string, err error) bool {
	l := Line{Question: question, Verdict: Pass, Answer: answer, Raw: abridge(raw)}
	if err != nil {
		l.Verdict, l.Answer = Fail, abridge(err.Error())
	}
	c.add(l)
	return err == nil
}

func (c *check) skip(question, why string) {
	c.add(Line{Question: question, Verdict: Skip, Answer: why})
}

func (c *check) add(l Line) {
	c.report.Lines = append(c.report.Lines, l)
	fmt.Fprintf(c.cfg.Progress, "%s  %s: %s\n", l.Verdict, l.Question, l.Answer)
}

// abridge makes one line of moderate length of a program's output.
func abridge(s string) string {
	const most = 400
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most/2]+" … "+s[len(s)-most/2:], "")
	}
	return s
}

// Write prints the report as a table.
func (r *Report) Write(w io.Writer) error {
	driver := r.Driver
	if r.Simulated {
		driver += ", SIMULATED: says nothing about a real card"
	}
	fmt.Fprintf(w, "date    %s\nkernel  %s\ndriver  %s\n", r.Date.Format(time.RFC3339), r.Kernel, driver)
	for _, card := range r.Cards {
		fmt.Fprintf(w, "card    %s\n", card)
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, l := range r.Lines {
		fmt.Fprintf(t, "%s\t%s\t%s\n", l.Verdict, l.Question, l.Answer)
		if l.Verdict == Fail && l.Raw != "" {
			fmt.Fprintf(t, "\t\traw: %s\n", l.Raw)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if err := r.writeControls(w); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%d of %d lines failed\n", r.Failed(), len(r.Lines))
	return err
}

// WriteFile stores the report as JSON.
func (r *Report) WriteFile(path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
