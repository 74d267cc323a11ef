package nvabi

// The constants of this file are offsets of fields in the arguments of frontend
// ioctls, in bytes, equal in every branch with a table. They are named after
// NVIDIA's structs and fields (src/common/sdk/nvidia/inc/nvos.h,
// src/nvidia/arch/nvalloc/unix/include/nv-ioctl.h). Where two forms of a call
// share a prefix, one set of offsets serves both.

// NVOS00_PARAMETERS: NV_ESC_RM_FREE.
const (
	NVOS00Root   = 0
	NVOS00Parent = 4
	NVOS00Old    = 8
)

// NVOS02_PARAMETERS: NV_ESC_RM_ALLOC_MEMORY.
const (
	NVOS02Root   = 0
	NVOS02Parent = 4
	NVOS02New    = 8
	NVOS02Class  = 12
	NVOS02Flags  = 16
	NVOS02Memory = 24 // address of the caller's pages
	NVOS02Limit  = 32 // size less one
)

// NVOS21_PARAMETERS and NVOS64_PARAMETERS: NV_ESC_RM_ALLOC.
const (
	NVOS21Size     = 32
	NVOS64Size     = 48
	NVOS64Root     = 0
	NVOS64Parent   = 4
	NVOS64New      = 8
	NVOS64Class    = 12
	NVOS64Params   = 16 // pAllocParms
	NVOS21ParamLen = 24 // in NVOS21 only
	NVOS64Rights   = 24 // in NVOS64 only
	NVOS64ParamLen = 32 // in NVOS64 only
	NVOS64Flags    = 36 // in NVOS64 only
)

// NVOS30_PARAMETERS: NV_ESC_RM_IDLE_CHANNELS.
const (
	NVOS30Client   = 0
	NVOS30Device   = 4
	NVOS30Channel  = 8
	NVOS30Count    = 12
	NVOS30Clients  = 16 // pointers to lists of Count handles, null for a single channel
	NVOS30Devices  = 24
	NVOS30Channels = 32
	NVOS30Flags    = 40
	NVOS30Timeout  = 44
)

// NVOS32_PARAMETERS: NV_ESC_RM_VID_HEAP_CONTROL. What follows NVOS32Data depends
// on the function.
const (
	NVOS32Root     = 0
	NVOS32Parent   = 4
	NVOS32Function = 8
	NVOS32VASpace  = 12
	NVOS32Total    = 24 // bytes of video memory, out
	NVOS32Free     = 32 // bytes of it that are free, out
	NVOS32Data     = 40

	NVOS32AllocOwner     = 40 // function AllocSize
	NVOS32AllocMemory    = 44
	NVOS32AllocType      = 48
	NVOS32AllocFlags     = 52
	NVOS32AllocAttr      = 56
	NVOS32AllocFormat    = 60
	NVOS32AllocSize      = 88
	NVOS32AllocAlignment = 96
	NVOS32AllocOffset    = 104
	NVOS32AllocLimit     = 112
	NVOS32AllocAddress   = 120
	NVOS32AllocRangeLo   = 128
	NVOS32AllocRangeHi   = 136
	NVOS32AllocAttr2     = 144

	NVOS32TiledMemory = 44 // function AllocTiledPitchHeight
	NVOS32TiledFlags  = 52
	NVOS32TiledAttr   = 64
	NVOS32TiledSize   = 88

	NVOS32RangeMemory = 44 // function AllocSizeRange
	NVOS32RangeFlags  = 52
	NVOS32RangeAttr   = 56
	NVOS32RangeSize   = 80

	NVOS32FreeOwner  = 40 // function Free
	NVOS32FreeMemory = 44
	NVOS32FreeFlags  = 48

	NVOS32InfoAttr   = 40 // function Info
	NVOS32InfoOffset = 48
	NVOS32InfoSize   = 56
	NVOS32InfoBase   = 64

	NVOS32OSDescMemory     = 40 // function AllocOSDescriptor
	NVOS32OSDescDescriptor = 64 // address of the caller's pages
	NVOS32OSDescLimit      = 72
)

// Functions of NV_ESC_RM_VID_HEAP_CONTROL.
const (
	VidHeapAllocSize             = 2
	VidHeapFree                  = 3
	VidHeapInfo                  = 5
	VidHeapAllocTiledPitchHeight = 6
	VidHeapAllocSizeRange        = 14
	VidHeapReacquireCompression  = 15
	VidHeapReleaseCompression    = 16
	VidHeapGetMemAlignment       = 18
	VidHeapHWAlloc               = 19
	VidHeapHWFree                = 20
	VidHeapAllocOSDescriptor     = 27
)

// Attributes and flags of memory, in VidHeap calls and in allocation parameters.
const (
	AttrLocationShift  = 25 // NVOS32_ATTR_LOCATION, two bits
	AttrLocationMask   = 3
	AttrLocationVidMem = 0
	AttrLocationPCI    = 1 // memory of the host
	AttrLocationAny    = 3

	AllocFlagVirtual = 0x00080000 // NVOS32_ALLOC_FLAGS_VIRTUAL: address space only
)

// NVOS33_PARAMETERS: NV_ESC_RM_MAP_MEMORY.
const (
	NVOS33Client = 0
	NVOS33Device = 4
	NVOS33Memory = 8
	NVOS33Offset = 16
	NVOS33Length = 24
	NVOS33Linear = 32 // pLinearAddress, which later names the mapping
	NVOS33Flags  = 44
)

// NVOS34_PARAMETERS: NV_ESC_RM_UNMAP_MEMORY.
const (
	NVOS34Client = 0
	NVOS34Device = 4
	NVOS34Memory = 8
	NVOS34Linear = 16
	NVOS34Flags  = 28
)

// NVOS46_PARAMETERS and NVOS47_PARAMETERS: NV_ESC_RM_MAP_MEMORY_DMA and
// NV_ESC_RM_UNMAP_MEMORY_DMA.
const (
	NVOS46Client = 0
	NVOS46Device = 4
	NVOS46Dma    = 8
	NVOS46Memory = 12
)

// NVOS54_PARAMETERS: NV_ESC_RM_CONTROL.
const (
	NVOS54Client   = 0
	NVOS54Object   = 4
	NVOS54Cmd      = 8
	NVOS54Flags    = 12
	NVOS54Params   = 16
	NVOS54ParamLen = 24
)

// NVOS55_PARAMETERS: NV_ESC_RM_DUP_OBJECT.
const (
	NVOS55Client    = 0
	NVOS55Parent    = 4
	NVOS55Object    = 8
	NVOS55ClientSrc = 12
	NVOS55ObjectSrc = 16
	NVOS55Flags     = 20
)

// NVOS56_PARAMETERS: NV_ESC_RM_UPDATE_DEVICE_MAPPING_INFO.
const (
	NVOS56Client = 0
	NVOS56Device = 4
	NVOS56Memory = 8
	NVOS56Old    = 16 // pOldCpuAddress, as NVOS33Linear returned it
	NVOS56New    = 24 // pNewCpuAddress
)

// NVOS57_PARAMETERS: NV_ESC_RM_SHARE.
const (
	NVOS57Client = 0
	NVOS57Object = 4
	NVOS57Policy = 8 // an RS_SHARE_POLICY
)

// RS_SHARE_POLICY (src/common/sdk/nvidia/inc/rs_access.h): who may duplicate.
const (
	SharePolicyTarget = 0
	SharePolicyAccess = 4
	SharePolicyType   = 8  // uint16
	SharePolicyAction = 10 // uint8

	ShareTypeNone          = 0
	ShareTypeAll           = 1
	ShareTypeSecurityToken = 2 // same user or same process
	ShareTypeClient        = 3
	ShareTypePID           = 4
	ShareTypeSMCPartition  = 5
	ShareTypeGPU           = 6
	ShareTypeFMClient      = 7
)

// Flags that say that the parameters are a serialized buffer in place of the
// struct.
const (
	NVOS54FlagFINNSerialized = 1 << 2
	NVOS64FlagFINNSerialized = 1 << 0
)

// nv_ioctl_card_info_t: an element of NV_ESC_CARD_INFO.
const (
	CardInfoSize      = 72
	CardInfoValid     = 0 // uint8
	CardInfoDomain    = 4
	CardInfoBus       = 8  // uint8
	CardInfoSlot      = 9  // uint8
	CardInfoFunction  = 10 // uint8
	CardInfoVendor    = 12 // uint16
	CardInfoDevice    = 14 // uint16
	CardInfoGPUID     = 16
	CardInfoInterrupt = 20 // uint16
	CardInfoRegBase   = 24
	CardInfoRegSize   = 32
	CardInfoFBBase    = 40
	CardInfoFBSize    = 48
	CardInfoMinor     = 56
)

// nv_ioctl_alloc_os_event_t and nv_ioctl_free_os_event_t.
const (
	OSEventClient = 0
	OSEventDevice = 4
	OSEventFD     = 8
)

// nv_ioctl_rm_api_version_t: NV_ESC_CHECK_VERSION_STR.
const (
	APIVersionCmd       = 0
	APIVersionReply     = 4
	APIVersionString    = 8 // APIVersionStringLen bytes, zero-terminated
	APIVersionStringLen = 64

	APIVersionCmdStrict    = 0
	APIVersionCmdRelaxed   = '1'
	APIVersionCmdQuery     = '2'
	APIVersionUnrecognized = 0
	APIVersionRecognized   = 1
)

// nv_ioctl_sys_params_t, nv_ioctl_numa_info_t, nv_ioctl_wait_open_complete_t,
// nv_ioctl_register_fd_t and nv_ioctl_xfer_t.
const (
	SysParamsMemblockSize = 0 // uint64

	NUMAInfoNode          = 0 // int32, -1 for none
	NUMAInfoStatus        = 4
	NUMAInfoMemblockSize  = 8
	NUMAInfoMemAddr       = 16
	NUMAInfoMemSize       = 24
	NUMAInfoUseAutoOnline = 32 // uint8

	WaitOpenRC            = 0
	WaitOpenAdapterStatus = 4

	RegisterFDControl = 0

	XferCmd  = 0
	XferSize = 4
	XferPtr  = 8
)
