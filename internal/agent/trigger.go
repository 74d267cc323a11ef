package agent

import (
	"context"
	"time"
)

// trigger says that there is something to do. Pulled several times, it goes off once.
type trigger chan struct{}

func newTrigger() trigger { return make(trigger, 1) }

func (t trigger) pull() {
	select {
	case t <- struct{}{}:
	default:
	}
}

// Pauses of keep.
const (
	firstRetry = 200 * time.Millisecond
	lastRetry  = 10 * time.Second
	unasked    = 30 * time.Second // when nothing happens
)

// keep does something whenever it is triggered, and again if it fails, until ctx ends.
func (a *Agent) keep(ctx context.Context, what string, on trigger, do func(context.Context) error) {
	retry := firstRetry
	wait := time.NewTimer(0)
	defer wait.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-on:
		case <-wait.C:
		}
		if err := do(ctx); err != nil {
			if ctx.Err() != nil {
				return
			}
			a.Log.Error("the agent will try again", "what", what, "err", err)
			wait.Reset(retry)
			retry = min(2*retry, lastRetry)
			continue
		}
		retry = firstRetry
		wait.Reset(unasked)
	}
}
