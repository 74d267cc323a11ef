package engine

import (
	"encoding/binary"
	"fmt"
	"maps"
)

// Compute methods (clc5c0.h, clc6c0.h).
const (
	computeNotifyA      = 0x104
	computeNotify       = 0x10c
	computePCASA        = 0x2b4
	computePCASB        = 0x2b8
	computePCASSignal   = 0x2bc
	computePCASSignal2  = 0x2c0
	computeQMDAddress   = 0x318
	computeQMDData      = 0x320
	computeReport       = 0x1b00
	computeReportC      = 0x1b08
	computeReportD      = 0x1b0c
	computeQMDLast      = computeQMDData + 4*(qmdWords-1)
	pcasSchedule        = 2 // SEND_SIGNALING_PCAS_B_SCHEDULE_TRUE
	reportRelease       = 0
	reportTrap          = 3
	reportAwaken        = 1 << 20
	reportOneWord       = 1 << 28
	reportReduce        = 1 << 3
	reportConditional   = 1 << 19
	notifyThenInterrupt = 1
)

// pcas2Schedules are the actions of SEND_SIGNALING_PCAS2_B that start a grid.
var pcas2Schedules = map[uint32]bool{2: true, 3: true, 9: true, 0xa: true, 0xb: true}

var computeClass = class{
	name:    "compute",
	methods: computeMethods(),
	inert: []span{
		{0x100, 0x10c}, {0x110, 0x110}, {0x130, 0x154}, {0x180, 0x1b4}, {0x1dc, 0x1e8}, {0x1f0, 0x208},
		{0x210, 0x29c}, {0x2a0, 0x2ec}, {0x310, 0x41c}, {0x500, 0x57c}, {0x790, 0x7b4}, {0xd94, 0xdec},
		{0x1288, 0x1288}, {0x12a8, 0x12a8}, {0x1330, 0x1338}, {0x1424, 0x1428}, {0x1528, 0x1528},
		{0x1550, 0x157c}, {0x1698, 0x1698}, {0x1944, 0x1944}, {0x1a2c, 0x1a3c}, {0x1b00, 0x1b0c},
		{0x25f8, 0x2608}, {0x32f4, 0x3ffc},
	},
}

func computeMethods() map[uint32]func(*Channel, *object, uint32) error {
	m := maps.Clone(inlineClass.methods)
	m[computeNotify] = notify
	m[computePCASB] = pcas
	m[computePCASSignal] = pcasSignal
	m[computePCASSignal2] = pcasSignal2
	m[computeQMDLast] = inlineQMD
	m[computeReportD] = report
	return m
}

// report executes SET_REPORT_SEMAPHORE_D.
func report(c *Channel, o *object, v uint32) error {
	switch op := v & 3; op {
	case reportTrap:
		c.interrupt()
		return nil
	case reportRelease:
		r := release{
			addr:    o.pair(computeReport),
			payload: uint64(o.reg(computeReportC)),
			stamp:   v&reportOneWord == 0,
			signed:  v>>17&3 == 1,
		}
		if v&reportReduce != 0 {
			r.reduce = computeReductions[v>>9&7]
		}
		if v&(reportAwaken|reportConditional) != 0 {
			c.interrupt()
		}
		return c.release(r)
	default:
		return fmt.Errorf("SET_REPORT_SEMAPHORE_D %#x asks for the unknown operation %d", v, op)
	}
}

// notify writes a notification: the card's time and a zero status.
func notify(c *Channel, o *object, v uint32) error {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:], c.engine.runlist.Now())
	if err := c.space.WriteAt(b[:], o.pair(computeNotifyA)); err != nil {
		return fmt.Errorf("writing a notification: %w", err)
	}
	if v == notifyThenInterrupt {
		c.interrupt()
	}
	return nil
}

// inlineQMD stores the descriptor that came through the pushbuffer, whose last word
// this is, and starts its grid, unless the descriptor waits to be scheduled by another.
func inlineQMD(c *Channel, o *object, _ uint32) error {
	first := computeQMDData / 4
	var q qmd
	copy(q[:], o.regs[first:first+qmdWords])
	if !q.waitsForSchedule() {
		return c.launch(q, 0)
	}
	var b [4 * qmdWords]byte
	for i, w := range q {
		binary.LittleEndian.PutUint32(b[4*i:], w)
	}
	at := uint64(o.reg(computeQMDAddress))<<40 | uint64(o.reg(computeQMDAddress+4))<<8
	if err := c.space.WriteAt(b[:], at); err != nil {
		return fmt.Errorf("storing a launch descriptor: %w", err)
	}
	return nil
}

func pcas(c *Channel, o *object, _ uint32) error { return c.launchAt(o.reg(computePCASA), 0) }

func pcasSignal(c *Channel, o *object, v uint32) error {
	if v&pcasSchedule == 0 {
		return nil
	}
	return c.launchAt(o.reg(computePCASA), 0)
}

func pcasSignal2(c *Channel, o *object, v uint32) error {
	if !pcas2Schedules[v&0xf] {
		return nil
	}
	return c.launchAt(o.reg(computePCASA), 0)
}

// launchAt starts the grid whose descriptor is in memory, at an address given in
// units of 256 bytes. It is link number depth of a chain.
func (c *Channel) launchAt(shifted uint32, depth int) error {
	var b [4 * qmdWords]byte
	if err := c.space.ReadAt(b[:], uint64(shifted)<<8); err != nil {
		return fmt.Errorf("reading a launch descriptor: %w", err)
	}
	var q qmd
	for i := range q {
		q[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	return c.launch(q, depth)
}

// maxChain bounds the grids that follow from one launch by their descriptors, which
// may point in a circle.
const maxChain = 1 << 16

// launch starts a grid. It computes nothing, unless it is one of the kernels by which
// libcuda itself moves data.
func (c *Channel) launch(q qmd, depth int) error {
	if depth >= maxChain {
		return fmt.Errorf("a chain of launch descriptors does not end after %d grids", depth)
	}
	l, err := q.layout()
	if err != nil {
		return err
	}
	t := &task{}
	for _, f := range l.releases {
		if r, intr, ok := q.release(f); ok {
			t.releases = append(t.releases, r)
			t.intr = t.intr || intr
		}
	}
	if next, ok := q.dependent(l); ok {
		t.then = func(c *Channel) error { return c.launchAt(next, depth+1) }
	}
	length := uint64(launchTime)
	if !q.queue() {
		length = c.prepare(q, t)
	}
	if err := c.begin(t); err != nil {
		return err
	}
	c.engine.runlist.Submit(c.list, length, c)
	return nil
}

// prepare finds what a grid's kernel is, has t move what it moves, and returns how
// long it takes.
func (c *Channel) prepare(q qmd, t *task) uint64 {
	k := q.kernel()
	code, ok := c.codeHash(k.program)
	if !ok {
		return c.engine.chip.gridTime(k)
	}
	length := c.engine.chip.gridTime(k)
	if f := c.engine.builtins[code]; f != nil {
		if t.move = c.builtin(f, k); t.move != nil {
			length = c.engine.chip.memoryTime(t.move)
		}
	} else {
		c.kernelSeen(code, k)
	}
	if d, ok := c.engine.durations[code]; ok {
		length = d
	}
	return length
}
