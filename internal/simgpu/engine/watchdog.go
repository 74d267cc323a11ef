package engine

import (
	"fmt"
	"log/slog"
)

const (
	watchEach  = 1_000_000_000 // ns of card time between two looks at stalled channels
	stuckAfter = 5_000_000_000 // ns of card time
	// burst is how many lines may be logged between two looks, so that a client cannot
	// flood the log.
	burst = 16
)

// watchdog names what would otherwise be a silent hang: methods that are not known,
// and channels that wait too long.
type watchdog struct {
	log     *slog.Logger
	methods map[unknownMethod]struct{} // that were logged
	next    uint64                     // card time of the next look
	lines   int                        // logged since the last look
}

type unknownMethod struct {
	class   string
	address uint32
}

func newWatchdog(log *slog.Logger) watchdog {
	return watchdog{log: log, methods: make(map[unknownMethod]struct{})}
}

// unknown names each unknown method once.
func (e *Engine) unknown(class string, address, value uint32) {
	m := unknownMethod{class, address}
	if _, told := e.watch.methods[m]; told || len(e.watch.methods) >= maxSeen || !e.watch.may() {
		return
	}
	e.watch.methods[m] = struct{}{}
	e.log.Warn("a pushbuffer has an unknown method, which is ignored", "class", class,
		"method", fmt.Sprintf("%#04x", address), "value", fmt.Sprintf("%#x", value))
}

// check names the channels that have waited for a semaphore for too long, each wait
// once.
func (w *watchdog) check(e *Engine) {
	now := e.runlist.Now()
	if now < w.next {
		return
	}
	w.next = now + watchEach
	if w.lines > burst {
		w.log.Warn("more was logged about this card than is shown", "lines", w.lines-burst)
	}
	w.lines = 0
	for _, c := range e.stalled {
		if c.wait == nil || c.waitTold || now-c.waitSince < stuckAfter {
			continue
		}
		c.waitTold = true
		if !w.may() {
			continue
		}
		found, err := c.wait.found(c.space)
		w.log.Warn("a channel is stuck on a semaphore", "channel", c.token, "seconds", (now-c.waitSince)/1e9,
			"address", fmt.Sprintf("%#x", c.wait.addr), "expected", fmt.Sprintf("%v %#x", c.wait.cond, c.wait.payload),
			"found", fmt.Sprintf("%#x", found), "error", err)
	}
}

// may tells whether another line may be logged, and counts it.
func (w *watchdog) may() bool {
	w.lines++
	return w.lines <= burst
}

// faulted names a channel that stopped.
func (w *watchdog) faulted(c *Channel) {
	if w.may() {
		w.log.Warn("a channel faulted and stops", "channel", c.token, "entry", c.position, "error", c.fault)
	}
}

func panicError(p any) error {
	if err, ok := p.(error); ok {
		return fmt.Errorf("executing the pushbuffer: %w", err)
	}
	return fmt.Errorf("executing the pushbuffer: %v", p)
}
