package nvabi

import (
	"bytes"
	"math"
	"testing"
)

func TestAccessors(t *testing.T) {
	b := []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}
	if got := U32(b, 4); got != 0x08070605 {
		t.Errorf("U32 = %#x", got)
	}
	if got := U64(b, 4); got != 0x0c0b0a0908070605 {
		t.Errorf("U64 = %#x", got)
	}
	PutU32(b, 8, 0xaabbccdd)
	PutU64(b, 0, 0x1122334455667788)
	want := []byte{0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0xdd, 0xcc, 0xbb, 0xaa}
	if !bytes.Equal(b, want) {
		t.Errorf("after Put: % x, want % x", b, want)
	}
}

func TestAccessorsOutOfRange(t *testing.T) {
	for _, size := range []int{0, 3, 4, 7, 8, 12} {
		for _, off := range []int{None, math.MinInt, size - 3, size, size + 1, math.MaxInt, math.MaxInt - 3} {
			b := bytes.Repeat([]byte{0xff}, size)
			before := bytes.Clone(b)
			if off < 0 || off > size-4 {
				if got := U32(b, off); got != 0 {
					t.Errorf("U32 of %d bytes at %d = %#x", size, off, got)
				}
				PutU32(b, off, 1)
			}
			if got := U64(b, off); (off < 0 || off > size-8) && got != 0 {
				t.Errorf("U64 of %d bytes at %d = %#x", size, off, got)
			}
			if off < 0 || off > size-8 {
				PutU64(b, off, 1)
			}
			if !bytes.Equal(b, before) {
				t.Errorf("Put at %d of %d bytes wrote % x", off, size, b)
			}
		}
	}
}
