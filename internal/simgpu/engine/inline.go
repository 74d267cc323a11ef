package engine

import (
	"encoding/binary"
	"fmt"
)

// Inline-to-memory methods, of the compute classes and of a class of their own
// (clc5c0.h).
const (
	i2mLineLength = 0x180
	i2mLineCount  = 0x184
	i2mOffsetOut  = 0x188
	i2mPitchOut   = 0x190
	i2mLaunch     = 0x1b0
	i2mData       = 0x1b4
	i2mSemaphore  = 0x1dc
)

// inlineState is a transfer whose data comes through the pushbuffer.
type inlineState struct {
	dst, pitch  uint64
	width       uint64 // bytes of a line
	lines       uint64
	line, at    uint64
	launch      uint32
	outstanding bool
}

var inlineClass = class{
	name: "inline-to-memory",
	methods: map[uint32]func(*Channel, *object, uint32) error{
		i2mLaunch: inlineLaunch,
		i2mData:   inlineData,
	},
	inert: []span{{0x100, 0x10c}, {0x110, 0x110}, {0x140, 0x144}, {0x180, 0x1b4}, {0x1dc, 0x1e4}, {0x1f0, 0x1fc}},
}

func inlineLaunch(c *Channel, o *object, v uint32) error {
	o.inline = inlineState{
		dst:         o.pair(i2mOffsetOut),
		pitch:       uint64(o.reg(i2mPitchOut)),
		width:       uint64(o.reg(i2mLineLength)),
		lines:       max(uint64(o.reg(i2mLineCount)), 1),
		launch:      v,
		outstanding: true,
	}
	if o.inline.width == 0 {
		return inlineEnd(c, o)
	}
	return nil
}

// inlineData stores one word; the last word of a line may be used in part.
func inlineData(c *Channel, o *object, v uint32) error {
	i := &o.inline
	if !i.outstanding {
		return fmt.Errorf("inline data came without a launch, or more than was announced")
	}
	var b [4]byte
	binary.LittleEndian.PutUint32(b[:], v)
	n := min(4, i.width-i.at)
	if err := c.space.WriteAt(b[:n], i.dst+i.line*i.pitch+i.at); err != nil {
		return fmt.Errorf("storing inline data: %w", err)
	}
	i.at += n
	if i.at == i.width {
		i.at = 0
		i.line++
	}
	if i.line == i.lines {
		return inlineEnd(c, o)
	}
	return nil
}

// inlineEnd does what LAUNCH_DMA asked for at the transfer's end.
func inlineEnd(c *Channel, o *object) error {
	v := o.inline.launch
	o.inline.outstanding = false
	if v>>8&3 == 1 {
		defer c.interrupt()
	}
	if v>>4&3 != 2 {
		c.engine.released(c.space)
		return nil
	}
	r := release{
		addr:    o.pair(i2mSemaphore),
		payload: uint64(o.reg(i2mSemaphore + 8)),
		stamp:   v>>12&1 == 0,
		signed:  v>>2&3 == 1,
	}
	if v>>1&1 == 1 {
		r.reduce = computeReductions[v>>13&7]
	}
	return c.release(r)
}
