package engine

import (
	"encoding/binary"
	"fmt"

	"github.com/qgpu-project/qgpu/internal/simgpu/gpumem"
)

// condition is how an acquire compares what it finds with its payload.
type condition uint8

const (
	condEqual    condition = iota
	condGreater            // found >= payload, unsigned
	condCircular           // found - payload >= 0, signed: counters that wrap
	condAnd                // some bit of the payload is set
	condNor                // some bit of the payload is clear
)

func (c condition) String() string {
	return [...]string{"==", ">=", "circularly >=", "&", "~|"}[c]
}

// acquire is a semaphore that a channel waits for.
type acquire struct {
	addr    uint64
	payload uint64
	wide    bool // 64 bits rather than 32
	cond    condition
}

// found reads the semaphore.
func (a acquire) found(s *gpumem.Space) (uint64, error) {
	var b [8]byte
	if a.wide {
		err := s.ReadAt(b[:], a.addr)
		return binary.LittleEndian.Uint64(b[:]), err
	}
	err := s.ReadAt(b[:4], a.addr)
	return uint64(binary.LittleEndian.Uint32(b[:4])), err
}

// holds tells whether a found value satisfies the acquire.
func (a acquire) holds(found uint64) bool {
	payload := a.payload
	if !a.wide {
		payload = uint64(uint32(payload))
	}
	switch a.cond {
	case condEqual:
		return found == payload
	case condGreater:
		return found >= payload
	case condCircular:
		if a.wide {
			return int64(found-payload) >= 0
		}
		return int32(uint32(found)-uint32(payload)) >= 0
	case condAnd:
		return found&payload != 0
	default:
		return ^found&payload != 0
	}
}

// reduction is an operation on a semaphore's old value and a payload.
type reduction uint8

const (
	reduceNone reduction = iota
	reduceMin
	reduceMax
	reduceXor
	reduceAnd
	reduceOr
	reduceAdd
	reduceInc
	reduceDec
)

// hostReductions are the operations as host and copy methods number them (SEM_EXECUTE
// in clc46f.h, LAUNCH_DMA in clc5b5.h), computeReductions as compute methods and launch
// descriptors do (clc5c0.h).
var (
	hostReductions    = [8]reduction{reduceMin, reduceMax, reduceXor, reduceAnd, reduceOr, reduceAdd, reduceInc, reduceDec}
	computeReductions = [8]reduction{reduceAdd, reduceMin, reduceMax, reduceInc, reduceDec, reduceAnd, reduceOr, reduceXor}
)

// apply is the operation on values of 64 bits, or of 32 that were extended by sign or
// with zeros.
func (r reduction) apply(old, payload uint64, signed bool) uint64 {
	less := old < payload
	if signed {
		less = int64(old) < int64(payload)
	}
	switch r {
	case reduceMin:
		if less {
			return old
		}
		return payload
	case reduceMax:
		if less {
			return payload
		}
		return old
	case reduceXor:
		return old ^ payload
	case reduceAnd:
		return old & payload
	case reduceOr:
		return old | payload
	case reduceAdd:
		return old + payload
	case reduceInc:
		if old >= payload {
			return 0
		}
		return old + 1
	case reduceDec:
		if old == 0 || old > payload {
			return payload
		}
		return old - 1
	default:
		return payload
	}
}

// release is a write to a semaphore. A reduction never stamps the time: the words
// beside its semaphore belong to others.
type release struct {
	addr    uint64
	payload uint64
	wide    bool // 64 bits rather than 32
	stamp   bool // the card's time goes 8 bytes behind
	reduce  reduction
	signed  bool // of reduce
}

// perform writes the semaphore at card time now, the payload last: whoever sees it
// may rely on the rest.
func (r release) perform(s *gpumem.Space, now uint64) error {
	var b [8]byte
	size := 4
	if r.wide {
		size = 8
	}
	payload := r.payload
	if r.reduce != reduceNone {
		if err := s.ReadAt(b[:size], r.addr); err != nil {
			return fmt.Errorf("reducing a semaphore: %w", err)
		}
		payload = r.reduce.apply(extend(b, size, r.signed), extendValue(payload, size, r.signed), r.signed)
	} else if r.stamp {
		binary.LittleEndian.PutUint64(b[:], now)
		if err := s.WriteAt(b[:], r.addr+8); err != nil {
			return fmt.Errorf("stamping a semaphore: %w", err)
		}
	}
	binary.LittleEndian.PutUint64(b[:], payload)
	if err := s.WriteAt(b[:size], r.addr); err != nil {
		return fmt.Errorf("releasing a semaphore: %w", err)
	}
	return nil
}

func extend(b [8]byte, size int, signed bool) uint64 {
	return extendValue(binary.LittleEndian.Uint64(b[:]), size, signed)
}

func extendValue(v uint64, size int, signed bool) uint64 {
	switch {
	case size == 8:
		return v
	case signed:
		return uint64(int64(int32(uint32(v))))
	default:
		return uint64(uint32(v))
	}
}
