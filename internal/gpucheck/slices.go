package gpucheck

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// The time slices that are tried, in µs, and the shares that count as proof.
const (
	shortSlice = 1000
	longSlice  = 4000
	leastRatio = 2.0 // of 4, since slices end between kernels
)

// progress is what cudaload loop prints.
type progress struct {
	Launches int
	Elapsed  int64 `json:"elapsed_ns"`
}

// slices runs two tenants that are always busy and changes their time slices from
// outside, as root on duplicates of their descriptors.
func (c *check) slices(ctx context.Context) {
	const question = "time slices of two busy tenants"
	var busy []*background
	defer func() {
		for _, b := range busy {
			b.stop()
		}
	}()
	for range 2 {
		b, err := start(c.site.tenant(ctx, "2Gi", c.site.program("cudaload"), "loop", "--for", "2m"))
		if err != nil {
			c.answer(question, "", "", err)
			return
		}
		busy = append(busy, b)
		if _, err := next[progress](b); err != nil {
			c.answer(question, "", "", err)
			return
		}
	}
	before, err := measureShares(busy)
	c.answer("equal slices give equal shares", fmt.Sprintf("1 : %.2f of launches", before), "", errors.Join(err, within(before, 0.5, 2)))
	if !c.setSlices(ctx, busy, []int{shortSlice, longSlice}) {
		c.skip("slices of 1 : 4 change shares", "they could not be set")
		return
	}
	after, err := measureShares(busy)
	if err == nil && after < leastRatio {
		err = fmt.Errorf("1 : %.2f of launches, was 1 : %.2f", after, before)
	}
	c.answer("slices of 1 : 4 change shares", fmt.Sprintf("1 : %.2f of launches, was 1 : %.2f", after, before), "", err)
}

func within(v, low, high float64) error {
	if v < low || v > high {
		return fmt.Errorf("1 : %.2f of launches", v)
	}
	return nil
}

// setSlices sets the slices of the tenants' channel groups and restarts their
// runlists, each with a line.
func (c *check) setSlices(ctx context.Context, busy []*background, us []int) bool {
	all := true
	for i, b := range busy {
		done, raw, err := ask[Action](ctx, c.site, c.site.client(ctx, c.site.self, "act",
			"--pid", strconv.Itoa(b.cmd.Process.Pid), "--timeslice", strconv.Itoa(us[i])))
		if err == nil && done.Error != "" {
			err = errors.New(done.Error)
		}
		for _, step := range []struct {
			name     string
			statuses []uint32
		}{{"SET_TIMESLICE", done.Set}, {"RESTART_RUNLIST", done.Restart}} {
			stepErr := err
			if stepErr == nil {
				stepErr = firstRefusal(step.statuses)
			}
			all = c.answer(fmt.Sprintf("%s by root on a tenant's descriptor, %d µs", step.name, us[i]),
				fmt.Sprintf("accepted, %d times", len(step.statuses)), raw, stepErr) && all
		}
	}
	return all
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
