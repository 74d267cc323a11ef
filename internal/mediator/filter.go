package mediator

import (
	"maps"
	"slices"

	"github.com/qgpu-project/qgpu/internal/nvabi"
	"github.com/qgpu-project/qgpu/internal/seccomp"
	"golang.org/x/sys/unix"
)

// Filter is the seccomp filter to put before a tenant's program: which calls the
// mediator must see with a driver of this ABI. A call that is not notified must not
// reach a device file with any effect.
func Filter(abi *nvabi.ABI) seccomp.Filter {
	rules := []seccomp.Rule{
		// FIBMAP and FIGETBSZ are numbers of UVM's, but UVM does not take them on Linux.
		{Nr: unix.SYS_IOCTL, When: []seccomp.Condition{seccomp.In(1, 0, 1, 2)}, Action: seccomp.Allow},
		// UVM's commands are small numbers, those of its tests included.
		{Nr: unix.SYS_IOCTL, When: []seccomp.Condition{seccomp.MaskedIn(1, ^uint32(0x1ff), 0)}, Action: seccomp.Notify},
		{Nr: unix.SYS_IOCTL, When: []seccomp.Condition{seccomp.In(1, large(abi.UVMNumbers())...)}, Action: seccomp.Notify},
	}
	rules = append(rules, ioctlRules(unix.SYS_IOCTL, abi.IoctlMatches(), seccomp.Notify)...)
	return seccomp.Filter{Rules: append(rules, []seccomp.Rule{
		{Nr: unix.SYS_OPENAT, When: []seccomp.Condition{opensForBoth(2)}, Action: seccomp.Notify},
		{Nr: unix.SYS_OPEN, When: []seccomp.Condition{opensForBoth(1)}, Action: seccomp.Notify},

		// Managed memory: see mmap.
		{Nr: unix.SYS_MMAP, When: []seccomp.Condition{
			seccomp.AtLeast(5, lowestUVM),
			seccomp.MaskedIn(3, unix.MAP_SHARED, unix.MAP_SHARED),
			seccomp.MaskedIn(2, unix.PROT_WRITE, unix.PROT_WRITE),
			seccomp.MaskedIn(4, 1<<31, 0), // a descriptor
		}, Action: seccomp.Notify},

		// A ring opens and closes files with no system call. Programs do without it where
		// the kernel has none.
		{Nr: unix.SYS_IO_URING_SETUP, Action: seccomp.Errno(unix.ENOSYS)},
		{Nr: unix.SYS_IO_URING_ENTER, Action: seccomp.Errno(unix.ENOSYS)},
		{Nr: unix.SYS_IO_URING_REGISTER, Action: seccomp.Errno(unix.ENOSYS)},
		// The kernel answers a second listener the same; a listener of the tenant's own
		// would be asked before the mediator.
		{Nr: unix.SYS_SECCOMP, When: []seccomp.Condition{
			seccomp.In(0, unix.SECCOMP_SET_MODE_FILTER),
			seccomp.MaskedIn(1, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER),
		}, Action: seccomp.Errno(unix.EBUSY)},
	}...)}
}

// OutsiderFilter is the seccomp filter for programs beside a tenant that have no share:
// device files of the tenant's, which it may pass them over a socket, are of no use to
// them. The driver takes calls from whoever holds its files. It needs no mediator, and
// knows a call by its number and size alone, as the driver does; such calls fail with
// EPERM.
func OutsiderFilter() seccomp.Filter {
	const i386Ioctl = 54 // arch/x86/entry/syscalls/syscall_32.tbl; the driver takes these, too
	denied := seccomp.Errno(unix.EPERM)
	deny := func(nr int) []seccomp.Rule {
		rules := []seccomp.Rule{{Nr: nr, When: []seccomp.Condition{seccomp.In(1, nvabi.AllUVMNumbers()...)}, Action: denied}}
		return append(rules, ioctlRules(nr, nvabi.ObjectMatches(), denied)...)
	}
	return seccomp.Filter{Rules: deny(unix.SYS_IOCTL), I386: deny(i386Ioctl)}
}

// ioctlRules has what matches say of system call nr, an ioctl, get an action: a rule for
// each mask.
func ioctlRules(nr int, matches []nvabi.IoctlMatch, action seccomp.Action) []seccomp.Rule {
	values := make(map[uint32][]uint32)
	for _, match := range matches {
		values[match.Mask] = append(values[match.Mask], match.Value)
	}
	var rules []seccomp.Rule
	for _, mask := range slices.Sorted(maps.Keys(values)) {
		rules = append(rules, seccomp.Rule{Nr: nr, When: []seccomp.Condition{seccomp.MaskedIn(1, mask, values[mask]...)}, Action: action})
	}
	return rules
}

// opensForBoth holds for the flags of an open for reading and writing that creates
// nothing, as every program opens device files of NVIDIA's. The tenant itself may
// open them in no other way either.
func opensForBoth(arg int) seccomp.Condition {
	return seccomp.MaskedIn(arg, unix.O_ACCMODE|unix.O_CREAT, unix.O_RDWR)
}

// large are the numbers that the rule for small ones leaves.
func large(numbers []uint32) []uint32 {
	var list []uint32
	for _, n := range numbers {
		if n > 0x1ff {
			list = append(list, n)
		}
	}
	return list
}
