// Package privilege gives up privileges of the calling thread before it executes
// another program. It knows users and capabilities, not who needs which.
//
// Linux keeps credentials by thread: callers lock theirs and then execute.
package privilege

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Set is a set of capabilities, a bit for each.
type Set uint64

// Of is the set of caps.
func Of(caps ...int) Set {
	var s Set
	for _, c := range caps {
		s |= 1 << c
	}
	return s
}

// Has reports whether s holds c.
func (s Set) Has(c int) bool { return s&(1<<c) != 0 }

// Bound restricts the bounding set to keep: programs that are executed from now
// on, also as root or setuid root, get no other capability.
func Bound(keep Set) error {
	last, err := lastCapability()
	if err != nil {
		return err
	}
	for c := range last + 1 {
		if keep.Has(c) {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0); err != nil {
			return fmt.Errorf("drop capability %d from the bounding set: %w", c, err)
		}
	}
	return nil
}

func lastCapability() (int, error) {
	text, err := os.ReadFile("/proc/sys/kernel/cap_last_cap")
	if err != nil {
		return 0, fmt.Errorf("read the kernel's capabilities: %w", err)
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// User makes the calling thread uid and gid, without supplementary groups, and
// with the capabilities keep, which survive an exec.
func User(uid, gid int, keep Set) error {
	if err := unix.Prctl(unix.PR_SET_KEEPCAPS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("keep capabilities: %w", err)
	}
	// The raw calls change this thread alone; Go's wrappers change them all.
	steps := []struct {
		what string
		nr   uintptr
		args [3]uintptr
	}{
		{"leave supplementary groups", unix.SYS_SETGROUPS, [3]uintptr{0, 0, 0}},
		{"become group", unix.SYS_SETRESGID, [3]uintptr{uintptr(gid), uintptr(gid), uintptr(gid)}},
		{"become user", unix.SYS_SETRESUID, [3]uintptr{uintptr(uid), uintptr(uid), uintptr(uid)}},
	}
	for _, s := range steps {
		if _, _, errno := unix.RawSyscall(s.nr, s.args[0], s.args[1], s.args[2]); errno != 0 {
			return fmt.Errorf("%s: %w", s.what, errno)
		}
	}
	return restrict(keep)
}

// restrict makes keep the thread's permitted, effective, inheritable and ambient
// capabilities.
func restrict(keep Set) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	for i := range data {
		half := uint32(keep >> (32 * i))
		data[i] = unix.CapUserData{Effective: half, Permitted: half, Inheritable: half}
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&data[0])), 0); errno != 0 {
		return fmt.Errorf("restrict capabilities: %w", errno)
	}
	for c := range 64 {
		if !keep.Has(c) {
			continue
		}
		if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, uintptr(c), 0, 0); err != nil {
			return fmt.Errorf("keep capability %d across exec: %w", c, err)
		}
	}
	return nil
}

// Bounding is the bounding set of the thread or process pid: what it or any
// program that it executes can ever have.
func Bounding(pid int) (Set, error) { return capabilities(pid, "CapBnd:") }

// Effective is the set that the kernel grants the thread or process pid by at
// present. It counts in the user namespace of the process.
func Effective(pid int) (Set, error) { return capabilities(pid, "CapEff:") }

func capabilities(pid int, key string) (Set, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("read the capabilities of process %d: %w", pid, err)
	}
	for line := range strings.Lines(string(text)) {
		if v, ok := strings.CutPrefix(line, key); ok {
			s, err := strconv.ParseUint(strings.TrimSpace(v), 16, 64)
			return Set(s), err
		}
	}
	return 0, fmt.Errorf("the status of process %d has no %s line", pid, strings.TrimSuffix(key, ":"))
}

// SameUserNamespace reports whether the thread or process pid has this process's user
// namespace: only then do its capabilities count where this process's do.
func SameUserNamespace(pid int) (bool, error) {
	own, err := os.Stat("/proc/self/ns/user")
	if err != nil {
		return false, fmt.Errorf("find this process's user namespace: %w", err)
	}
	its, err := os.Stat(fmt.Sprintf("/proc/%d/ns/user", pid))
	if err != nil {
		return false, fmt.Errorf("find the user namespace of process %d: %w", pid, err)
	}
	return os.SameFile(own, its), nil
}
