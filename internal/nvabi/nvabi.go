// Package nvabi is the user-space ABI of NVIDIA's Linux driver as data: which
// ioctls, RM controls, RM classes and UVM commands each driver version has, how
// large their arguments are, and where those arguments hold pointers and file
// descriptors. It decides nothing: what is allowed, rewritten or refused is the
// mediator's table, and what a call does is the driver's business, real or
// simulated.
package nvabi

// None marks an offset that does not exist.
const None = -1

// File says on which device files a frontend ioctl is accepted.
type File uint8

const (
	Control File = 1 << iota // /dev/nvidiactl
	Card                     // /dev/nvidiaN
)

// ABI is what one driver version understands. It is immutable.
type ABI struct {
	Version  Version
	Frontend map[uint8][]Frontend // by ioctl number; RM_ALLOC and a few others have two sizes
	Controls map[uint32]RMControl // by control command
	Classes  map[uint32]RMClass   // by class
	UVM      map[uint32]UVMCall   // by raw command
	Layout   Layout               // where fields lie that moved between versions
}

// Frontend is an ioctl on /dev/nvidiactl or /dev/nvidiaN.
type Frontend struct {
	Name string
	NR   uint8
	Size uint32 // bytes of the argument; with Array, of one element
	// Array: the argument is an array of elements of Size bytes, as long as the
	// size in the ioctl number says.
	Array  bool
	On     File
	Status int // offset of the NV_STATUS in the argument, or None
	FD     int // offset of an int32 file descriptor in the argument, or None
}

// RMControl is a command of NV_ESC_RM_CONTROL.
type RMControl struct {
	Name string
	Cmd  uint32
	// Size in bytes of the parameters, which the driver demands exactly. With
	// Opaque the layout is not published and any size is passed on.
	Size      uint32
	Opaque    bool
	Privilege Privilege // which callers the driver accepts
	Pointers  []Pointer // pointers inside the parameters
	// FD is the offset of an int32 file descriptor, or of a uint64 whose low half
	// it is, or None.
	FD int
}

// Pointer is a pointer inside a control's parameters to a buffer of the caller.
// With Count None and Elem 0 the driver never follows it for a process.
type Pointer struct {
	Offset int    // of the 8-byte pointer
	Count  int    // offset of the uint32 number of elements, or None
	Elem   uint32 // bytes of one element; with Count None, of the whole buffer
	Max    uint32 // largest count the driver takes
	Square bool   // the buffer holds count times count elements
	In     bool   // the driver reads the buffer
	Out    bool   // the driver writes the buffer
}

// Kind groups RM classes by what they mean to memory, time and isolation.
type Kind uint8

const (
	KindOther         Kind = iota
	KindRoot               // an RM client
	KindDevice             // NV01_DEVICE_0
	KindSubdevice          // NV20_SUBDEVICE_0
	KindVideoMemory        // takes memory of the card
	KindSystemMemory       // takes memory of the host
	KindVirtualMemory      // address space only
	KindPinnedMemory       // pins the caller's own pages
	KindAddressSpace       // FERMI_VASPACE_A
	KindGroup              // a channel group (TSG)
	KindChannel            // a GPFIFO channel
	KindContextShare       // a subcontext of a group
	KindEngine             // compute, copy or graphics object on a channel
	KindUsermode           // the doorbell page
	KindEvent              // an event bound to a descriptor or callback
	KindDebugger
	KindPeer   // peer-to-peer between cards
	KindFabric // NVLink fabric and multicast memory
)

// RMClass is a class of NV_ESC_RM_ALLOC.
type RMClass struct {
	Name string
	ID   uint32
	Kind Kind
	Size uint32 // bytes of the allocation parameters; 0: takes none
	// Optional: the driver accepts a null pointer in place of the parameters.
	Optional  bool
	Privilege Privilege // which callers the driver accepts
	FD        int       // offset of a file descriptor (uint64) in the parameters, or None
}

// UVMCall is a command of /dev/nvidia-uvm; its number is raw and carries no size.
type UVMCall struct {
	Name   string
	Cmd    uint32
	Size   uint32
	Status int // offset of rmStatus, or None
	FD     int // offset of an int32 file descriptor, or None
}
