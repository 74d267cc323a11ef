package nvabi

// The constants of this file are offsets of fields in allocation parameters
// (NV_ESC_RM_ALLOC), in bytes, equal in every branch with a table. Sources:
// src/common/sdk/nvidia/inc/nvos.h, alloc/alloc_channel.h and class/*.h.

// NV0005_ALLOC_PARAMETERS: NV01_EVENT and its variants. In the event class
// itself, EventClass names the variant that is meant.
const (
	EventParentClient = 0
	EventSource       = 4
	EventClass        = 8
	EventIndex        = 12 // notifyIndex
	EventData         = 16 // with NV01_EVENT_OS_EVENT the number of a descriptor
)

// NV0080_ALLOC_PARAMETERS: NV01_DEVICE_0.
const (
	DeviceID           = 0 // device instance, as GPU_GET_ID_INFO gives it
	DeviceClientShare  = 4
	DeviceTargetClient = 8
	DeviceTargetDevice = 12
	DeviceFlags        = 16
	DeviceVASpaceSize  = 24
	DeviceVAMode       = 48
)

// NV2080_ALLOC_PARAMETERS: NV20_SUBDEVICE_0.
const SubdeviceID = 0

// NV_MEMORY_ALLOCATION_PARAMS: NV01_MEMORY_SYSTEM, NV01_MEMORY_LOCAL_USER,
// NV50_MEMORY_VIRTUAL, NV01_MEMORY_DEVICELESS. Branch 535 ends before the NUMA
// node.
const (
	MemoryOwner         = 0
	MemoryType          = 4
	MemoryFlags         = 8
	MemoryWidth         = 12
	MemoryHeight        = 16
	MemoryPitch         = 20
	MemoryAttr          = 24
	MemoryAttr2         = 28
	MemoryFormat        = 32
	MemoryRangeLo       = 48
	MemoryRangeHi       = 56
	MemorySize          = 64 // out: as rounded
	MemoryAlignment     = 72
	MemoryOffset        = 80
	MemoryLimit         = 88 // out: size less one
	MemoryAddress       = 96
	MemoryVASpace       = 108
	MemoryInternalFlags = 112
	MemoryTag           = 116
)

// NV_MEMORY_VIRTUAL_ALLOCATION_PARAMS: NV01_MEMORY_VIRTUAL.
const (
	VirtualOffset  = 0
	VirtualLimit   = 8
	VirtualVASpace = 16
)

// NV_OS_DESC_MEMORY_ALLOCATION_PARAMS: NV01_MEMORY_SYSTEM_OS_DESCRIPTOR.
const (
	OSDescType           = 0
	OSDescFlags          = 4
	OSDescAttr           = 8
	OSDescAttr2          = 12
	OSDescDescriptor     = 16 // address of the caller's pages
	OSDescLimit          = 24
	OSDescDescriptorType = 32
)

// NV_VASPACE_ALLOCATION_PARAMETERS: FERMI_VASPACE_A.
const (
	VASpaceIndex       = 0
	VASpaceFlags       = 4
	VASpaceSize        = 8
	VASpaceStart       = 16 // vaStartInternal
	VASpaceLimit       = 24 // vaLimitInternal
	VASpaceBigPageSize = 32
	VASpaceBase        = 40
)

// NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS: KEPLER_CHANNEL_GROUP_A.
const (
	GroupErrorObject    = 0
	GroupECCErrorObject = 4
	GroupVASpace        = 8
	GroupEngineType     = 12
)

// NV_CTXSHARE_ALLOCATION_PARAMETERS: FERMI_CONTEXT_SHARE_A.
const (
	ContextShareVASpace    = 0
	ContextShareFlags      = 4
	ContextShareSubcontext = 8 // out
)

// NV_CHANNEL_ALLOC_PARAMS: the GPFIFO channel classes.
const (
	ChannelErrorObject   = 0
	ChannelBufferObject  = 4
	ChannelGPFIFO        = 8  // gpFifoOffset: GPU address of the ring, uint64
	ChannelGPFIFOEntries = 16 // uint32
	ChannelFlags         = 20
	ChannelContextShare  = 24
	ChannelVASpace       = 28
	ChannelUserdMemory   = 32 // hUserdMemory: handles, one for each of 8 subdevices
	ChannelUserdOffset   = 64 // userdOffset: uint64, likewise
	ChannelEngineType    = 128
	ChannelID            = 132 // cid, out
	ChannelSubdeviceID   = 136
	ChannelECCErrorObj   = 140
	ChannelInstanceMem   = 144 // NV_MEMORY_DESC_PARAMS: for kernel callers
	ChannelUserdMem      = 168
	ChannelRAMFCMem      = 192
	ChannelProcessID     = 296
	ChannelSubProcessID  = 300
)

// NVB0B5_ALLOCATION_PARAMETERS: the copy classes.
const (
	CopyVersion    = 0
	CopyEngineType = 4
)

// NV_GR_ALLOCATION_PARAMETERS: the compute and graphics classes.
const (
	GraphicsVersion = 0
	GraphicsFlags   = 4
	GraphicsSize    = 8
	GraphicsCaps    = 12
)

// NV83DE_ALLOC_PARAMETERS: GT200_DEBUGGER.
const (
	DebuggerAppClient = 4
	DebuggerObject    = 8 // hClass3dObject
)

// NV_SEMAPHORE_SURFACE_ALLOC_PARAMETERS: NV_SEMAPHORE_SURFACE.
const (
	SemaphoreSurfaceMemory    = 0
	SemaphoreSurfaceMaxMemory = 4
	SemaphoreSurfaceFlags     = 8
)

// NV00F8_ALLOCATION_PARAMETERS: NV_MEMORY_FABRIC.
const (
	FabricAlignment = 0
	FabricSize      = 8 // bytes of video memory
	FabricPageSize  = 16
	FabricFlags     = 24
)
