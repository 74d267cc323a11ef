package engine

import "fmt"

// Copy engine methods (clc5b5.h, clc6b5.h).
const (
	copySemaphore   = 0x240
	copyPayload     = 0x248
	copyLaunch      = 0x300
	copyOffsetIn    = 0x400
	copyOffsetOut   = 0x408
	copyPitchIn     = 0x410
	copyPitchOut    = 0x414
	copyLineLength  = 0x418
	copyLineCount   = 0x41c
	copyConstA      = 0x700
	copyConstB      = 0x704
	copyComponents  = 0x708
	copyDstSurface  = 0x70c
	copySrcSurface  = 0x728
	surfaceWidth    = 0x04 // from the surface's first register
	surfaceHeight   = 0x08
	surfaceLayer    = 0x10
	surfaceOrigin   = 0x14
	launchRemap     = 1 << 10
	launchMultiLine = 1 << 9
	launchSrcPitch  = 1 << 7
	launchDstPitch  = 1 << 8
	launchPhysical  = 3 << 12
	launchReduce    = 1 << 19
)

var copyClass = class{
	name: "copy",
	methods: map[uint32]func(*Channel, *object, uint32) error{
		copyLaunch: copyStart,
	},
	inert: []span{
		{0x100, 0x100}, {0x140, 0x140}, {0x240, 0x248}, {0x254, 0x264}, {0x280, 0x28c}, {0x300, 0x300},
		{0x400, 0x41c}, {0x700, 0x720}, {0x728, 0x73c}, {0x744, 0x750}, {0x1114, 0x1114},
	},
}

// copyStart executes LAUNCH_DMA.
func copyStart(c *Channel, o *object, v uint32) error {
	if v&launchPhysical != 0 {
		return fmt.Errorf("LAUNCH_DMA %#x addresses physical memory, which only the kernel may", v)
	}
	t := &task{intr: v>>5&3 != 0}
	if kind := v >> 3 & 3; kind != 0 {
		r := release{
			addr:    o.pair(copySemaphore),
			payload: uint64(o.reg(copyPayload)),
			stamp:   kind == 2,
			signed:  v>>18&1 == 0,
		}
		if v&launchReduce != 0 {
			if r.reduce = reduceAdd; v>>14&0xf < 8 {
				r.reduce = hostReductions[v>>14&7]
			}
		}
		t.releases = []release{r}
		t.intr = t.intr || kind == 3
	}
	length := uint64(copyLatency)
	if v&3 != 0 {
		t.move = copyTransfer(o, v)
		length += c.engine.copyTime(c.space, t.move)
	}
	if err := c.begin(t); err != nil {
		return err
	}
	c.engine.copies.Submit(c.engine.runlist.Now(), length, c)
	return nil
}

// copyTransfer reads what LAUNCH_DMA moves from the registers. Surfaces in the
// block-linear layout are kept by rows: every access to them goes through here, so
// the order of their bytes is seen by nobody.
func copyTransfer(o *object, v uint32) *transfer {
	t := &transfer{
		src:      o.pair(copyOffsetIn),
		dst:      o.pair(copyOffsetOut),
		srcPitch: int64(int32(o.reg(copyPitchIn))),
		dstPitch: int64(int32(o.reg(copyPitchOut))),
		lines:    1,
		srcLine:  uint64(o.reg(copyLineLength)),
		dstLine:  uint64(o.reg(copyLineLength)),
	}
	if v&launchMultiLine != 0 {
		t.lines = uint64(o.reg(copyLineCount))
	}
	if v&launchRemap != 0 {
		t.remapTo(o)
	}
	if v&launchSrcPitch == 0 {
		t.src, t.srcPitch = surface(o, copySrcSurface, t.src)
	}
	if v&launchDstPitch == 0 {
		t.dst, t.dstPitch = surface(o, copyDstSurface, t.dst)
	}
	return t
}

// surface returns the address of a block-linear surface's origin and the distance of
// its rows.
func surface(o *object, first uint32, base uint64) (addr uint64, pitch int64) {
	width := uint64(o.reg(first + surfaceWidth))
	height := uint64(o.reg(first + surfaceHeight))
	origin := o.reg(first + surfaceOrigin)
	row := uint64(o.reg(first+surfaceLayer))*height + uint64(origin>>16)
	return base + row*width + uint64(origin&0xffff), int64(width)
}

// remapTo makes the transfer compose elements: lengths of lines, until now in
// elements, become bytes.
func (t *transfer) remapTo(o *object) {
	r := o.reg(copyComponents)
	h := shape{
		size:     int(r>>16&3) + 1,
		from:     int(r>>20&3) + 1,
		to:       int(r>>24&3) + 1,
		constant: [2]uint32{o.reg(copyConstA), o.reg(copyConstB)},
	}
	constant := true
	for k := range h.to {
		h.choose[k] = uint8(r >> (4 * k) & 7)
		constant = constant && (h.choose[k] == chooseConstA || h.choose[k] == chooseConstB)
	}
	t.srcLine *= uint64(h.size * h.from)
	t.dstLine *= uint64(h.size * h.to)
	if constant {
		h.pattern = make([]byte, h.size*h.to)
		h.compose(h.pattern, nil)
	}
	t.shape = h
}
