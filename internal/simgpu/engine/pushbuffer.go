package engine

import (
	"encoding/binary"
	"fmt"

	"github.com/qgpu-project/qgpu/internal/simgpu/gpumem"
)

// gpEntry is a decoded entry of a channel's GPFIFO: a segment of the pushbuffer
// (NVC46F_GP_ENTRY in clc46f.h).
type gpEntry struct {
	addr  uint64
	words uint32 // 0: a control entry, which does nothing here
}

func decodeEntry(e uint64) (gpEntry, error) {
	lo, hi := uint32(e), uint32(e>>32)
	words := hi >> 10 & 0x1fffff
	if words == 0 {
		if op := hi & 0xff; op == 1 || op > 3 {
			return gpEntry{}, fmt.Errorf("GPFIFO entry %#x holds the illegal opcode %d", e, op)
		}
		return gpEntry{}, nil
	}
	return gpEntry{addr: uint64(hi&0xff)<<32 | uint64(lo&^3), words: words}, nil
}

// advance is how a method's address moves on with each word of its data.
type advance uint8

const (
	advanceNone advance = iota
	advanceEach
	advanceOnce
)

// header is a decoded method header (NVC46F_DMA in clc46f.h).
type header struct {
	count     uint32 // words of data that follow
	address   uint32 // of the first method, in bytes
	sub       uint8  // subchannel
	advance   advance
	immediate bool // the data is in value; none follows
	value     uint32
	end       bool // of the segment
}

func decodeHeader(w uint32) (header, error) {
	h := header{
		count:   w >> 16 & 0x1fff,
		address: w & 0xfff << 2,
		sub:     uint8(w >> 13 & 7),
	}
	switch op := w >> 29; op {
	case 0, 2: // the old form; operations on subdevice masks concern one card only and do nothing
		if w>>16&3 != 0 {
			return header{}, nil
		}
		h.count = w >> 18 & 0x7ff
		h.address = w & 0x1ffc
		if op == 0 {
			h.advance = advanceEach
		}
	case 1:
		h.advance = advanceEach
	case 3:
	case 4:
		h.immediate, h.value, h.count = true, h.count, 0
	case 5:
		h.advance = advanceOnce
	case 7:
		h = header{end: true}
	default:
		return header{}, fmt.Errorf("pushbuffer word %#08x is no method header", w)
	}
	return h, nil
}

// reader reads the words of a segment, some ahead.
type reader struct {
	next  uint64 // address of the first word not yet read ahead
	left  uint32 // words of the segment not yet read ahead
	at    int    // index in ahead of the next word
	have  int    // words in ahead
	ahead [512]uint32
}

func (r *reader) start(e gpEntry) { r.next, r.left, r.at, r.have = e.addr, e.words, 0, 0 }
func (r *reader) empty() bool     { return r.at == r.have && r.left == 0 }

// forget gives back the words read ahead, because they may change until they are due.
func (r *reader) forget() {
	n := r.have - r.at
	r.next -= uint64(n) * 4
	r.left += uint32(n)
	r.at, r.have = 0, 0
}

// word returns the next word. There must be one.
func (r *reader) word(s *gpumem.Space) (uint32, error) {
	if r.at == r.have {
		var b [4 * len(r.ahead)]byte
		n := min(int(r.left), len(r.ahead))
		if err := s.ReadAt(b[:4*n], r.next); err != nil {
			return 0, fmt.Errorf("fetching the pushbuffer: %w", err)
		}
		for i := range n {
			r.ahead[i] = binary.LittleEndian.Uint32(b[4*i:])
		}
		r.next += uint64(n) * 4
		r.left -= uint32(n)
		r.at, r.have = 0, n
	}
	r.at++
	return r.ahead[r.at-1], nil
}
