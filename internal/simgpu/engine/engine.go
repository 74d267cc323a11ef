// Package engine is the part of a simulated card that runs: it reads the channels'
// pushbuffers, moves data, releases semaphores and raises interrupts, all on a clock
// of the card's own. It owns channels, channel groups and the card's time. It knows
// nothing of RM handles, of processes or of how memory came to be mapped.
package engine

import (
	"errors"
	"log/slog"
	"time"

	"github.com/qgpu-project/qgpu/internal/simgpu/gpumem"
)

// ErrInvalidState is what a card answers now and then to a restart of its runlist, as
// real ones do; the caller tries again.
var ErrInvalidState = errors.New("the runlist cannot be restarted in its present state; try again")

// Owner identifies the process that work is accounted to. It must be comparable.
type Owner any

// Config says what card an engine is.
type Config struct {
	Chip Chip
	Log  *slog.Logger // nil discards
	Seed uint64       // of the card's occasional refusals
	// RestartFailures is how many of 1000 runlist restarts are refused with
	// ErrInvalidState.
	RestartFailures int
}

// ChannelConfig describes a channel as its creator allocates it.
type ChannelConfig struct {
	Group   *Group
	Space   *gpumem.Space
	GPFIFO  uint64 // GPU address of the ring of 8-byte entries
	Entries uint32 // of the ring
	// USERD is the 512 bytes through which a client submits: GP_PUT at 0x8c, GP_GET at
	// 0x88. Release, if not nil, is called once nothing uses USERD any more.
	USERD   []byte
	Release func()
	// Copy says that the channel's work runs on a copy engine, beside graphics and compute.
	Copy bool
	// Interrupt is called, never concurrently for one channel, when the channel raises an
	// interrupt that clients wait for. It must not block or call back into the engine. May be nil.
	Interrupt func()
	// Fault is called once, under the rules of Interrupt, when the channel stops for good. May be nil.
	Fault func(error)
}

// Utilization is what a card did in the last Window of its own time.
type Utilization struct {
	Window  time.Duration
	Busy    time.Duration           // of the graphics and compute engine
	ByOwner map[Owner]time.Duration // adds up to Busy
}

// Sample is the share of one sampling period that the graphics and compute engine was
// busy, in total and per owner.
type Sample struct {
	End     uint64        // of the period, on the card's clock, in ns
	Period  time.Duration // its length
	Busy    time.Duration
	ByOwner map[Owner]time.Duration
}
