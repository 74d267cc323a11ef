// Package gpumem owns the bytes of simulated memory: memory objects, and the GPU
// address spaces in which they are mapped. It knows nothing of RM objects, channels
// or who may map what.
package gpumem

import (
	"errors"
	"fmt"
	"io"
)

// PageSize is the unit in which memory is backed and views are mapped, in bytes.
const PageSize = 4096

// ErrClosed is returned for an access to a memory object after its last release.
var ErrClosed = errors.New("the memory object is closed")

// Memory is a run of bytes that a GPU can reach. ReadAt and WriteAt follow
// [io.ReaderAt] and [io.WriterAt], may be called concurrently, and fail for any part
// outside of [0, Size()).
type Memory interface {
	ReadAt(p []byte, off int64) (int, error)
	WriteAt(p []byte, off int64) (int, error)
	Size() uint64 // in bytes
}

// Holder is a Memory that stays usable after its owner has closed it, for as long as
// somebody else holds it. A [Space] holds what is mapped in it.
type Holder interface {
	// Hold returns a function that ends the hold; calling it again does nothing.
	// It fails with [ErrClosed] once the memory is gone.
	Hold() (release func(), err error)
}

// Zeroer is a Memory that can be cleared without being filled, so that a sparse object
// stays sparse.
type Zeroer interface {
	ZeroAt(off int64, n uint64) error
}

// Placed is a Memory that knows where it lies; any other lies in video memory.
type Placed interface {
	OnHost() bool // in the host's memory, beyond the card's link to it
}

// checkRange reports an access of n bytes at off in an object of size bytes that does
// not lie within it.
func checkRange(name string, off int64, n int, size uint64) error {
	if off < 0 || uint64(off) > size || uint64(n) > size-uint64(off) {
		return fmt.Errorf("%d bytes at offset %#x lie outside of %s (%#x bytes): %w", n, uint64(off), name, size, io.ErrUnexpectedEOF)
	}
	return nil
}
