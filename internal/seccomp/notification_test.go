package seccomp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// fileOf makes an anonymous file with some content.
func fileOf(t testing.TB, content string) *os.File {
	t.Helper()
	f := os.NewFile(uintptr(memfd()), "content")
	t.Cleanup(func() { f.Close() })
	if _, err := f.WriteString(content); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestOpenByInjection(t *testing.T) {
	var closed atomic.Int32
	got := run(t, launchConfig{}, "open /made/up /made/up/too /made/nothing", handlerFunc(func(n *Notification) Answer {
		path, err := n.ReadString(n.Arg(1), unix.PathMax)
		if err != nil {
			t.Error(err)
		}
		if path == "/made/nothing" {
			return Fail(unix.ENOENT)
		}
		f := fileOf(t, path)
		return Answer{Inject: int(f.Fd()), Cloexec: path == "/made/up", Release: closer(func() { closed.Add(1); f.Close() })}
	}))
	want := "\"/made/up\" <nil> cloexec=true\n\"/made/up/too\" <nil> cloexec=false\nno such file or directory"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if closed.Load() != 2 {
		t.Errorf("%d files were released, want 2", closed.Load())
	}
}

type closer func()

func (c closer) Close() error { c(); return nil }

func TestInjectionIntoAFullTable(t *testing.T) {
	f := fileOf(t, "")
	got := run(t, launchConfig{}, "full", handlerFunc(func(n *Notification) Answer {
		return Answer{Inject: int(f.Fd())}
	}))
	if !strings.HasSuffix(got, "true") {
		t.Errorf("got %q, want EMFILE", got)
	}
}

func TestInjectionOfABadDescriptor(t *testing.T) {
	got := run(t, launchConfig{}, "calls 1 1", handlerFunc(func(n *Notification) Answer { return Answer{Inject: 1 << 20} }))
	if want := fmt.Sprintf("1: -1 0 %d", unix.EIO); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestInjectAndReplace(t *testing.T) {
	replacement, addition := fileOf(t, "replaced"), fileOf(t, "added")
	got := run(t, launchConfig{}, "replaced 1", handlerFunc(func(n *Notification) Answer {
		if err := n.Replace(int(replacement.Fd()), int32(n.Arg(0)), true); err != nil {
			t.Error(err)
		}
		if err := n.Replace(int(replacement.Fd()), -1, true); !errors.Is(err, unix.EBADF) {
			t.Errorf("descriptor -1 was replaced: %v", err)
		}
		added, err := n.Inject(int(addition.Fd()), false)
		if err != nil {
			t.Error(err)
		}
		if err := n.WriteMemory(binary.LittleEndian.AppendUint64(nil, uint64(added)), n.Arg(2)+8); err != nil {
			t.Error(err)
		}
		return Result(1)
	}))
	if want := "1 \"replaced\" <nil>\n1 \"added\" <nil>"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func testDup(t *testing.T, byProcess bool) {
	p := start(t, launchConfig{}, "threads 4 3")
	p.listener.threads.byProcess.Store(byProcess)
	want := uint64(0)
	p.serve(handlerFunc(func(n *Notification) Answer {
		fd, err := n.Dup(int32(n.Arg(0)))
		if err != nil {
			t.Error(err)
			return Fail(err)
		}
		defer unix.Close(fd)
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			t.Error(err)
		}
		if want == 0 {
			want = st.Ino
		}
		if st.Ino != want {
			t.Errorf("duplicated file %d, want %d", st.Ino, want)
		}
		if flags, _ := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); flags&unix.FD_CLOEXEC == 0 {
			t.Error("the duplicate is not close-on-exec")
		}
		if _, err := n.Dup(9999); !errors.Is(err, unix.EBADF) {
			t.Errorf("descriptor 9999: %v, want EBADF", err)
		}
		return Result(0)
	}))
	if want == 0 {
		t.Error("there were no calls")
	}
}

func TestDup(t *testing.T)          { testDup(t, false) }
func TestDupByProcess(t *testing.T) { testDup(t, true) }

// TestStaleThreads plants memories of other threads under the caller's id, as
// they are when a thread id is used again.
func TestStaleThreads(t *testing.T) {
	dead := start(t, launchConfig{}, "calls 1 1")
	pidfd, err := unix.PidfdOpen(dead.cmd.Process.Pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	dead.kill()
	for _, byProcess := range []bool{false, true} {
		t.Run(fmt.Sprintf("byProcess=%v", byProcess), func(t *testing.T) {
			p := start(t, launchConfig{}, "calls 1 1")
			p.listener.threads.byProcess.Store(byProcess)
			stale, err := unix.FcntlInt(uintptr(pidfd), unix.F_DUPFD_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			p.serve(handlerFunc(func(n *Notification) Answer {
				p.listener.threads.put(&thread{id: n.Thread(), process: os.Getpid(), pidfd: stale})
				if got, err := n.Process(); err != nil || got != p.cmd.Process.Pid {
					t.Errorf("process %d, %v; want %d", got, err, p.cmd.Process.Pid)
				}
				fd, err := n.Dup(int32(n.Arg(0)))
				if err != nil {
					t.Error(err)
				}
				unix.Close(fd)
				return Result(0)
			}))
		})
	}
	unix.Close(pidfd)
}

func TestMemoryErrors(t *testing.T) {
	run(t, launchConfig{}, "calls 1 1", handlerFunc(func(n *Notification) Answer {
		buf := make([]byte, 64)
		for _, addr := range []uint64{0, 8, 1 << 63, 1<<64 - 1} {
			if err := n.ReadMemory(buf, addr); !errors.Is(err, unix.EFAULT) {
				t.Errorf("read at %#x: %v, want EFAULT", addr, err)
			}
			if err := n.WriteMemory(buf, addr); !errors.Is(err, unix.EFAULT) {
				t.Errorf("write at %#x: %v, want EFAULT", addr, err)
			}
			if _, err := n.ReadString(addr, 10); !errors.Is(err, unix.EFAULT) {
				t.Errorf("string at %#x: %v, want EFAULT", addr, err)
			}
		}
		if err := n.ReadMemory(nil, 0); err != nil {
			t.Errorf("read of nothing: %v", err)
		}
		return Result(0)
	}))
}

func TestMemoryEndsAtAPage(t *testing.T) {
	run(t, launchConfig{}, "edge", handlerFunc(func(n *Notification) Answer {
		addr, buf := n.Arg(2), make([]byte, edgeText+1)
		if err := n.ReadMemory(buf[:edgeText], addr); err != nil {
			t.Errorf("read up to the end: %v", err)
		}
		if err := n.ReadMemory(buf, addr); !errors.Is(err, unix.EFAULT) {
			t.Errorf("read beyond the end: %v, want EFAULT", err)
		}
		if err := n.WriteMemory(buf, addr); !errors.Is(err, unix.EFAULT) {
			t.Errorf("write beyond the end: %v, want EFAULT", err)
		}
		if s, err := n.ReadString(addr, unix.PathMax); err != nil || len(s) != edgeText-1 {
			t.Errorf("string up to the end: got %d bytes, %v; want %d", len(s), err, edgeText-1)
		}
		if _, err := n.ReadString(addr+edgeText, unix.PathMax); !errors.Is(err, unix.EFAULT) {
			t.Errorf("string beyond the end: %v, want EFAULT", err)
		}
		return Result(0)
	}))
}

func TestReadString(t *testing.T) {
	long := "/" + strings.Repeat("long/", 200) + "end"
	run(t, launchConfig{}, "open "+long, handlerFunc(func(n *Notification) Answer {
		if got, err := n.ReadString(n.Arg(1), len(long)); err != nil || got != long {
			t.Errorf("got %q, %v; want %q", got, err, long)
		}
		for _, max := range []int{0, 1, 300, len(long) - 1} {
			if _, err := n.ReadString(n.Arg(1), max); !errors.Is(err, unix.ENAMETOOLONG) {
				t.Errorf("at most %d bytes: %v, want ENAMETOOLONG", max, err)
			}
		}
		if got, err := n.ReadString(n.Arg(1)+uint64(len(long)), 0); err != nil || got != "" {
			t.Errorf("empty string: got %q, %v", got, err)
		}
		return Fail(unix.ENOENT)
	}))
}

func TestProcessOfThreads(t *testing.T) {
	p := start(t, launchConfig{}, "threads 3 2")
	p.serve(handlerFunc(func(n *Notification) Answer {
		for range 2 {
			if got, err := n.Process(); err != nil || got != p.cmd.Process.Pid {
				t.Errorf("process %d, %v; want %d", got, err, p.cmd.Process.Pid)
			}
		}
		return Result(0)
	}))
}

func TestParseTgid(t *testing.T) {
	for in, want := range map[string]int{
		"Name:\tx\nUmask:\t0022\nState:\tS\nTgid:\t42\nNgid:\t0\n": 42,
		"Name:\tTgid:\t7\nTgid:\t8\n":                              8,
		"Name:\tx\nTgid:\t":                                        0,
		"Name:\tx\nTgid:\t-1\n":                                    0,
		"":                                                         0,
	} {
		got, err := parseTgid([]byte(in))
		if got != want || (err == nil) != (want != 0) {
			t.Errorf("%q: got %d, %v; want %d", in, got, err, want)
		}
	}
}

func TestThreadCacheForgetsTheOldest(t *testing.T) {
	c := newThreadCache(2)
	pipes := make(map[int]*os.File)
	for id := 1; id <= 3; id++ {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		fd, err := unix.Dup(int(w.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		w.Close()
		pipes[id] = r
		c.put(&thread{id: id, process: 100 + id, pidfd: fd})
		c.put(c.take(1)) // 1 stays the most recent
	}
	if got := c.take(2); got.process != 0 || got.pidfd != -1 {
		t.Errorf("thread 2 is remembered: %+v", got)
	}
	for _, id := range []int{1, 3} {
		if got := c.take(id); got.process != 100+id {
			t.Errorf("thread %d is forgotten", id)
		} else {
			c.put(got)
		}
	}
	c.close()
	c.put(&thread{id: 4, pidfd: -1})
	// All write ends are closed now, so each read end is at its end.
	for id, r := range pipes {
		if n, err := r.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
			t.Errorf("descriptor of thread %d: read %d, %v; want EOF", id, n, err)
		}
	}
}

func TestFail(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want Answer
	}{
		{nil, Answer{}},
		{unix.EPERM, Answer{Errno: int(unix.EPERM)}},
		{fmt.Errorf("wrapped: %w", unix.EFAULT), Answer{Errno: int(unix.EFAULT)}},
		{ErrGone, Answer{Errno: int(unix.ESRCH)}},
		{errors.New("of no number"), Answer{Errno: int(unix.EIO)}},
		{unix.Errno(0), Answer{Errno: int(unix.EIO)}},
	} {
		if got := Fail(tt.err); got != tt.want {
			t.Errorf("Fail(%v) = %+v, want %+v", tt.err, got, tt.want)
		}
	}
}

func TestHostileLine(t *testing.T) {
	if _, err := readLine(bytes.NewReader(bytes.Repeat([]byte{'x'}, 2*maxLine))); err == nil {
		t.Error("an endless line was accepted")
	}
	if _, err := readLine(strings.NewReader("unfinished")); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v, want %v", err, io.ErrUnexpectedEOF)
	}
}
