package mediator

import (
	"fmt"

	"github.com/qgpu-project/qgpu/internal/nvabi"
	"gvisor.dev/gvisor/pkg/abi/nvgpu"
)

// Statuses of the driver, from nvstatuscodes.h.
const (
	statusOK                = 0
	statusNoResources       = 0x1a
	statusNoPermission      = 0x1b
	statusInvalidArgument   = 0x1f
	statusInvalidClass      = 0x22
	statusInvalidClient     = 0x23
	statusInvalidParameters = 0x3a // NV_ERR_INVALID_PARAM_STRUCT
	statusInvalidPointer    = 0x3d
	statusNoMemory          = 0x51
	statusNotSupported      = 0x56
	statusNotFound          = 0x57
)

// Offsets in structures that are the same in all supported drivers (x86-64).
const (
	// NVOS00_PARAMETERS: free.
	freeObject = 8

	// NVOS02_PARAMETERS with a descriptor: alloc memory.
	allocMemoryParent = 4
	allocMemoryHandle = 8
	allocMemoryClass  = 12
	allocMemoryFD     = 48

	// NVOS21_PARAMETERS and NVOS64_PARAMETERS: alloc.
	allocParent  = 4
	allocHandle  = 8
	allocClass   = 12
	allocParams  = 16
	allocRights  = 24 // NVOS64 only
	allocFlags   = 36 // NVOS64 only
	sizeNVOS64   = 48
	controlCmd   = 8
	controlObj   = 4
	controlFlags = 12
	controlPtr   = 16
	controlSize  = 24

	// NVOS32_PARAMETERS: video memory heap.
	heapParent    = 4
	heapFunction  = 8
	heapTotal     = 24
	heapFree      = 32
	heapHandle    = 44
	heapFlags     = 52
	heapAttr      = 56
	heapSize      = 88
	heapAllocSize = 2 // functions
	heapFreeSize  = 3
	heapInfo      = 5

	// NVOS55_PARAMETERS: duplicate.
	dupParent    = 4
	dupObject    = 8
	dupClientSrc = 12
	dupObjectSrc = 16

	// NV_MEMORY_ALLOCATION_PARAMS.
	memoryFlags = 8
	memoryAttr  = 24
	memorySize  = 64

	// NV0080_ALLOC_PARAMETERS: device.
	deviceInstance     = 0
	deviceClientShare  = 4
	deviceTargetClient = 8

	// NV0005_ALLOC_PARAMETERS: event.
	eventClient = 0
	eventClass  = 8

	// NV83DE_ALLOC_PARAMETERS: debugger.
	debuggerClient    = 0
	debuggerAppClient = 4

	// nv_ioctl_card_info_t.
	cardInfoSize  = 72
	cardInfoGPUID = 16
	cardInfoFB    = 48
	cardInfoMinor = 56

	flagVirtual  = 1 << 19 // NVOS32_ALLOC_FLAGS_VIRTUAL: addresses only
	locationAt   = 25      // of NVOS32_ATTR_LOCATION in attr, 2 bits
	locationHost = 1       // _PCI: memory of the host
)

// extent is how much of a structure the mediator itself looks at.
type extent struct {
	number uint32
	bytes  uint32
}

// checkLayout makes sure that an ABI's structures are as large as the mediator's
// offsets reach, so that no call can index beyond its copy.
func checkLayout(abi *nvabi.ABI) error {
	for _, e := range []extent{
		{nvabi.EscCardInfo, cardInfoSize}, {nvabi.EscAllocOSEvent, 12}, {nvabi.EscFreeOSEvent, 12}, {nvabi.EscRegisterFD, 4},
		{nvabi.EscRMAllocMemory, 56}, {nvabi.EscRMFree, 16}, {nvabi.EscRMControl, 32}, {nvabi.EscRMAlloc, 32}, {nvabi.EscRMDupObject, 28}, {nvabi.EscRMShare, 24},
		{nvabi.EscRMVidHeapControl, 184}, {nvabi.EscRMMapMemory, 56}, {nvabi.EscRMUnmapMemory, 32}, {nvabi.EscRMUpdateDeviceMappingInfo, 40}, {nvabi.EscAttachGPUsToFD, 4},
	} {
		list := abi.Frontend[uint8(e.number)]
		if len(list) == 0 {
			return fmt.Errorf("driver %s: ioctl %#x is not in its ABI table", abi.Version, e.number)
		}
		for _, f := range list {
			if f.Size < e.bytes || f.Status != nvabi.None && f.Status+4 > int(f.Size) || f.FD != nvabi.None && f.FD+4 > int(f.Size) {
				return fmt.Errorf("driver %s: ioctl %s has %d bytes, less than is needed", abi.Version, f.Name, f.Size)
			}
		}
	}
	for _, e := range []extent{
		{nvgpu.NV01_MEMORY_LOCAL_USER, 120}, {nvgpu.NV01_DEVICE_0, 12}, {nvgpu.NV01_EVENT_OS_EVENT, 24}, {nvgpu.GT200_DEBUGGER, 8},
	} {
		if c, ok := abi.Classes[e.number]; !ok || c.Size < e.bytes {
			return fmt.Errorf("driver %s: class %#x is not in its ABI table as expected", abi.Version, e.number)
		}
	}
	for cmd, need := range controlExtents {
		if c, ok := abi.Controls[cmd]; ok && (c.Opaque || c.Size < need) {
			return fmt.Errorf("driver %s: control %s has %d bytes, less than the %d needed", abi.Version, c.Name, c.Size, need)
		}
	}
	for cmd, c := range abi.Controls {
		if c.FD != nvabi.None && c.FD+4 > int(c.Size) {
			return fmt.Errorf("driver %s: control %#x: descriptor at %d beyond its %d bytes", abi.Version, cmd, c.FD, c.Size)
		}
		for _, p := range c.Pointers {
			if p.Offset+8 > int(c.Size) || p.Count != nvabi.None && p.Count+4 > int(c.Size) {
				return fmt.Errorf("driver %s: control %#x: pointer at %d beyond its %d bytes", abi.Version, cmd, p.Offset, c.Size)
			}
		}
	}
	for cmd, u := range abi.UVM {
		if u.Status != nvabi.None && u.Status+4 > int(u.Size) || u.FD != nvabi.None && u.FD+4 > int(u.Size) {
			return fmt.Errorf("driver %s: UVM command %d: fields beyond its %d bytes", abi.Version, cmd, u.Size)
		}
	}
	for cmd, need := range uvmExtents {
		if u, ok := abi.UVM[cmd]; ok && u.Size < need {
			return fmt.Errorf("driver %s: UVM command %s has %d bytes, less than the %d needed", abi.Version, u.Name, u.Size, need)
		}
	}
	for id, c := range abi.Classes {
		if c.FD != nvabi.None && c.FD+8 > int(c.Size) {
			return fmt.Errorf("driver %s: class %#x: descriptor at %d beyond its %d bytes", abi.Version, id, c.FD, c.Size)
		}
	}
	return nil
}
