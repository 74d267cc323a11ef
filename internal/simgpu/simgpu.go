// Package simgpu is the simulated driver: it answers the calls that NVIDIA's
// kernel modules would answer, for simulated cards. It knows RM objects, UVM
// address spaces and channels, but not how calls reach it: a Caller brings them.
package simgpu

import "os"

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
// descriptor number.
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
