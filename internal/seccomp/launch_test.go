package seccomp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestSecondListenerIsRefused(t *testing.T) {
	got := run(t, launchConfig{}, "nested", echo(t))
	if !strings.HasPrefix(got, "true") || !strings.Contains(got, "already runs under a filter with a listener") {
		t.Errorf("got %q, want an explained EBUSY", got)
	}
}

func TestX32IsRefused(t *testing.T) {
	if got, want := run(t, launchConfig{}, "x32", echo(t)), fmt.Sprint(int(foreignErrno)); got != want {
		t.Errorf("x32 call: errno %s, want %s", got, want)
	}
}

// TestI386IsRefused runs a program of a few instructions that issues an ioctl
// through the 32-bit entry and exits with its errno. Where the kernel has no such
// entry, the instruction itself ends the program, filtered or not.
func TestI386IsRefused(t *testing.T) {
	code := []byte{
		0xb8, 54, 0, 0, 0, // mov eax, 54 (ioctl on i386)
		0xbb, 1, 0, 0, 0, // mov ebx, 1
		0xb9, 0, 0, 0, 0, // mov ecx, testCmd
		0x31, 0xd2, // xor edx, edx
		0xcd, 0x80, // int 0x80
		0x89, 0xc7, // mov edi, eax
		0xf7, 0xdf, // neg edi
		0xb8, 60, 0, 0, 0, // mov eax, 60 (exit on x86-64)
		0x0f, 0x05, // syscall
	}
	binary.LittleEndian.PutUint32(code[11:], testCmd)
	path := filepath.Join(t.TempDir(), "i386")
	if err := os.WriteFile(path, elf(code), 0o700); err != nil {
		t.Fatal(err)
	}
	want := int(foreignErrno)
	if err := exec.Command(path).Run(); exitCode(err) == -1 {
		t.Logf("this kernel lets no program make 32-bit calls: %v", err)
		want = -1
	}
	p := start(t, launchConfig{options: "exec=" + path}, "none")
	p.serve(handlerFunc(func(*Notification) Answer {
		t.Error("the 32-bit call was notified")
		return Result(0)
	}))
	if got := p.cmd.ProcessState.ExitCode(); got != want {
		t.Errorf("32-bit call: errno %d, want %d", got, want)
	}
}

// exitCode is a program's exit code, -1 if it did not exit by itself.
func exitCode(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return 0
}

// elf is an executable of the given code, loaded whole at 4 MiB.
func elf(code []byte) []byte {
	const base, headers = 0x400000, 64 + 56
	size := uint64(headers + len(code))
	b := append([]byte("\x7fELF\x02\x01\x01"), make([]byte, 9)...)
	b = binary.LittleEndian.AppendUint16(b, 2)    // executable
	b = binary.LittleEndian.AppendUint16(b, 0x3e) // x86-64
	b = binary.LittleEndian.AppendUint32(b, 1)
	for _, v := range []uint64{base + headers, 64, 0} { // entry, program headers, sections
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	b = binary.LittleEndian.AppendUint32(b, 0)
	for _, v := range []uint16{64, 56, 1, 64, 0, 0} {
		b = binary.LittleEndian.AppendUint16(b, v)
	}
	b = binary.LittleEndian.AppendUint32(b, 1) // load
	b = binary.LittleEndian.AppendUint32(b, 5) // readable, executable
	for _, v := range []uint64{0, base, base, size, size, 4096} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return append(b, code...)
}

func TestRefusalReachesTheLauncher(t *testing.T) {
	p := start(t, launchConfig{refuse: errors.New("tenant t1\nis not\texpected")}, "calls 1 1")
	p.wait()
	want := "launch failed: seccomp: the supervisor refused: tenant t1 is not expected"
	if got := strings.TrimSpace(p.out.String()); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestPeerIsTheLauncher(t *testing.T) {
	p := start(t, launchConfig{}, "calls 1 1")
	// Of a socket pair the kernel records who made it.
	if want := (Peer{PID: os.Getpid(), UID: os.Getuid(), GID: os.Getgid(), Thread: p.peer.Thread}); p.peer != want || p.peer.Thread == 0 {
		t.Errorf("got %+v, want %+v", p.peer, want)
	}
}

func TestNoNewPrivs(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to compare launchers with and without CAP_SYS_ADMIN")
	}
	for _, tt := range []struct {
		name, want string
		config     launchConfig
	}{
		{"root", "0", launchConfig{}},
		{"unprivileged", "1", launchConfig{uid: 65534}},
		{"root on demand", "1", launchConfig{options: "nonewprivs"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got, want := run(t, tt.config, "privileges", echo(t)), "NoNewPrivs:\t"+tt.want; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

func TestUnprivilegedProgram(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to become another user")
	}
	if got, want := run(t, launchConfig{uid: 65534}, "threads 1 2", echo(t)), "0: 0 0 0\n0: 0 0 0"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestReceiveRejects(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	fd := int(null.Fd())
	tests := []struct {
		name string
		line string
		fds  []int
		want string
	}{
		{"no descriptor", "killable\n", nil, "0 descriptors"},
		{"two descriptors", "killable\n", []int{fd, fd}, "2 descriptors"},
		{"many descriptors", "killable\n", []int{fd, fd, fd, fd, fd, fd, fd, fd}, "more descriptors"},
		{"another descriptor", "killable 7\n", []int{fd}, "not a seccomp listener"},
		{"another message", "hello\n", []int{fd}, "unknown message"},
		{"no thread", "killable\n", []int{fd}, "unknown message"},
		{"thread 0", "killable 0\n", []int{fd}, "unknown message"},
		{"more than a thread", "killable 7 7\n", []int{fd}, "unknown message"},
		{"no newline", "killable", []int{fd}, "unexpected EOF"},
		{"long message", strings.Repeat("k", 500) + "\n", []int{fd}, "unexpected EOF"},
		{"nothing", "", nil, "EOF"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := openDescriptors(t)
			conn, theirs := socketPair(t)
			if tt.line != "" {
				if err := unix.Sendmsg(int(theirs.Fd()), []byte(tt.line), unix.UnixRights(tt.fds...), nil, 0); err != nil {
					t.Fatal(err)
				}
			}
			theirs.Close()
			_, _, err := ReceiveListener(conn)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error with %q", err, tt.want)
			}
			conn.Close()
			if after := openDescriptors(t); after != before {
				t.Errorf("%d descriptors are open, %d were before", after, before)
			}
		})
	}
}

func openDescriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestProbeFeatures(t *testing.T) {
	f, err := ProbeFeatures()
	if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EPERM) {
		t.Skipf("this environment lets no process have a seccomp listener: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if missing := f.Missing(); len(missing) != 0 {
		t.Errorf("the other tests pass here, yet %v is reported missing", missing)
	}
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(unix.ByteSliceToString(uts.Release[:]), f.KernelVersion) {
		t.Errorf("kernel version %q", f.KernelVersion)
	}
	// No thread that lives on has a filter; the one that had may be about to end.
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		status := filteredThread(t)
		if status == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("a thread is filtered after the probe:\n%s", status)
		}
	}
}

// filteredThread is the status of one of this process's threads that is filtered.
func filteredThread(t *testing.T) string {
	t.Helper()
	tasks, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range tasks {
		status, err := os.ReadFile(path)
		if err != nil {
			continue // that thread has ended
		}
		if strings.Contains(string(status), "Seccomp_filters:\t1") {
			return string(status)
		}
	}
	return ""
}

func TestMissingFeaturesAreNamed(t *testing.T) {
	if got := len(Features{}.Missing()); got != 4 {
		t.Errorf("a kernel without anything lacks %d required features, want 4", got)
	}
}
