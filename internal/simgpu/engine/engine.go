// Package engine is the part of a simulated card that runs: it reads the channels'
// pushbuffers, moves data, releases semaphores and raises interrupts, all on a clock
// of the card's own. It owns channels, channel groups and the card's time. It knows
// nothing of RM handles, of processes or of how memory came to be mapped.
//
// The card's clock follows the host's while the card is idle. While it works, things
// end when the host's clock has come as far as the card's: a kernel of 20 ms takes
// 20 ms. A host that is late delays the card, but never lets it skip anything: the
// card's clock stands still until what is due has been done. So shares and accounts,
// which are kept on the card's clock, do not depend on the speed of the host.
//
// A channel executes its pushbuffer strictly in order: what follows a kernel or a copy
// waits for its end. Real cards overlap more; clients cannot tell but by time.
package engine

import (
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/qgpu-project/qgpu/internal/simgpu/engine/runlist"
	"github.com/qgpu-project/qgpu/internal/simgpu/gpumem"
)

// ErrInvalidState is what a card answers now and then to a restart of its runlist, as
// real ones do; the caller tries again.
var ErrInvalidState = errors.New("the runlist cannot be restarted in its present state; try again")

// Owner identifies the process that work is accounted to. It must be comparable.
type Owner any

// Config says what card an engine is.
type Config struct {
	Chip Chip         // what it leaves open is as in TeslaT4
	Log  *slog.Logger // nil discards
	// RestartFailures is how many of 1000 restarts of the runlist fail with
	// ErrInvalidState; Seed decides which.
	RestartFailures int
	Seed            uint64
}

// ChannelConfig describes a channel as its creator allocates it.
type ChannelConfig struct {
	Group   *Group
	Space   *gpumem.Space
	GPFIFO  uint64 // GPU address of the ring of 8-byte entries
	Entries uint32 // of the ring
	// USERD is the 512 bytes through which a client submits: GP_PUT at 0x8c, GP_GET at
	// 0x88. Release, if not nil, is called once, when nothing uses USERD any more.
	USERD   []byte
	Release func()
	// Interrupt is called when the channel raises the interrupt that clients wait for,
	// Fault once when it stops for good. Both are called without locks, one after the
	// other on one goroutine of the engine, and must not block; either may be nil.
	Interrupt func()
	Fault     func(error)
}

// Utilization is what a card did in the last Window of its own time.
type Utilization struct {
	Window  time.Duration
	Busy    time.Duration           // of the graphics and compute engine
	ByOwner map[Owner]time.Duration // adds up to Busy
}

// Sample is the time in one sampling period that the graphics and compute engine was
// busy, in total and per owner.
type Sample struct {
	End     uint64        // of the period, on the card's clock, in ns
	Period  time.Duration // its length
	Busy    time.Duration
	ByOwner map[Owner]time.Duration
}

// Engine is a running card.
type Engine struct {
	chip     Chip
	builtins map[uint32]builtin // libcuda's own kernels, by code hash
	log      *slog.Logger
	failures int
	bell     *bell
	done     chan struct{} // closed when the loop has ended

	mu        sync.Mutex // guards all that follows
	closed    bool
	random    *rand.Rand
	runlist   *runlist.Runlist
	copies    *runlist.Pool
	clock     clock
	meter     *meter
	watch     watchdog
	channels  []*Channel
	tokens    uint32
	durations map[uint32]uint64   // ns, by code hash
	seen      map[uint32]struct{} // code hashes that were logged

	ready   []*Channel    // can execute something
	movers  []*Channel    // have data to move
	stalled []*Channel    // wait for a semaphore, or did until lately
	touched *gpumem.Space // where the channel that executes has released something
	raised  []*Channel    // have interrupts to deliver
	faults  []*Channel    // have a fault to report
	scratch []byte        // for moving data
	poll    poll
}

// maxSeen bounds the kernels and the methods that are remembered as logged.
const maxSeen = 4096

// New starts a card.
func New(cfg Config) *Engine {
	e := newEngine(cfg, realtime())
	e.bell = newBell(e.log)
	e.done = make(chan struct{})
	go e.loop()
	return e
}

// newEngine makes a card that runs only when it is told to.
func newEngine(cfg Config, k clock) *Engine {
	chip := cfg.Chip.orElse(TeslaT4())
	log := cfg.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	e := &Engine{
		chip:      chip,
		builtins:  builtins,
		log:       log.With("chip", chip.Name),
		failures:  cfg.RestartFailures,
		random:    rand.New(rand.NewPCG(cfg.Seed, 0x5eed)),
		copies:    runlist.NewPool(chip.CopyEngines),
		clock:     k,
		durations: make(map[uint32]uint64),
		seen:      make(map[uint32]struct{}),
		scratch:   make([]byte, chunk),
	}
	now := k.target()
	e.meter = newMeter(now)
	e.watch = newWatchdog(e.log)
	costs := runlist.Costs{Switch: uint64(chip.SwitchTime), Preempt: uint64(chip.PreemptTime)}
	e.runlist = runlist.New(now, costs, func(g *runlist.Group, from, to uint64) {
		e.meter.add(g.Tag.(*Group).owner, from, to)
	})
	return e
}

// Close stops the card and all its channels.
func (e *Engine) Close() {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return
	}
	e.closed = true
	e.mu.Unlock()
	if e.bell != nil {
		e.bell.ring()
		<-e.done
		e.bell.close()
	}
	e.mu.Lock()
	var releases []func()
	for len(e.channels) > 0 {
		if release := e.channels[0].close(); release != nil {
			releases = append(releases, release)
		}
	}
	e.mu.Unlock()
	for _, release := range releases {
		release()
	}
}

// Kick says that something may have been submitted: the card looks now.
func (e *Engine) Kick() {
	if e.bell != nil {
		e.bell.ring()
	}
}

// Now is the card's clock (PTIMER), in ns since 1970. It never goes back.
func (e *Engine) Now() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.idleUntilNow()
	return e.present()
}

// present is the card's time now: not beyond anything that is due and not done.
func (e *Engine) present() uint64 {
	return max(e.runlist.Now(), min(e.limit(), e.runlist.Next(), e.copies.Next()))
}

// idleUntilNow brings a card that has nothing to do up to date.
func (e *Engine) idleUntilNow() {
	if e.runlist.Next() == runlist.Never && e.copies.Next() == runlist.Never {
		e.runlist.Step(e.clock.target())
	}
}

// SetDuration makes every kernel whose code has the given hash take time d, whatever
// its grid; 0 gives it back to the model.
func (e *Engine) SetDuration(code uint32, d time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if d <= 0 {
		delete(e.durations, code)
		return
	}
	e.durations[code] = min(uint64(d), maxTime)
}
