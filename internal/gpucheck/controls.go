package gpucheck

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
)

// Control is what a card does with one control of its schedule.
type Control struct {
	Name   string `json:"control"`
	Caller string `json:"caller"`
	Answer string `json:"answer"` // the driver's
	Effect string `json:"effect"` // on the tenant
}

// Mechanisms says by which means a card's compute may be shared. What was not found out is
// not to be used.
type Mechanisms struct {
	Slices bool `json:"slices"` // time slices, set from outside
	Gates  bool `json:"gates"`  // channels shut off from outside
}

// String says it in words.
func (m Mechanisms) String() string {
	word := func(yes bool) string {
		if yes {
			return "may be used"
		}
		return "may not be used"
	}
	return fmt.Sprintf("time slices %s, gates %s", word(m.Slices), word(m.Gates))
}

// Callers of controls.
const (
	asRoot   = "root, on the tenant's file"
	asUser   = "user without capabilities, on the tenant's file"
	asOther  = "root, by a client of its own"
	asNobody = "user without capabilities, by a client of its own"

	nobody = 65534
)

// act has a deed done by a process of its own.
func (c *check) act(ctx context.Context, d Deed) (Action, string, error) {
	args := []string{c.site.self, "act", "--pid", strconv.Itoa(d.PID), "--timeslice", strconv.FormatUint(d.Timeslice, 10),
		"--gate=" + string(d.Gate), "--user", strconv.Itoa(d.User)}
	if d.Restart {
		args = append(args, "--restart")
	}
	done, raw, err := ask[Action](ctx, c.site, c.site.client(ctx, args...))
	if err == nil && done.Error != "" {
		err = errors.New(done.Error)
	}
	return done, raw, err
}

// control adds a row to the table of controls.
func (c *check) control(name, caller string, statuses []uint32, err error, effect string) {
	c.report.Controls = append(c.report.Controls, Control{name, caller, answerOf(statuses, err), effect})
}

// answerOf is what the driver answered, in words.
func answerOf(statuses []uint32, err error) string {
	if err == nil {
		err = firstRefusal(statuses)
	}
	if err != nil {
		return err.Error()
	}
	return "accepted"
}

func firstRefusal(statuses []uint32) error {
	if len(statuses) == 0 {
		return errors.New("there was nothing to try it on")
	}
	for _, s := range statuses {
		if s != 0 {
			return fmt.Errorf("the driver answers NV_STATUS %#x", s)
		}
	}
	return nil
}

// writeControls prints the table of controls, and the verdict.
func (r *Report) writeControls(w io.Writer) error {
	if len(r.Controls) == 0 {
		return nil
	}
	fmt.Fprintln(w, "\nwhat this card does with each control")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "CONTROL\tCALLER\tANSWER\tEFFECT")
	for _, c := range r.Controls {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", c.Name, c.Caller, c.Answer, c.Effect)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\nverdict: %s\n", r.Mechanisms)
	return err
}
