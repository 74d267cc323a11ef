package mediator

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// message is the mediator's copy of a structure of the driver's ABI.
type message []byte

func (b message) u32(off int) uint32       { return binary.LittleEndian.Uint32(b[off:]) }
func (b message) setU32(off int, v uint32) { binary.LittleEndian.PutUint32(b[off:], v) }
func (b message) u64(off int) uint64       { return binary.LittleEndian.Uint64(b[off:]) }
func (b message) setU64(off int, v uint64) { binary.LittleEndian.PutUint64(b[off:], v) }

// address is where the message lies in this process.
func (b message) address() uint64 {
	if len(b) == 0 {
		return 0
	}
	return uint64(uintptr(unsafe.Pointer(&b[0])))
}

const (
	// arenaSize bounds what one call may make the mediator copy. The largest call of
	// the tables needs a tenth of it.
	arenaSize = 4 << 20
	// arenaKeep is how much of an arena stays in memory between calls.
	arenaKeep = 64 << 10
)

// arena holds the copies of one call's arguments. It lies outside Go's heap, so
// that the driver can be given addresses in it, and is reused from call to call.
type arena struct {
	memory []byte
	used   int
}

func newArena() (arena, error) {
	b, err := unix.Mmap(-1, 0, arenaSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return arena{}, fmt.Errorf("map %d bytes for the arguments of a call: %w", arenaSize, err)
	}
	return arena{memory: b}, nil
}

// take returns n bytes, aligned to 8, with whatever they held before; nil if the
// arena is exhausted.
func (a *arena) take(n int) message {
	if n < 0 || n > len(a.memory)-a.used {
		return nil
	}
	b := a.memory[a.used : a.used+n : a.used+n]
	a.used = min((a.used+n+7)&^7, len(a.memory))
	return b
}

// reset makes the arena empty again.
func (a *arena) reset() {
	if a.used > arenaKeep {
		// Advice only: the pages would be kept otherwise.
		_ = unix.Madvise(a.memory[arenaKeep:], unix.MADV_DONTNEED)
	}
	a.used = 0
}

func (a *arena) release() {
	_ = unix.Munmap(a.memory)
	a.memory, a.used = nil, 0
}
