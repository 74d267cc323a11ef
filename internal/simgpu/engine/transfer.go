package engine

import (
	"github.com/qgpu-project/qgpu/internal/simgpu/gpumem"
)

// chunk is how many bytes of a transfer are moved in one go, so that a long one does
// not keep the others from their turn; zeroChunk the same for clearing, which moves
// nothing.
const (
	chunk     = 256 << 10
	zeroChunk = 64 << 20
)

// transfer is data to be moved, line by line, and how far it got.
type transfer struct {
	src, dst           uint64
	srcPitch, dstPitch int64  // bytes from line to line
	lines              uint64 // at least one
	srcLine, dstLine   uint64 // bytes of a line
	shape              shape

	line, at uint64 // the next byte to be written is dst + line*dstPitch + at

	next *transfer // what is moved after it; nil if nothing
}

// shape turns source bytes into destination bytes; the zero value copies.
type shape struct {
	// pattern, if not empty, is written over and over; nothing is read.
	pattern []byte
	// Otherwise, if to is not 0, each element is made of to components, taken from an
	// element of from components of size bytes each, or from the constants, or left as it is.
	size, from, to int
	choose         [4]uint8 // 0…3: that component of the source; 4, 5: constants; 6: left
	constant       [2]uint32
}

const (
	chooseConstA = 4
	chooseConstB = 5
	chooseKeep   = 6
)

func (s *shape) zero() bool {
	for _, b := range s.pattern {
		if b != 0 {
			return false
		}
	}
	return len(s.pattern) > 0
}

// bytes is what the transfer writes in all, saturated.
func (t *transfer) bytes() uint64 { return mul(t.lines, t.dstLine) }

// rest is the first part of the transfer, or of what follows it, that is not done, or
// nil.
func (t *transfer) rest() *transfer {
	for t != nil && t.done() {
		t = t.next
	}
	return t
}

// done tells whether everything is moved.
func (t *transfer) done() bool { return t.line >= t.lines || t.dstLine == 0 }

// step moves the next bytes, about chunk of them.
func (t *transfer) step(s *gpumem.Space, scratch []byte) error {
	for budget := chunk; budget > 0 && !t.done(); {
		dst := t.dst + uint64(int64(t.line)*t.dstPitch) + t.at
		n, err := t.piece(s, scratch, dst)
		if err != nil {
			return err
		}
		t.at += n
		budget -= int(min(n, chunk)) + 64 // a line costs something, however short
		if t.at == t.dstLine {
			t.at = 0
			t.line++
		}
	}
	return nil
}

// piece writes the next bytes of a line at dst and returns their number.
func (t *transfer) piece(s *gpumem.Space, scratch []byte, dst uint64) (uint64, error) {
	rest := t.dstLine - t.at
	src := t.src + uint64(int64(t.line)*t.srcPitch)
	switch {
	case t.shape.zero() && rest >= gpumem.PageSize:
		n := min(rest, zeroChunk)
		return n, s.ZeroAt(dst, n)
	case len(t.shape.pattern) > 0:
		return t.fill(s, scratch, dst, rest)
	case t.shape.to != 0:
		return t.remap(s, scratch, src, dst, rest)
	default:
		b := scratch[:min(rest, uint64(len(scratch)))]
		if err := s.ReadAt(b, src+t.at); err != nil {
			return 0, err
		}
		return uint64(len(b)), s.WriteAt(b, dst)
	}
}

func (t *transfer) fill(s *gpumem.Space, scratch []byte, dst, rest uint64) (uint64, error) {
	p := t.shape.pattern
	n := min(rest, uint64(len(scratch)))
	phase := int(t.at % uint64(len(p)))
	done := copy(scratch[:n], p[phase:])
	for done < int(n) && done < len(p) {
		done += copy(scratch[done:n], p)
	}
	for period := done - done%len(p); done < int(n); {
		done += copy(scratch[done:n], scratch[done%len(p):max(period, len(p))])
	}
	return n, s.WriteAt(scratch[:n], dst)
}

// remap composes elements. Lines are whole numbers of elements.
func (t *transfer) remap(s *gpumem.Space, scratch []byte, src, dst, rest uint64) (uint64, error) {
	h := &t.shape
	in, out := h.size*h.from, h.size*h.to
	half := len(scratch) / 2
	elements := min(int(min(rest, uint64(half)))/out, half/in)
	from, to := scratch[:elements*in], scratch[half:half+elements*out]
	reads, keeps := false, false
	for _, c := range h.choose[:h.to] {
		reads = reads || c < chooseConstA
		keeps = keeps || c == chooseKeep
	}
	if reads {
		if err := s.ReadAt(from, src+t.at/uint64(out)*uint64(in)); err != nil {
			return 0, err
		}
	}
	if keeps {
		if err := s.ReadAt(to, dst); err != nil {
			return 0, err
		}
	}
	for e := range elements {
		h.compose(to[e*out:(e+1)*out], from[e*in:(e+1)*in])
	}
	return uint64(len(to)), s.WriteAt(to, dst)
}

// compose makes one element.
func (h *shape) compose(to, from []byte) {
	for k, c := range h.choose[:h.to] {
		cell := to[k*h.size : (k+1)*h.size]
		switch {
		case c == chooseConstA || c == chooseConstB:
			v := h.constant[c-chooseConstA]
			for i := range cell {
				cell[i] = byte(v >> (8 * i))
			}
		case int(c) < h.from:
			copy(cell, from[int(c)*h.size:])
		}
	}
}
