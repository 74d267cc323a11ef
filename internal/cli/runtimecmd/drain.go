package runtimecmd

import (
	"context"
	"fmt"
	"log/slog"
	"time"
)

// counter tells what a driver counts of a tenant's memory, by card in bytes.
type counter interface {
	Counted() ([]uint64, error)
}

// How often drain asks the driver: rarely after a while, since it may take as long as
// another tenant likes.
const (
	drainFirst = time.Millisecond
	drainLast  = time.Second
)

// drain returns when the driver counts no memory of the tenant any more. It is called
// after the tenant's last process has ended: what those held is back a moment later,
// unless they passed their control files to a process of somebody else. The memory
// then stays taken, and so must the tenant's place.
func drain(ctx context.Context, c counter, log *slog.Logger) error {
	for wait := drainFirst; ; wait = min(2*wait, drainLast) {
		counted, err := c.Counted()
		if err != nil {
			return fmt.Errorf("wait for the tenant's memory: %w", err)
		}
		var sum uint64
		for _, n := range counted {
			sum += n
		}
		if sum == 0 {
			return nil
		}
		if wait < drainLast && 2*wait >= drainLast {
			log.Warn("the tenant has ended, but somebody keeps its memory by files that it passed on", "bytes", sum)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(wait):
		}
	}
}
