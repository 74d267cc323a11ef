package engine

import (
	"time"
)

type Engine struct{}

func New(cfg Config) *Engine { return &Engine{} }
func (e *Engine) Close()     {}

// NewGroup makes a channel group whose work is accounted to owner.
func (e *Engine) NewGroup(owner Owner) *Group                        { return &Group{} }
func (e *Engine) NewChannel(cfg ChannelConfig) (*Channel, error)     { return &Channel{}, nil }
func (e *Engine) Kick()                                              {}
func (e *Engine) Now() uint64                                        { return 0 }
func (e *Engine) Utilization(window time.Duration) Utilization       { return Utilization{} }
func (e *Engine) Samples() []Sample                                  { return nil }
func (e *Engine) RestartRunlist() error                              { return nil }
func (e *Engine) DisableChannels(disable bool, channels ...*Channel) {}
func (e *Engine) SetDuration(code uint32, d time.Duration)           {}

// Group is a channel group (TSG).
type Group struct{}

func (g *Group) SetTimeslice(us uint64) {}
func (g *Group) Timeslice() uint64      { return 0 }
func (g *Group) Preempt()               {}
func (g *Group) Close()                 {}

// Channel is a GPFIFO channel.
type Channel struct{}

func (c *Channel) Token() uint32 { return 0 }
func (c *Channel) Enable(bool)   {}
func (c *Channel) Close()        {}
