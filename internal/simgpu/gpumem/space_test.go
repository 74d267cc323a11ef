package gpumem

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"testing"
	"unsafe"

	"pgregory.net/rapid"
)

func addressOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(&b[0]))) }

// plain is a Memory without a file, which counts who holds it.
type plain struct {
	bytes []byte
	held  int
}

func (m *plain) Size() uint64 { return uint64(len(m.bytes)) }

func (m *plain) ReadAt(p []byte, off int64) (int, error) {
	if err := checkRange("plain", off, len(p), m.Size()); err != nil {
		return 0, err
	}
	return copy(p, m.bytes[off:]), nil
}

func (m *plain) WriteAt(p []byte, off int64) (int, error) {
	if err := checkRange("plain", off, len(p), m.Size()); err != nil {
		return 0, err
	}
	return copy(m.bytes[off:], p), nil
}

func (m *plain) Hold() (func(), error) {
	m.held++
	return func() { m.held-- }, nil
}

// page says what a page of the model's address space is.
type page struct {
	mem *plain
	off uint64
}

// TestSpace compares a space with a map from page to memory.
func TestSpace(t *testing.T) {
	const unit, pages = 16, 64
	rapid.Check(t, func(r *rapid.T) {
		s := NewSpace()
		memories := []*plain{{bytes: make([]byte, 20*unit)}, {bytes: make([]byte, 40*unit)}}
		managed := &plain{bytes: make([]byte, 50*unit)}
		s.SetManaged(managed)
		model := map[uint64]page{}
		at := func(p uint64) (page, bool) {
			if v, ok := model[p]; ok {
				return v, true
			}
			return page{managed, p * unit}, managed != nil && p*unit < managed.Size()
		}
		r.Repeat(map[string]func(*rapid.T){
			"map": func(r *rapid.T) {
				m := rapid.SampledFrom(memories).Draw(r, "memory")
				va := rapid.Uint64Range(0, pages-1).Draw(r, "page")
				off := rapid.Uint64Range(0, m.Size()/unit).Draw(r, "offset")
				n := rapid.Uint64Range(0, 10).Draw(r, "pages")
				free := n > 0 && off+n <= m.Size()/unit
				for p := va; p < va+n; p++ {
					_, taken := model[p]
					free = free && !taken
				}
				if err := s.Map(va*unit, n*unit, m, off*unit); (err == nil) != free {
					r.Fatalf("mapping: %v, want success: %v", err, free)
				}
				for p := uint64(0); free && p < n; p++ {
					model[va+p] = page{m, (off + p) * unit}
				}
			},
			"unmap": func(r *rapid.T) {
				va := rapid.Uint64Range(0, pages-1).Draw(r, "page")
				n := rapid.Uint64Range(0, 20).Draw(r, "pages")
				s.Unmap(va*unit, n*unit)
				for p := va; p < va+n; p++ {
					delete(model, p)
				}
			},
			"managed": func(r *rapid.T) {
				if managed == nil {
					managed = &plain{bytes: make([]byte, 50*unit)}
					s.SetManaged(managed)
				} else {
					managed = nil
					s.SetManaged(nil)
				}
			},
			"write": func(r *rapid.T) {
				va := rapid.Uint64Range(0, pages*unit).Draw(r, "address")
				p := rapid.SliceOfN(rapid.Byte(), 0, 12*unit).Draw(r, "data")
				err := s.WriteAt(p, va)
				checkAccess(r, err, va, len(p), true, unit, at)
				for i, b := range p {
					pg, ok := at((va + uint64(i)) / unit)
					if !ok {
						break
					}
					if got := pg.mem.bytes[pg.off+(va+uint64(i))%unit]; got != b && !aliased(p, va, i, at) {
						r.Fatalf("byte %d is %d after writing %d", i, got, b)
					}
				}
			},
			"read": func(r *rapid.T) {
				va := rapid.Uint64Range(0, pages*unit).Draw(r, "address")
				p := make([]byte, rapid.IntRange(0, 12*unit).Draw(r, "length"))
				err := s.ReadAt(p, va)
				checkAccess(r, err, va, len(p), false, unit, at)
				for i := range p {
					if pg, ok := at((va + uint64(i)) / unit); !ok {
						break
					} else if err == nil && p[i] != pg.mem.bytes[pg.off+(va+uint64(i))%unit] {
						r.Fatalf("byte %d is %d", i, p[i])
					}
				}
			},
			"": func(r *rapid.T) {
				held := 0
				for i, m := range s.maps {
					if m.size == 0 || i > 0 && s.maps[i-1].end() > m.va {
						r.Fatalf("mappings overlap or are empty: %+v", s.maps)
					}
					held++
				}
				if n := memories[0].held + memories[1].held; n != held {
					r.Fatalf("%d holds for %d mappings", n, held)
				}
			},
		})
		s.Clear()
		if memories[0].held+memories[1].held != 0 {
			r.Fatal("holds are left after everything was unmapped")
		}
	})
}

// aliased tells whether a later byte of the same write lands where byte i does.
func aliased(p []byte, va uint64, i int, at func(uint64) (page, bool)) bool {
	where := func(k int) (*plain, uint64) {
		pg, ok := at((va + uint64(k)) / 16)
		if !ok {
			return nil, 0
		}
		return pg.mem, pg.off + (va+uint64(k))%16
	}
	m, off := where(i)
	for k := i + 1; k < len(p); k++ {
		if m2, off2 := where(k); m2 == m && off2 == off {
			return true
		}
	}
	return false
}

// checkAccess checks that an access failed exactly where the model has nothing.
func checkAccess(r *rapid.T, err error, va uint64, n int, write bool, unit uint64, at func(uint64) (page, bool)) {
	for i := range uint64(n) {
		if _, ok := at((va + i) / unit); ok {
			continue
		}
		var f *FaultError
		if !errors.As(err, &f) || f.Address != va+i || f.Write != write || f.Err != nil {
			r.Fatalf("access to %d bytes at %#x: %v, want a fault at %#x", n, va, err, va+i)
		}
		return
	}
	if err != nil {
		r.Fatalf("access to %d bytes at %#x: %v", n, va, err)
	}
}

func TestSpaceZero(t *testing.T) {
	s := NewSpace()
	sparse, m := newShared(t, 4*PageSize), &plain{bytes: bytes.Repeat([]byte{1}, 2*PageSize)}
	if _, err := sparse.WriteAt(bytes.Repeat([]byte{1}, 4*PageSize), 0); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Map(0, 4*PageSize, sparse, 0), s.Map(4*PageSize, 2*PageSize, m, 0)); err != nil {
		t.Fatal(err)
	}
	if err := s.ZeroAt(100, 5*PageSize); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 6*PageSize)
	if err := s.ReadAt(got, 0); err != nil {
		t.Fatal(err)
	}
	want := bytes.Repeat([]byte{1}, 6*PageSize)
	clear(want[100:][:5*PageSize])
	if !bytes.Equal(got, want) {
		t.Error("cleared something else")
	}
}

func TestSpaceExtremes(t *testing.T) {
	s := NewSpace()
	m := &plain{bytes: make([]byte, 64)}
	for name, err := range map[string]error{
		"empty":           s.Map(0, 0, m, 0),
		"wrapping":        s.Map(^uint64(0)-10, 64, m, 0),
		"beyond memory":   s.Map(0, 64, m, 1),
		"offset wrapping": s.Map(0, 64, m, ^uint64(0)-10),
	} {
		if err == nil {
			t.Errorf("a mapping that is %s was made", name)
		}
	}
	var b [64]byte
	if err := s.ReadAt(b[:], ^uint64(0)-10); err == nil {
		t.Error("a read wraps")
	}
	s.SetManaged(failing{})
	var f *FaultError
	if err := s.WriteAt(b[:], 1<<40); !errors.As(err, &f) || !errors.Is(err, io.ErrClosedPipe) || f.Address != 1<<40 {
		t.Errorf("error of the memory behind: %v", err)
	}
}

type failing struct{}

func (failing) Size() uint64                       { return 1 << 47 }
func (failing) ReadAt([]byte, int64) (int, error)  { return 0, io.ErrClosedPipe }
func (failing) WriteAt([]byte, int64) (int, error) { return 0, io.ErrClosedPipe }

// TestClosedWhileMapped closes objects while others read and unmap them.
func TestClosedWhileMapped(t *testing.T) {
	s := NewSpace()
	var wait sync.WaitGroup
	for k := range uint64(4) {
		wait.Go(func() {
			for range 300 {
				m, err := NewShared("test", PageSize)
				if err != nil {
					t.Error(err)
					return
				}
				if err := s.Map(k*PageSize, PageSize, m, 0); err != nil {
					t.Error(err)
				}
				m.Close()
				s.Unmap(k*PageSize, PageSize)
			}
		})
		wait.Go(func() {
			var b [256]byte
			for range 3000 {
				err := s.ReadAt(b[:], k*PageSize+100)
				var f *FaultError
				if err != nil && (!errors.As(err, &f) || f.Err != nil) {
					t.Errorf("reading what may be mapped: %v", err)
				}
			}
		})
	}
	wait.Wait()
}
