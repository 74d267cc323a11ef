package gpucheck

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// The time slices that are tried, in µs, and the shares that count as proof.
const (
	shortSlice = 1000
	longSlice  = 4000
	leastRatio = 2.0 // of 4, since slices end between kernels
	unchanged  = 1.6 // by less than this a ratio differs for other reasons than slices
)

// progress is what cudaload loop prints.
type progress struct {
	Launches int
	Elapsed  int64 `json:"elapsed_ns"`
}

// slices runs two tenants that are always busy and changes their time slices from
// outside, as root on duplicates of their descriptors.
func (c *check) slices(ctx context.Context) {
	const question, changed = "time slices of two busy tenants", "slices of 1 : 4 change shares"
	busy, err := c.busy(ctx, 2)
	defer stopAll(busy)
	if err != nil {
		c.answer(question, "", "", err)
		return
	}
	before, err := measureShares(busy)
	c.answer("equal slices give equal shares", fmt.Sprintf("1 : %.2f of launches", before), "", errors.Join(err, within(before, 0.5, 2)))

	c.unprivileged(ctx, busy[0])
	if !c.setSlices(ctx, busy) {
		c.skip(changed, "they could not be set")
		return
	}
	inert, err := measureShares(busy)
	c.report.effect(setName, asRoot, ratioWords(inert, before, err))
	c.answer("slices of 1 : 4 before a restart", ratioWords(inert, before, err), "", err)
	if !c.restartAll(ctx, busy) {
		c.skip(changed, "the runlist could not be restarted")
		return
	}
	after, err := measureShares(busy)
	c.report.effect(restartName, asRoot, ratioWords(after, before, err))
	if err == nil && after < leastRatio {
		err = fmt.Errorf("1 : %.2f of launches, was 1 : %.2f", after, before)
	}
	c.report.Mechanisms.Slices = c.answer(changed, fmt.Sprintf("1 : %.2f of launches, was 1 : %.2f", after, before), "", err)
}

// Names of controls as in the table.
const (
	setName     = "SET_TIMESLICE"
	restartName = "RESTART_RUNLIST"
	disableName = "DISABLE_CHANNELS"
	evictName   = "DISABLE_CHANNELS and RESTART_RUNLIST"
	enableName  = "DISABLE_CHANNELS (off) and RESTART_RUNLIST"
)

func ratioWords(now, before float64, err error) string {
	switch {
	case err != nil:
		return err.Error()
	case now < before*unchanged && now > before/unchanged:
		return fmt.Sprintf("none: 1 : %.2f of launches, was 1 : %.2f", now, before)
	}
	return fmt.Sprintf("1 : %.2f of launches, was 1 : %.2f", now, before)
}

// effect sets the effect of a row.
func (r *Report) effect(name, caller, effect string) {
	for i := range r.Controls {
		if row := &r.Controls[i]; row.Name == name && row.Caller == caller {
			row.Effect = effect
		}
	}
}

// busy starts n tenants that are always busy, with further arguments of cudaload loop.
func (c *check) busy(ctx context.Context, n int, args ...string) (list []*background, err error) {
	for range n {
		program := append([]string{c.site.program("cudaload"), "loop", "--for", "2m"}, args...)
		b, err := start(c.site.tenant(ctx, "2Gi", program...))
		if err != nil {
			return list, err
		}
		list = append(list, b)
		if _, err := next[progress](b); err != nil {
			return list, err
		}
	}
	return list, nil
}

func stopAll(list []*background) {
	for _, b := range list {
		b.stop()
	}
}

func within(v, low, high float64) error {
	if v < low || v > high {
		return fmt.Errorf("1 : %.2f of launches", v)
	}
	return nil
}

// unprivileged tries what a program without capabilities may do with the tenant's file. It
// should not be able to restart a runlist, which would hold up everybody.
func (c *check) unprivileged(ctx context.Context, b *background) {
	pid := b.cmd.Process.Pid
	set, _, err := c.act(ctx, Deed{PID: pid, Timeslice: shortSlice, User: nobody})
	c.control(setName, asUser, set.Set, err, "not measured")
	done, raw, err := c.act(ctx, Deed{PID: pid, Restart: true, User: nobody})
	c.control(restartName, asUser, done.Restart, err, "not measured")
	if err == nil && firstRefusal(done.Restart) == nil {
		err = errors.New("the driver restarts a runlist for a caller without CAP_SYS_NICE")
	}
	c.answer("RESTART_RUNLIST is refused without CAP_SYS_NICE", answerOf(done.Restart, nil), raw, err)
}

// setSlices stores the slices of the tenants' channel groups, 1 : 4.
func (c *check) setSlices(ctx context.Context, busy []*background) bool {
	all := true
	for i, us := range []uint64{shortSlice, longSlice} {
		done, raw, err := c.act(ctx, Deed{PID: busy[i].cmd.Process.Pid, Timeslice: us})
		if i == 0 {
			c.control(setName, asRoot, done.Set, err, "not measured")
		}
		if err == nil {
			err = firstRefusal(done.Set)
		}
		all = c.answer(fmt.Sprintf("SET_TIMESLICE by root on a tenant's descriptor, %d µs", us),
			fmt.Sprintf("accepted, %d times", len(done.Set)), raw, err) && all
	}
	return all
}

// restartAll restarts the tenants' runlists.
func (c *check) restartAll(ctx context.Context, busy []*background) bool {
	all := true
	for i, b := range busy {
		done, raw, err := c.act(ctx, Deed{PID: b.cmd.Process.Pid, Restart: true})
		if i == 0 {
			c.control(restartName, asRoot, done.Restart, err, "not measured")
		}
		if err == nil {
			err = firstRefusal(done.Restart)
		}
		all = c.answer(fmt.Sprintf("RESTART_RUNLIST by root on tenant %d's descriptor", i+1),
			fmt.Sprintf("accepted, %d times", len(done.Restart)), raw, err) && all
	}
	return all
}

// measureShares is how many launches the second program gets for one of the first
// while both are busy, by the counts of the programs themselves.
func measureShares(busy []*background) (float64, error) {
	const settle, window = time.Second, 5 * time.Second
	time.Sleep(settle)
	from, err := latest(busy)
	if err != nil {
		return 0, err
	}
	time.Sleep(window)
	to, err := latest(busy)
	if err != nil {
		return 0, err
	}
	var rates [2]float64
	for i := range rates {
		rates[i] = float64(to[i].Launches-from[i].Launches) / float64(to[i].Elapsed-from[i].Elapsed)
	}
	if rates[0] <= 0 {
		return 0, errors.New("the first tenant launches nothing")
	}
	return rates[1] / rates[0], nil
}

// latest is the last count of each program.
func latest(busy []*background) (all [2]progress, err error) {
	for i, b := range busy {
		if all[i], err = next[progress](b); err != nil {
			return all, err
		}
		for len(b.lines) > 0 {
			if all[i], err = next[progress](b); err != nil {
				return all, err
			}
		}
	}
	return all, nil
}
