package gpumem

import (
	"fmt"
	"math"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// viewLimit is the largest access, in bytes, that goes through the mapped view. Beyond
// it pread and pwrite are cheaper than the page faults, and a read of a hole does not
// back the hole with memory.
const viewLimit = 32 << 10

// maxView is the largest object, in bytes, that is mapped as a whole. A UVM file, which
// covers all of a process's addresses, is reached by pread and pwrite alone.
const maxView = 1 << 42

// Shared is memory backed by a sparse memfd, which clients map as well. The file is
// sealed against any change of size, so that no holder of it can make a view fault.
//
// A Shared is counted: it is released when it was closed and nobody holds it.
type Shared struct {
	name string
	size uint64

	mu      sync.RWMutex // held for reading during every access, so that a release waits for it
	file    *os.File     // nil once released
	view    []byte       // the whole file, or nil until first needed
	holders int          // including the owner
	closed  bool

	mapping atomic.Pointer[[]byte] // view, for the paths that hold mu for reading
	host    atomic.Bool
}

// NewShared makes a memory object of size bytes, rounded up to a page, in which every
// byte is zero. Memory of the machine is taken only by what is written. The name shows
// in /proc/PID/maps of whoever maps it.
func NewShared(name string, size uint64) (*Shared, error) {
	if size == 0 || size > math.MaxInt64-PageSize {
		return nil, fmt.Errorf("a memory object of %#x bytes cannot be made: the size must be between 1 and 2^63-4097", size)
	}
	size = (size + PageSize - 1) &^ (PageSize - 1)
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("making the memory file of %q: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		f.Close()
		return nil, fmt.Errorf("sizing the memory file of %q to %#x bytes: %w", name, size, err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err != nil {
		f.Close()
		return nil, fmt.Errorf("sealing the memory file of %q: %w", name, err)
	}
	return &Shared{name: name, size: size, file: f, holders: 1}, nil
}

// Size is the object's size in bytes, a multiple of [PageSize].
func (s *Shared) Size() uint64 { return s.size }

// PlaceOnHost says that the object is host memory, not video memory.
func (s *Shared) PlaceOnHost() { s.host.Store(true) }

// OnHost tells whether the object is host memory.
func (s *Shared) OnHost() bool { return s.host.Load() }

// File is the memfd itself, to be handed to clients that map it. It stays owned by the
// Shared; it is nil after the last release.
func (s *Shared) File() *os.File {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.file
}

// Hold keeps the object, and every window on it, alive until release is called.
func (s *Shared) Hold() (release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil {
		return nil, fmt.Errorf("holding %q: %w", s.name, ErrClosed)
	}
	s.holders++
	var once sync.Once
	return func() {
		once.Do(func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.drop()
		})
	}, nil
}

// Close ends the owner's hold. Further calls do nothing.
func (s *Shared) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	return s.drop()
}

// drop ends one hold and releases the file and its view with the last one.
func (s *Shared) drop() error {
	s.holders--
	if s.holders > 0 {
		return nil
	}
	var err error
	if s.view != nil {
		err = unix.Munmap(s.view)
		s.view = nil
		s.mapping.Store(nil)
	}
	if cerr := s.file.Close(); err == nil {
		err = cerr
	}
	s.file = nil
	return err
}

// Window is a view of n bytes at off, shared with every client that has the file
// mapped, or nil if they do not lie within the object or the view cannot be mapped. It
// is valid until the last release: whoever keeps a window keeps a [Shared.Hold] too.
func (s *Shared) Window(off, n uint64) []byte {
	if off > s.size || n > s.size-off {
		return nil
	}
	s.mu.RLock()
	v := s.mapping.Load()
	s.mu.RUnlock()
	if v == nil {
		if s.mapView() != nil {
			return nil
		}
		if v = s.mapping.Load(); v == nil {
			return nil
		}
	}
	return (*v)[off : off+n : off+n]
}

// mapView maps the whole object, if that has not been done yet.
func (s *Shared) mapView() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil {
		return fmt.Errorf("mapping %q: %w", s.name, ErrClosed)
	}
	if s.view != nil {
		return nil
	}
	if s.size > maxView {
		return fmt.Errorf("mapping %q: its %#x bytes do not fit in this process's address space", s.name, s.size)
	}
	v, err := unix.Mmap(int(s.file.Fd()), 0, int(s.size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_NORESERVE)
	if err != nil {
		return fmt.Errorf("mapping the %#x bytes of %q: %w", s.size, s.name, err)
	}
	s.view = v
	s.mapping.Store(&v)
	return nil
}

// ReadAt reads len(p) bytes at off.
func (s *Shared) ReadAt(p []byte, off int64) (int, error) {
	return s.access(p, off, func(b []byte) { copy(p, b) }, unix.Pread)
}

// WriteAt writes p at off.
func (s *Shared) WriteAt(p []byte, off int64) (int, error) {
	return s.access(p, off, func(b []byte) { copy(b, p) }, unix.Pwrite)
}

// access moves p through the view if it is small, through the file otherwise.
func (s *Shared) access(p []byte, off int64, through func(view []byte), direct func(fd int, p []byte, off int64) (int, error)) (int, error) {
	if err := checkRange(s.name, off, len(p), s.size); err != nil {
		return 0, err
	}
	small := len(p) <= viewLimit && s.size <= maxView
	if small && s.mapping.Load() == nil {
		if err := s.mapView(); err != nil {
			return 0, err
		}
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.file == nil {
		return 0, fmt.Errorf("reaching %q: %w", s.name, ErrClosed)
	}
	if small {
		through(s.view[off : off+int64(len(p))])
		return len(p), nil
	}
	done := 0
	for done < len(p) {
		n, err := direct(int(s.file.Fd()), p[done:], off+int64(done))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return done, fmt.Errorf("reaching %d bytes at %#x of %q: %w", len(p), off, s.name, err)
		}
		done += n
	}
	return done, nil
}

// ZeroAt clears n bytes at off and gives the whole pages among them back to the
// machine.
func (s *Shared) ZeroAt(off int64, n uint64) error {
	if off < 0 || uint64(off) > s.size || n > s.size-uint64(off) {
		return fmt.Errorf("clearing %#x bytes at %#x of %q (%#x bytes): the range lies outside", n, off, s.name, s.size)
	}
	if n == 0 {
		return nil
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.file == nil {
		return fmt.Errorf("clearing %q: %w", s.name, ErrClosed)
	}
	if err := unix.Fallocate(int(s.file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, int64(n)); err != nil {
		return fmt.Errorf("clearing %#x bytes at %#x of %q: %w", n, off, s.name, err)
	}
	return nil
}
