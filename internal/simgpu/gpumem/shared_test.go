package gpumem

import (
	"bytes"
	"errors"
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

func newShared(t testing.TB, size uint64) *Shared {
	t.Helper()
	m, err := NewShared("test", size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// TestSharedIsMemory compares an object with a plain slice, across the boundary
// between access through the view and through the file.
func TestSharedIsMemory(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		m := newShared(t, 5*viewLimit)
		want := make([]byte, m.Size())
		r.Repeat(map[string]func(*rapid.T){
			"write": func(r *rapid.T) {
				off, n := drawRange(r, len(want))
				p := bytes.Repeat([]byte{rapid.Byte().Draw(r, "byte")}, n)
				if got, err := m.WriteAt(p, int64(off)); got != n || err != nil {
					r.Fatalf("wrote %d of %d bytes: %v", got, n, err)
				}
				copy(want[off:], p)
			},
			"clear": func(r *rapid.T) {
				off, n := drawRange(r, len(want))
				if err := m.ZeroAt(int64(off), uint64(n)); err != nil {
					r.Fatal(err)
				}
				clear(want[off : off+n])
			},
			"read": func(r *rapid.T) {
				off, n := drawRange(r, len(want))
				p := make([]byte, n)
				if got, err := m.ReadAt(p, int64(off)); got != n || err != nil {
					r.Fatalf("read %d of %d bytes: %v", got, n, err)
				}
				if !bytes.Equal(p, want[off:off+n]) || !bytes.Equal(m.Window(uint64(off), uint64(n)), p) {
					r.Fatal("read something else than was written")
				}
			},
		})
	})
}

func drawRange(r *rapid.T, size int) (off, n int) {
	off = rapid.IntRange(0, size).Draw(r, "offset")
	return off, rapid.IntRange(0, size-off).Draw(r, "length")
}

func TestSharedBounds(t *testing.T) {
	m := newShared(t, 100)
	if m.Size() != PageSize {
		t.Errorf("size is %d, want a page", m.Size())
	}
	for _, tt := range []struct {
		off int64
		n   int
	}{{-1, 1}, {PageSize, 1}, {PageSize - 1, 2}, {1 << 62, 1}, {0, PageSize + 1}} {
		p := make([]byte, tt.n)
		if _, err := m.ReadAt(p, tt.off); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("reading %d bytes at %d: %v", tt.n, tt.off, err)
		}
		if _, err := m.WriteAt(p, tt.off); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("writing %d bytes at %d: %v", tt.n, tt.off, err)
		}
		if m.Window(uint64(tt.off), uint64(tt.n)) != nil {
			t.Errorf("there is a window of %d bytes at %d", tt.n, tt.off)
		}
		if m.ZeroAt(tt.off, uint64(tt.n)) == nil {
			t.Errorf("cleared %d bytes at %d", tt.n, tt.off)
		}
	}
	if _, err := NewShared("test", 0); err == nil {
		t.Error("there is an object of no bytes")
	}
}

func TestSharedIsSparse(t *testing.T) {
	m := newShared(t, 40<<30)
	if _, err := m.WriteAt([]byte("x"), 39<<30); err != nil {
		t.Fatal(err)
	}
	big := make([]byte, 2*viewLimit)
	if _, err := m.ReadAt(big, 20<<30); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(m.File().Fd()), &st); err != nil {
		t.Fatal(err)
	}
	if st.Blocks*512 > 2<<20 {
		t.Errorf("%d bytes are backed", st.Blocks*512)
	}
}

func TestSharedCannotBeResized(t *testing.T) {
	m := newShared(t, 4*PageSize)
	fd := int(m.File().Fd())
	for _, size := range []int64{0, PageSize, 8 * PageSize} {
		if err := unix.Ftruncate(fd, size); !errors.Is(err, unix.EPERM) {
			t.Errorf("resizing to %d: %v, want EPERM", size, err)
		}
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE); !errors.Is(err, unix.EPERM) {
		t.Errorf("adding a seal: %v, want EPERM", err)
	}
}

func TestSharedLivesWhileHeld(t *testing.T) {
	m := newShared(t, PageSize)
	w := m.Window(0, PageSize)
	release, err := m.Hold()
	if err != nil {
		t.Fatal(err)
	}
	m.Close()
	m.Close() // ends the owner's hold only once
	w[0] = 7
	var b [1]byte
	if _, err := m.ReadAt(b[:], 0); err != nil || b[0] != 7 {
		t.Errorf("read %d, %v from a held object", b[0], err)
	}
	release()
	release()
	if _, err := m.ReadAt(b[:], 0); !errors.Is(err, ErrClosed) {
		t.Errorf("reading a released object: %v", err)
	}
	if _, err := m.Hold(); !errors.Is(err, ErrClosed) {
		t.Errorf("holding a released object: %v", err)
	}
	if m.Window(0, 1) != nil || m.File() != nil {
		t.Error("a released object has a window or a file")
	}
}

func TestUserPages(t *testing.T) {
	page := make([]byte, 2*PageSize)
	u, err := NewUserPages(os.Getpid(), addressOf(page)+100, PageSize)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := u.WriteAt([]byte("pinned"), 10); err != nil {
		t.Fatal(err)
	}
	if got := string(page[110:116]); got != "pinned" {
		t.Errorf("wrote %q", got)
	}
	var b [6]byte
	if _, err := u.ReadAt(b[:], 10); err != nil || string(b[:]) != "pinned" {
		t.Errorf("read %q, %v", b, err)
	}
	if _, err := u.ReadAt(b[:], PageSize-5); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("reading beyond the end: %v", err)
	}
	u.Close()
	if _, err := u.ReadAt(b[:], 0); !errors.Is(err, ErrClosed) {
		t.Errorf("reading after Close: %v", err)
	}
}

func TestUserPagesOfNobody(t *testing.T) {
	if _, err := NewUserPages(os.Getpid(), 0xffff_ffff_ffff_f000, 2*PageSize); err == nil {
		t.Error("a range wraps")
	}
	u, err := NewUserPages(os.Getpid(), 0x1000, PageSize)
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	if _, err := u.WriteAt([]byte{1}, 0); !errors.Is(err, unix.EFAULT) {
		t.Errorf("writing where nothing is mapped: %v, want EFAULT", err)
	}
}

func TestSharedLargerThanAddressSpace(t *testing.T) {
	const size = 1 << 47
	m := newShared(t, size)
	want := []byte("far away")
	const at = size - 1<<20
	if _, err := m.WriteAt(want, at); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(want))
	if _, err := m.ReadAt(got, at); err != nil || !bytes.Equal(got, want) {
		t.Errorf("ReadAt = %q, %v, want %q", got, err, want)
	}
	if w := m.Window(0, 1); w != nil {
		t.Error("a window on an object that cannot be mapped")
	}
}
