// Package simgpu is the simulated driver: it answers the calls that NVIDIA's
// kernel modules would answer, for simulated cards. It owns RM clients and their
// objects, UVM address spaces, the cards with their memory, and the device files.
// It does not know how calls reach it: a Caller brings them. What a card's
// channels do once they run is the engine's business, in package engine.
package simgpu

import (
	"os"

	"github.com/qgpu-project/qgpu/internal/nvabi"
)

// NodeKind is a kind of device file.
type NodeKind uint8

const (
	NodeControl  NodeKind = iota + 1 // /dev/nvidiactl
	NodeCard                         // /dev/nvidiaN
	NodeUVM                          // /dev/nvidia-uvm
	NodeUVMTools                     // /dev/nvidia-uvm-tools
)

// Node names a device file.
type Node struct {
	Kind  NodeKind
	Minor int // of NodeCard
}

// FileID identifies an open device file, whoever holds it and under whatever
// descriptor number. Identify makes it.
type FileID struct {
	Dev, Ino uint64
	Event    uint64 // the eventfd-id for event files, which share one inode; else 0
}

// Caller is the process whose call is being answered.
type Caller interface {
	// Process is the caller's thread-group id in the driver's pid namespace.
	Process() (int, error)
	ReadMemory(p []byte, addr uint64) error
	WriteMemory(p []byte, addr uint64) error
	// FileOf identifies the file behind one of the caller's descriptors.
	FileOf(fd int32) (FileID, error)
	// ReplaceFile puts f in place of the caller's descriptor fd.
	ReplaceFile(fd int32, f *os.File) error
}

// PrivilegedCaller is a Caller that can say whether the calling process has
// CAP_SYS_ADMIN. The driver treats every other Caller as unprivileged.
type PrivilegedCaller interface {
	Caller
	Privileged() bool
}

func privileged(c Caller) bool {
	p, ok := c.(PrivilegedCaller)
	return ok && p.Privileged()
}

// NiceCaller is a Caller that can say whether the calling process has CAP_SYS_NICE.
type NiceCaller interface {
	Caller
	Nice() bool
}

// may reports whether the caller has the privilege that a control asks for.
func may(c Caller, who nvabi.Privilege) bool {
	switch who {
	case nvabi.Anyone:
		return true
	case nvabi.KernelOnly:
		return false
	case nvabi.Nice:
		if n, ok := c.(NiceCaller); ok && n.Nice() {
			return true
		}
	}
	return privileged(c)
}
