package nvclient

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"unsafe"
)

// message is the argument of an ioctl or the parameters of an RM call.
type message []byte

func (m message) u32(off int) uint32       { return binary.LittleEndian.Uint32(m[off:]) }
func (m message) setU32(off int, v uint32) { binary.LittleEndian.PutUint32(m[off:], v) }
func (m message) u64(off int) uint64       { return binary.LittleEndian.Uint64(m[off:]) }
func (m message) setPointer(off int, p message) {
	binary.LittleEndian.PutUint64(m[off:], uint64(uintptr(unsafe.Pointer(&p[0]))))
}

// text is a NUL-terminated string at off, of at most n bytes.
func (m message) text(off, n int) string {
	b := m[off : off+n]
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}

// Numbers of ioctls, from nv-ioctl-numbers.h and nv_escape.h.
const (
	nrCardInfo     = 200
	nrCheckVersion = 210
	nrFree         = 0x29
	nrControl      = 0x2A
	nrAlloc        = 0x2B
)

// Status is an NV_STATUS other than NV_OK, from nvstatuscodes.h.
type Status uint32

func (s Status) Error() string {
	if s == statusGPUIsLost {
		return "the driver has lost the card, which fell off the bus; restart the machine"
	}
	return fmt.Sprintf("the driver answered status %#x", uint32(s))
}

// ioctl sends m, whose length is part of the command number (_IOWR('F', nr, size)).
// inner is what m points to.
func ioctl(d Driver, fd int, nr uint8, m message, inner ...message) error {
	var pins runtime.Pinner
	defer pins.Unpin()
	pins.Pin(&m[0])
	for _, p := range inner {
		if len(p) > 0 {
			pins.Pin(&p[0])
		}
	}
	cmd := uint32(3<<30) | uint32(len(m))<<16 | 'F'<<8 | uint32(nr)
	return d.Ioctl(fd, cmd, unsafe.Pointer(&m[0]))
}
