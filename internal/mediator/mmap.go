package mediator

import (
	"github.com/qgpu-project/qgpu/internal/seccomp"
	"golang.org/x/sys/unix"
)

const (
	pageSize = 4096
	// lowestUVM is the lowest offset of a mapping of a UVM file that is notified:
	// UVM demands that offset and address are the same, and no process maps lower.
	lowestUVM = 64 << 10
	// highOffset is an offset that no ordinary file reaches.
	highOffset = 1 << 44
	map32Bit   = 0x40 // MAP_32BIT
)

// mmap answers a mmap(2) that may take managed memory. That needs no ioctl: mapping a
// UVM file, shared and writable, at an address equal to the offset is enough, and the
// card's memory is taken when pages are touched. The length is charged.
//
// The kernel executes the call itself, with arguments that are registers and cannot
// change, but the descriptor may be swapped for one of a UVM file after the check. So
// a mapping of another file is let through only if the same call on a UVM file would
// fail: UVM refuses it unless the kernel places it exactly at the offset, which it
// may do only where the caller asked for that address, or left the choice to the
// kernel and named an offset where the kernel may place mappings.
func (m *Mediator) mmap(n Notification) seccomp.Answer {
	var (
		addr   = n.Arg(0)
		length = n.Arg(1)
		flags  = n.Arg(3)
		fd     = int32(n.Arg(4))
		offset = n.Arg(5)
	)
	dup, _, d, errno := m.descriptor(n, fd)
	switch errno {
	case 0:
		m.close(dup)
	case unix.ENOTTY:
	default:
		return fail(errno)
	}
	if errno != 0 || d.kind != uvmFile {
		fixed := flags&(unix.MAP_FIXED|unix.MAP_FIXED_NOREPLACE) != 0
		// The kernel rounds an address that is a wish to a page.
		near := addr-offset < pageSize || offset-addr < pageSize
		if near || flags&map32Bit != 0 || !fixed && offset >= highOffset {
			m.refused("mmap of another file where managed memory could lie")
			return fail(unix.EINVAL)
		}
		return letThrough()
	}
	end := offset + (length+pageSize-1)&^(pageSize-1)
	if length == 0 || end <= offset || addr != offset {
		return fail(unix.EINVAL) // as UVM would
	}
	pid, err := n.Process()
	if err != nil {
		return fail(unix.ESRCH)
	}
	if err := m.tenants.admit(pid); err != nil {
		return fail(unix.EAGAIN)
	}
	x := span{offset, end}
	if !m.ledger.mapManaged(pid, n.Thread(), x) {
		m.reconcile(n.Thread())
		if !m.ledger.mapManaged(pid, n.Thread(), x) {
			m.refused("managed memory over quota")
			return fail(unix.ENOMEM)
		}
	}
	m.recorded(pid)
	return letThrough()
}
