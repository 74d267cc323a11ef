package gpumem

import (
	"fmt"
	"slices"
	"sort"
	"sync"
)

// maxMappings bounds the mappings of one space, and with it the memory that a client
// can make the simulator spend on them.
const maxMappings = 1 << 18

// A FaultError tells which GPU address could not be reached.
type FaultError struct {
	Address uint64
	Write   bool
	Err     error // why the memory mapped there failed, or nil if nothing is mapped
}

func (e *FaultError) Error() string {
	what := "reading"
	if e.Write {
		what = "writing"
	}
	if e.Err != nil {
		return fmt.Sprintf("%s GPU address %#x failed: %v", what, e.Address, e.Err)
	}
	return fmt.Sprintf("%s GPU address %#x, where nothing is mapped", what, e.Address)
}

func (e *FaultError) Unwrap() error { return e.Err }

// Space is a GPU virtual address space: memory objects mapped at addresses, none
// overlapping another. All methods may be called concurrently; when Unmap returns, no
// access to what it unmapped is under way.
type Space struct {
	mu      sync.RWMutex
	maps    []mapping // sorted by va
	managed Memory
}

type mapping struct {
	va, size uint64
	mem      Memory
	off      uint64
	release  func() // ends the space's hold on mem; nil if mem is not counted
}

func (m mapping) end() uint64 { return m.va + m.size }

// NewSpace returns a space in which nothing is mapped.
func NewSpace() *Space { return &Space{} }

// SetManaged puts m, read at offset == address, wherever nothing else is mapped; nil
// takes it away.
func (s *Space) SetManaged(m Memory) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.managed = m
}

// Map maps size bytes of m, from offset off on, at va. It fails if the range is empty,
// wraps, is not within m, or overlaps a mapping.
func (s *Space) Map(va, size uint64, m Memory, off uint64) error {
	if size == 0 || va+size < va {
		return fmt.Errorf("mapping %#x bytes at %#x: the range is empty or wraps", size, va)
	}
	if off > m.Size() || size > m.Size()-off {
		return fmt.Errorf("mapping %#x bytes at %#x: they do not lie within the memory (%#x bytes, offset %#x)", size, va, m.Size(), off)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.search(va)
	if i < len(s.maps) && s.maps[i].va < va+size {
		return fmt.Errorf("mapping %#x bytes at %#x: %#x bytes are mapped at %#x", size, va, s.maps[i].size, s.maps[i].va)
	}
	if len(s.maps) >= maxMappings {
		return fmt.Errorf("mapping %#x bytes at %#x: the space has %d mappings, the most it can hold", size, va, len(s.maps))
	}
	release, err := hold(m)
	if err != nil {
		return fmt.Errorf("mapping %#x bytes at %#x: %w", size, va, err)
	}
	s.maps = append(s.maps, mapping{})
	copy(s.maps[i+1:], s.maps[i:])
	s.maps[i] = mapping{va: va, size: size, mem: m, off: off, release: release}
	return nil
}

func hold(m Memory) (func(), error) {
	if h, ok := m.(Holder); ok {
		return h.Hold()
	}
	return nil, nil
}

// Unmap takes away whatever is mapped within size bytes at va; mappings that reach out
// of the range keep the part outside.
func (s *Space) Unmap(va, size uint64) {
	end := va + size
	if end < va {
		end = ^uint64(0)
	}
	s.mu.Lock()
	first := s.search(va)
	last := first
	var kept []mapping
	var released []func()
	for ; last < len(s.maps) && s.maps[last].va < end; last++ {
		parts, release := s.maps[last].without(va, end)
		kept = append(kept, parts...)
		if release != nil {
			released = append(released, release)
		}
	}
	s.maps = slices.Replace(s.maps, first, last, kept...)
	s.mu.Unlock()
	for _, release := range released {
		release()
	}
}

// without returns what is left of m outside of [from, to), and the release of m's hold
// if nothing is left that inherits it.
func (m mapping) without(from, to uint64) (parts []mapping, release func()) {
	release = m.release
	if m.va < from {
		parts = append(parts, mapping{va: m.va, size: from - m.va, mem: m.mem, off: m.off, release: release})
		release = nil
	}
	if m.end() > to {
		cut := to - m.va
		right := mapping{va: to, size: m.size - cut, mem: m.mem, off: m.off + cut, release: release}
		if len(parts) > 0 {
			// The object is held by the left part, so a second hold cannot fail.
			right.release, _ = hold(m.mem)
		}
		parts = append(parts, right)
		release = nil
	}
	return parts, release
}

// Clear unmaps everything.
func (s *Space) Clear() { s.Unmap(0, ^uint64(0)) }

// Mappings is the number of mappings.
func (s *Space) Mappings() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.maps)
}

// search returns the index of the first mapping that ends after va.
func (s *Space) search(va uint64) int {
	return sort.Search(len(s.maps), func(i int) bool { return s.maps[i].end() > va })
}

// ReadAt reads len(p) bytes at address va. It fails with a [*FaultError].
func (s *Space) ReadAt(p []byte, va uint64) error {
	return s.walk(va, uint64(len(p)), false, func(m Memory, off int64, at, n uint64) error {
		_, err := m.ReadAt(p[at:at+n], off)
		return err
	})
}

// WriteAt writes p at address va. It fails with a [*FaultError]; the bytes before the
// address that it names are written.
func (s *Space) WriteAt(p []byte, va uint64) error {
	return s.walk(va, uint64(len(p)), true, func(m Memory, off int64, at, n uint64) error {
		_, err := m.WriteAt(p[at:at+n], off)
		return err
	})
}

// ZeroAt clears n bytes at address va, as WriteAt would with zeros.
func (s *Space) ZeroAt(va, n uint64) error {
	return s.walk(va, n, true, func(m Memory, off int64, _, n uint64) error {
		if z, ok := m.(Zeroer); ok {
			return z.ZeroAt(off, n)
		}
		zeros := make([]byte, min(n, 256<<10))
		for done := uint64(0); done < n; {
			k := min(n-done, uint64(len(zeros)))
			if _, err := m.WriteAt(zeros[:k], off+int64(done)); err != nil {
				return err
			}
			done += k
		}
		return nil
	})
}

// OnHost tells whether the memory behind va lies on the host.
func (s *Space) OnHost(va uint64) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	i := s.search(va)
	m, _, _ := s.piece(&i, va, 1)
	p, ok := m.(Placed)
	return ok && p.OnHost()
}

// walk calls visit for each piece of memory behind the n bytes at va, in order: at is
// the piece's distance from va.
func (s *Space) walk(va, n uint64, write bool, visit func(m Memory, off int64, at, n uint64) error) error {
	if va+n < va {
		return &FaultError{Address: va, Write: write}
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	i := s.search(va)
	for at := uint64(0); at < n; {
		mem, off, run := s.piece(&i, va+at, n-at)
		if mem == nil {
			return &FaultError{Address: va + at, Write: write}
		}
		if err := visit(mem, int64(off), at, run); err != nil {
			return &FaultError{Address: va + at, Write: write, Err: err}
		}
		at += run
	}
	return nil
}

// piece returns the memory at va and how much of the n bytes from there on it covers.
// i is the index of the first mapping that ends after va and is moved past what is
// covered.
func (s *Space) piece(i *int, va, n uint64) (mem Memory, off, run uint64) {
	gap := n
	if *i < len(s.maps) {
		m := &s.maps[*i]
		if va >= m.va {
			run = min(n, m.end()-va)
			if run == m.end()-va {
				*i++
			}
			return m.mem, m.off + (va - m.va), run
		}
		gap = min(n, m.va-va)
	}
	if s.managed == nil || va >= s.managed.Size() {
		return nil, 0, 0
	}
	return s.managed, va, min(gap, s.managed.Size()-va)
}
