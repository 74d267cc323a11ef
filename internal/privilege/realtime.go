package privilege

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Realtime reports whether a thread, or this one if id is 0, has a real-time policy.
func Realtime(thread int) (bool, error) {
	policy, _, errno := unix.RawSyscall(unix.SYS_SCHED_GETSCHEDULER, uintptr(thread), 0, 0)
	if errno != 0 {
		return false, fmt.Errorf("ask how thread %d is scheduled: %w", thread, errno)
	}
	policy &^= schedResetOnFork
	return policy == unix.SCHED_FIFO || policy == unix.SCHED_RR, nil
}

// schedResetOnFork has the threads and processes that a thread makes scheduled as usual.
const schedResetOnFork = 0x40000000 // SCHED_RESET_ON_FORK, sched.h

// SetRealtime has this thread come before all that is scheduled as usual (SCHED_RR, at the
// lowest priority), or makes it usual again. Threads and processes that it makes from then
// on are scheduled likewise if inherit says so. It takes CAP_SYS_NICE, and may be refused by
// the machine's control groups all the same.
func SetRealtime(yes, inherit bool) error {
	attr := unix.SchedAttr{Policy: unix.SCHED_NORMAL}
	if yes {
		attr = unix.SchedAttr{Policy: unix.SCHED_RR, Priority: 1}
	}
	if !inherit {
		attr.Flags = unix.SCHED_FLAG_RESET_ON_FORK
	}
	if err := unix.SchedSetAttr(0, &attr, 0); err != nil {
		return fmt.Errorf("schedule this thread in real time (%v): %w", yes, err)
	}
	return nil
}

// BoundRealtime has this process killed if one of its threads takes a processor for so many
// microseconds in real time without ever waiting for anything (RLIMIT_RTTIME).
func BoundRealtime(us uint64) error {
	limit := unix.Rlimit{Cur: us, Max: us}
	if err := unix.Setrlimit(unix.RLIMIT_RTTIME, &limit); err != nil {
		return fmt.Errorf("bound processor time in real time: %w", err)
	}
	return nil
}
