package seccomp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// The handover is one message each way over a stream socket. The launcher sends
// one line, "killable" or "interruptible" and its thread id, with the listener
// attached; the supervisor replies with one line, "ok" or what is wrong.
const (
	lineKillable      = "killable"
	lineInterruptible = "interruptible"
	lineOK            = "ok"

	// maxLine bounds a line, its newline included.
	maxLine = 4096
)

// HandoverPair makes a connected pair of sockets for a handover: ours to keep, and
// the other end's to be inherited by the process there.
func HandoverPair() (ours *net.UnixConn, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("seccomp: make a pair of sockets: %w", err)
	}
	f := os.NewFile(uintptr(fds[0]), "handover")
	defer f.Close()
	theirs = os.NewFile(uintptr(fds[1]), "handover")
	ours, err = HandoverConn(f)
	if err != nil {
		theirs.Close()
	}
	return ours, theirs, err
}

// HandoverConn is the connection of an inherited end of a [HandoverPair]. It is a
// duplicate: f stays the caller's to close.
func HandoverConn(f *os.File) (*net.UnixConn, error) {
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("seccomp: take the handover's socket: %w", err)
	}
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		conn.Close()
		return nil, errors.New("seccomp: the handover's socket is not a unix socket")
	}
	return unixConn, nil
}

// Launch installs f on the current thread, hands its listener to the supervisor
// at the other end of conn, and returns when the supervisor has acknowledged.
// The caller then execs. The goroutine must be locked to its thread, as for
// [Install].
//
// Once Launch has been called the thread may be filtered, also when Launch fails:
// the process should then end. A supervisor's refusal is returned as its text.
func Launch(conn *net.UnixConn, f Filter, o InstallOptions) error {
	in, err := Install(f, o)
	if err != nil {
		return err
	}
	line := lineInterruptible
	if in.WaitKillable {
		line = lineKillable
	}
	line = fmt.Sprintf("%s %d\n", line, unix.Gettid())
	_, _, err = conn.WriteMsgUnix([]byte(line), unix.UnixRights(in.FD), nil)
	unix.Close(in.FD)
	if err != nil {
		return fmt.Errorf("seccomp: hand the listener to the supervisor: %w", err)
	}
	reply, err := readLine(conn)
	if err != nil {
		return fmt.Errorf("seccomp: wait for the supervisor to accept the listener: %w", err)
	}
	if reply != lineOK {
		return fmt.Errorf("seccomp: the supervisor refused: %s", reply)
	}
	return nil
}

// readLine reads up to a newline. Nothing may follow it.
func readLine(r io.Reader) (string, error) {
	buf := make([]byte, maxLine)
	n := 0
	for n < len(buf) {
		m, err := r.Read(buf[n:])
		n += m
		if i := bytes.IndexByte(buf[:n], '\n'); i >= 0 {
			return string(buf[:i]), nil
		}
		if errors.Is(err, io.EOF) {
			return "", io.ErrUnexpectedEOF
		}
		if err != nil {
			return "", err
		}
	}
	return "", fmt.Errorf("a line is longer than %d bytes", maxLine)
}

// Peer is the process at the other end of a handover, as the kernel recorded it
// when the connection was made: SO_PEERCRED, in this process's namespaces.
type Peer struct {
	PID      int // 0 when outside this process's pid namespace
	UID, GID int
	// Thread is the filtered thread, by the launcher's own word and in its pid
	// namespace. Capabilities are a thread's, and this is the one that execs.
	Thread int
}

// ReceiveListener takes a listener from a [Launch] at the other end of conn. The
// launcher waits until [Acknowledge]. A deadline set on conn applies.
func ReceiveListener(conn *net.UnixConn) (*Listener, Peer, error) {
	peer, err := peerOf(conn)
	if err != nil {
		return nil, peer, err
	}
	line, fds, err := receiveLine(conn)
	if err == nil && len(fds) != 1 {
		err = fmt.Errorf("%d descriptors came instead of one", len(fds))
	}
	var killable bool
	if err == nil {
		killable, peer.Thread, err = parseOffer(line)
	}
	if err != nil {
		closeAll(fds)
		return nil, peer, fmt.Errorf("seccomp: receive a listener from process %d: %w", peer.PID, err)
	}
	l, err := NewListener(fds[0])
	if err != nil {
		return nil, peer, err
	}
	l.WaitKillable = killable
	return l, peer, nil
}

// parseOffer takes the launcher's line apart.
func parseOffer(line string) (killable bool, thread int, err error) {
	mode, number, _ := strings.Cut(line, " ")
	thread, err = strconv.Atoi(number)
	if err != nil || thread <= 0 || mode != lineKillable && mode != lineInterruptible {
		return false, 0, fmt.Errorf("unknown message %.40q", line)
	}
	return mode == lineKillable, thread, nil
}

// receiveLine reads the launcher's message: it is short, and written in one
// piece together with its descriptors.
func receiveLine(conn *net.UnixConn) (string, []int, error) {
	buf := make([]byte, 64)
	oob := make([]byte, unix.CmsgSpace(4*4))
	n, oobn, flags, _, err := conn.ReadMsgUnix(buf, oob)
	if err != nil {
		return "", nil, err
	}
	fds, err := descriptors(oob[:oobn])
	if err != nil {
		return "", fds, err
	}
	if flags&unix.MSG_CTRUNC != 0 {
		return "", fds, errors.New("more descriptors came than expected")
	}
	line, ok := strings.CutSuffix(string(buf[:n]), "\n")
	if !ok {
		return "", fds, io.ErrUnexpectedEOF
	}
	return line, fds, nil
}

// descriptors are those of the control messages; the net package receives them
// close-on-exec.
func descriptors(oob []byte) ([]int, error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	var all []int
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			return all, err
		}
		all = append(all, fds...)
	}
	return all, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// Acknowledge lets the launcher at the other end of conn go on, when err is nil,
// or makes its [Launch] fail with err's text.
func Acknowledge(conn *net.UnixConn, err error) error {
	line := lineOK
	if err != nil {
		line = strings.Join(strings.Fields(err.Error()), " ")
		if line == "" || line == lineOK {
			line = "no reason was given"
		}
		line = line[:min(len(line), maxLine-1)]
	}
	if _, err := io.WriteString(conn, line+"\n"); err != nil {
		return fmt.Errorf("seccomp: acknowledge the listener: %w", err)
	}
	return nil
}

func peerOf(conn *net.UnixConn) (Peer, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return Peer{}, fmt.Errorf("seccomp: identify the launcher: %w", err)
	}
	var cred *unix.Ucred
	var sockErr error
	if err := raw.Control(func(fd uintptr) {
		cred, sockErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return Peer{}, fmt.Errorf("seccomp: identify the launcher: %w", err)
	}
	if sockErr != nil {
		return Peer{}, fmt.Errorf("seccomp: identify the launcher: %w", sockErr)
	}
	return Peer{PID: int(cred.Pid), UID: int(cred.Uid), GID: int(cred.Gid)}, nil
}
