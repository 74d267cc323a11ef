package seccomp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The filtered programs are this test binary itself, started again. It first
// becomes a launcher, which installs testFilter and execs, and then one of the
// programs of programs_test.go.
const (
	envLaunch  = "SECCOMP_TEST_LAUNCH"  // the launcher's options
	envProgram = "SECCOMP_TEST_PROGRAM" // program and arguments
	handoverFD = 3
)

const (
	// sizeAndNr is what a driver that ignores direction and type looks at.
	sizeAndNr = 0x3fff00ff
	callSize  = 48
	callNr    = 0x2a
	testCmd   = 3<<30 | callSize<<16 | 'Q'<<8 | callNr

	foreignErrno = unix.EXDEV // one no kernel gives by itself
)

// testFilter notifies one ioctl, among as many others as a driver may have,
// openat for writing, and mmap of high offsets.
func testFilter() Filter {
	set := []uint32{callSize<<16 | callNr}
	for i := range uint32(150) {
		set = append(set, (100+8*i)<<16|i)
	}
	return Filter{
		Rules: []Rule{
			{Nr: unix.SYS_IOCTL, When: []Condition{MaskedIn(1, sizeAndNr, set...)}, Action: Notify},
			{Nr: unix.SYS_OPENAT, When: []Condition{MaskedIn(2, unix.O_ACCMODE|unix.O_CREAT, unix.O_RDWR)}, Action: Notify},
			{Nr: unix.SYS_MMAP, When: []Condition{AtLeast(5, 1<<40)}, Action: Notify},
		},
		Foreign: Errno(foreignErrno),
	}
}

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(envLaunch) != "":
		fmt.Println("launch failed:", launchProgram(strings.Split(os.Getenv(envLaunch), ",")))
		os.Exit(125)
	case os.Getenv(envProgram) != "":
		args := strings.Fields(os.Getenv(envProgram))
		os.Exit(programs[args[0]](args[1:]))
	default:
		os.Exit(m.Run())
	}
}

// launchProgram installs the filter and execs; it returns only to fail.
func launchProgram(options []string) error {
	runtime.LockOSThread()
	var o InstallOptions
	path := "/proc/self/exe"
	for _, option := range options {
		name, value, _ := strings.Cut(option, "=")
		switch name {
		case "interruptible":
			o.Interruptible = true
		case "nonewprivs":
			o.NoNewPrivs = true
		case "exec":
			path = value
		}
	}
	file := os.NewFile(handoverFD, "handover")
	conn, err := net.FileConn(file)
	if err != nil {
		return err
	}
	file.Close()
	if err := Launch(conn.(*net.UnixConn), testFilter(), o); err != nil {
		return err
	}
	os.Unsetenv(envLaunch)
	return syscall.Exec(path, []string{"filtered"}, os.Environ())
}

// tenant is a filtered program under test.
type tenant struct {
	t        testing.TB
	cmd      *exec.Cmd
	out      bytes.Buffer
	listener *Listener
	peer     Peer
	waited   bool
}

type launchConfig struct {
	options string // of the launcher
	uid     int    // run as this user
	refuse  error  // refuse the listener
}

// start runs a program under the filter; the listener is not served yet.
func start(t testing.TB, c launchConfig, program string) *tenant {
	t.Helper()
	conn, theirs := socketPair(t)
	p := &tenant{t: t, cmd: exec.Command("/proc/self/exe")}
	p.cmd.Env = append(os.Environ(), envLaunch+"=run,"+c.options, envProgram+"="+program, "GORACE=atexit_sleep_ms=0")
	p.cmd.Stdout = &p.out
	p.cmd.Stderr = os.Stderr
	p.cmd.WaitDelay = 20 * time.Second
	p.cmd.ExtraFiles = []*os.File{theirs}
	if c.uid != 0 {
		p.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(c.uid), Gid: uint32(c.uid)}}
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	t.Cleanup(p.kill)
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	l, peer, err := ReceiveListener(conn)
	if err != nil {
		p.wait()
		skipIfForbidden(t, p.out.String())
		t.Fatalf("receive the listener: %v\n%s", err, p.out.String())
	}
	t.Cleanup(func() { l.Close() })
	if err := Acknowledge(conn, c.refuse); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	p.listener, p.peer = l, peer
	return p
}

// skipIfForbidden ends a test where a sandbox of ours forbids listeners.
func skipIfForbidden(t testing.TB, output string) {
	for _, errno := range []unix.Errno{unix.EPERM, unix.EBUSY, unix.ENOSYS} {
		if strings.Contains(output, "install the filter") && strings.Contains(output, errno.Error()) {
			t.Skipf("this environment lets no process have a seccomp listener: %s", output)
		}
	}
}

func socketPair(t testing.TB) (ours *net.UnixConn, theirs *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fds[0]), "ours")
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn.(*net.UnixConn), os.NewFile(uintptr(fds[1]), "theirs")
}

func (p *tenant) kill() {
	if !p.waited {
		p.cmd.Process.Kill()
		p.wait()
	}
}

func (p *tenant) wait() error {
	p.waited = true
	return p.cmd.Wait()
}

// serve answers until the program and its descendants have ended, and returns
// what it printed.
func (p *tenant) serve(h Handler) string {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := p.listener.Serve(ctx, h); err != nil {
		p.t.Fatalf("serve: %v", err)
	}
	err := p.wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		p.t.Fatal(err)
	}
	return strings.TrimSpace(p.out.String())
}

// run starts a program, serves it to its end and returns what it printed.
func run(t testing.TB, c launchConfig, program string, h Handler) string {
	t.Helper()
	return start(t, c, program).serve(h)
}

type handlerFunc func(*Notification) Answer

func (f handlerFunc) Handle(n *Notification) Answer { return f(n) }

// lossHandler is a handler that also observes losses.
type lossHandler struct {
	handlerFunc
	lost func(*Notification, Answer)
}

func (h lossHandler) Lost(n *Notification, a Answer) { h.lost(n, a) }

// arg is the i-th argument of a program as a number.
func arg(args []string, i int) int {
	n, err := strconv.Atoi(args[i])
	if err != nil {
		panic(err)
	}
	return n
}
