package simgpu

import (
	"encoding/binary"
	"unsafe"
)

// view reads b as the ABI structure T, in place: what is stored in the result is
// stored in b. It fails when b is too short. T must have C layout, hold no
// pointers, and need no more than 8-byte alignment; b must come from newBytes.
func view[T any](b []byte) (*T, bool) {
	var t T
	if uintptr(len(b)) < unsafe.Sizeof(t) || len(b) == 0 {
		return nil, false
	}
	return (*T)(unsafe.Pointer(unsafe.SliceData(b))), true
}

// viewAt is view of b from an offset that is a multiple of 8.
func viewAt[T any](b []byte, off int) (*T, bool) {
	if off < 0 || off > len(b) || off%8 != 0 {
		return nil, false
	}
	return view[T](b[off:])
}

// viewList reads b as a list of n structures T, in place.
func viewList[T any](b []byte, n int) ([]T, bool) {
	var t T
	if n < 0 || uintptr(n) > uintptr(len(b))/unsafe.Sizeof(t) {
		return nil, false
	}
	if n == 0 {
		return nil, true
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), n), true
}

// newBytes makes a zeroed buffer that starts on an 8-byte boundary.
func newBytes(n int) []byte {
	words := make([]uint64, (n+7)/8)
	if len(words) == 0 {
		return []byte{}
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), len(words)*8)[:n:n]
}

// putString stores s in dst, cut to fit, with a terminating zero.
func putString(dst []byte, s string) {
	clear(dst)
	if len(dst) > 0 {
		copy(dst[:len(dst)-1], s)
	}
}

func putUint32(b []byte, v uint32) { binary.NativeEndian.PutUint32(b, v) }

// cString is the text of b up to its first zero.
func cString(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}
