package nvabi

import "encoding/binary"

// U32 reads the little-endian uint32 at offset off of b. Out of range it is 0:
// who decodes a call has checked its size before, so that is never the case for
// a field that the size covers.
func U32(b []byte, off int) uint32 {
	if !within(b, off, 4) {
		return 0
	}
	return binary.LittleEndian.Uint32(b[off:])
}

// U64 reads the little-endian uint64 at offset off of b, or 0 out of range.
func U64(b []byte, off int) uint64 {
	if !within(b, off, 8) {
		return 0
	}
	return binary.LittleEndian.Uint64(b[off:])
}

// PutU32 writes v at offset off of b, and nothing out of range.
func PutU32(b []byte, off int, v uint32) {
	if within(b, off, 4) {
		binary.LittleEndian.PutUint32(b[off:], v)
	}
}

// PutU64 writes v at offset off of b, and nothing out of range.
func PutU64(b []byte, off int, v uint64) {
	if within(b, off, 8) {
		binary.LittleEndian.PutUint64(b[off:], v)
	}
}

func within(b []byte, off, n int) bool {
	return off >= 0 && off <= len(b)-n
}
