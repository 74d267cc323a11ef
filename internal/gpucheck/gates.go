package gpucheck

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Times of the gate's trial. Kernels are so long that one is running whenever the gate shuts.
const (
	longKernel = "300ms"
	gateSettle = time.Second     // for what was launched already and is let run to its end
	gateWatch  = 3 * time.Second // far longer than a kernel
)

// gates shuts a busy tenant of long kernels off the card from outside, and lets it on again.
func (c *check) gates(ctx context.Context) {
	const stops, goes = "shut channels stop a busy tenant", "channels let on again go on where they were"
	busy, err := c.busy(ctx, 1, "--kernel", longKernel, "--every", "1ms")
	defer stopAll(busy)
	if err != nil {
		c.answer(stops, "", "", err)
		return
	}
	b := busy[0]
	pid := b.cmd.Process.Pid
	if b.counts(gateWatch) == 0 {
		c.answer(stops, "", "", errors.New("the tenant completes no kernel"))
		return
	}
	alone, raw, err := c.act(ctx, Deed{PID: pid, Gate: Shut})
	if refusal := errors.Join(err, firstRefusal(alone.Gated)); refusal != nil {
		c.control(disableName, asOther, alone.Gated, err, "none")
		c.answer(stops, "", raw, refusal)
		return
	}
	b.drain()
	without := b.counts(gateWatch)
	c.control(disableName, asOther, alone.Gated, nil, launches("without a restart", without))
	evict, raw, early, err := c.evict(ctx, b)
	stopped := b.counts(gateWatch)
	effect := launches("shut", stopped)
	switch {
	case stopped > 0:
	case early == 0:
		effect = "the tenant stops; its running kernel is interrupted"
	default:
		effect = "the tenant stops; its running kernel runs to its end"
	}
	c.control(evictName, asOther, append(evict.Gated, evict.Restart...), err, effect)
	if err = errors.Join(err, firstRefusal(append(evict.Gated, evict.Restart...))); err == nil && stopped > 0 {
		err = errors.New(effect)
	}
	shut := c.answer(stops, effect, raw, err)
	c.foreign(ctx, pid)
	open, raw, err := c.act(ctx, Deed{PID: pid, Gate: Open, Restart: true})
	b.drain()
	again := b.counts(gateWatch)
	c.control(enableName, asOther, append(open.Gated, open.Restart...), err, launches("let on again", again))
	if err = errors.Join(err, firstRefusal(append(open.Gated, open.Restart...))); err == nil && again == 0 {
		err = errors.New("the tenant does not go on")
	}
	c.report.Mechanisms.Gates = c.answer(goes, launches("let on again", again), raw, err) && shut
}

// evict shuts the tenant off, some times over, and tells how many kernels were completed
// right after that in all.
func (c *check) evict(ctx context.Context, b *background) (a Action, raw string, early int, err error) {
	const times = 3
	pid := b.cmd.Process.Pid
	for i := range times {
		if a, raw, err = c.act(ctx, Deed{PID: pid, Gate: Shut, Restart: true}); err != nil {
			break
		}
		b.drain()
		early += b.counts(gateSettle)
		if i == times-1 {
			break
		}
		if _, raw, err = c.act(ctx, Deed{PID: pid, Gate: Open, Restart: true}); err != nil {
			break
		}
	}
	return a, raw, early, err
}

// foreign tries whether any program may name another's channels, which is why none reaches
// this control but through a mediator.
func (c *check) foreign(ctx context.Context, pid int) {
	done, _, err := c.act(ctx, Deed{PID: pid, Gate: Shut, User: nobody})
	effect := "none"
	if err == nil && firstRefusal(done.Gated) == nil {
		effect = "any program without a mediator can shut others off"
	}
	c.control(disableName, asNobody, done.Gated, err, effect)
}

func launches(when string, n int) string {
	return fmt.Sprintf("%s: %d kernels in %v", when, n, gateWatch)
}

// drain forgets what the program has told so far.
func (b *background) drain() {
	for len(b.lines) > 0 {
		var p progress
		if decode(<-b.lines, &p) == nil {
			b.launches = p.Launches
		}
	}
}

// counts is how many launches the program completes within d. Unlike next it does not mind a
// program that says nothing.
func (b *background) counts(d time.Duration) int {
	before := b.launches
	for until := time.After(d); ; {
		select {
		case line, ok := <-b.lines:
			var p progress
			if !ok {
				return b.launches - before
			}
			if decode(line, &p) == nil {
				b.launches = p.Launches
			}
		case <-until:
			return b.launches - before
		}
	}
}
