package nvabi

// The constants of this file are offsets of fields in the parameters of controls
// (NV_ESC_RM_CONTROL), in bytes, equal in every branch with a table. Source:
// src/common/sdk/nvidia/inc/ctrl/*.h.

// InfoSize is the size of an element of the list controls FB_GET_INFO,
// GPU_GET_INFO, BUS_GET_INFO, BIOS_GET_INFO, GR_GET_INFO and GET_SURFACE_INFO.
// The list starts at the second offset; in the forms without V2 there stands a
// pointer to it. How many elements a V2 form has room for follows from its size.
const (
	InfoCount   = 0
	InfoList    = 8 // pointer
	InfoListV2  = 4
	InfoSize    = 8
	InfoIndex   = 0
	InfoData    = 4
	GRInfoRoute = 16 // of NV2080 GR_GET_INFO; in the V2 form it is the last 16 bytes
)

// Indices of FB_GET_INFO, in KiB unless said otherwise
// (ctrl/ctrl2080/ctrl2080fb.h).
const (
	FBInfoBAR1Size          = 0x05
	FBInfoRAMSize           = 0x07
	FBInfoTotalRAMSize      = 0x08
	FBInfoHeapSize          = 0x09
	FBInfoMappableHeapSize  = 0x0a
	FBInfoLargestFreeRegion = 0x12
	FBInfoVistaReserved     = 0x15
	FBInfoHeapFree          = 0x16
	FBInfoBAR1Avail         = 0x1d
	FBInfoUsableRAMSize     = 0x20
	FBInfoHeapOffline       = 0x27
	FBInfoProtectedMemTotal = 0x33
	FBInfoProtectedMemFree  = 0x34
)

// NV2080_CTRL_FB_GET_FB_REGION_INFO_PARAMS; Layout.FBRegionSize is the size of
// an element.
const (
	FBRegionCount    = 0
	FBRegionList     = 8
	FBRegionBase     = 0
	FBRegionLimit    = 8
	FBRegionReserved = 16
)

// NV2080_CTRL_GPU_GET_PIDS_PARAMS. Process ids are those of the caller's pid
// namespace.
const (
	PidsIDType = 0
	PidsID     = 4
	PidsCount  = 8
	PidsTable  = 12 // uint32 each
	PidsMax    = 950
)

// NV2080_CTRL_GPU_GET_PID_INFO_PARAMS and its elements.
const (
	PidInfoCount        = 0
	PidInfoList         = 8
	PidInfoMax          = 200
	PidInfoSize         = 72
	PidInfoPid          = 0
	PidInfoIndex        = 4 // what is asked
	PidInfoResult       = 8
	PidInfoPrivate      = 16 // bytes; the memory that UVM has not duplicated
	PidInfoSharedOwned  = 24 // bytes; the memory that it has
	PidInfoSharedDuped  = 32 // bytes; references to others' memory
	PidInfoSubscription = 64
)

// NV2080_CTRL_PERF_GET_GPUMON_PERFMON_UTIL_SAMPLES_V2_PARAMS; Layout.UtilSample
// describes an element.
const (
	UtilType    = 0
	UtilBufSize = 4
	UtilCount   = 8
	UtilTracker = 12
	UtilSamples = 16
	UtilMax     = 72

	// Within the part of a sample for one engine.
	EngineUtilPercent = 0 // in 1/100 %
	EngineUtilPid     = 8
	EngineUtilSubPid  = 12
)

// NV0000 lists of card ids. GPUIDInvalid fills the unused rest.
const (
	GPUIDsList        = 0 // GET_ATTACHED_IDS, GET_PROBED_IDS, ATTACH_IDS, DETACH_IDS
	GPUIDsExcluded    = 128
	GPUIDsAttachFail  = 128 // ATTACH_IDS: the id that failed
	GPUIDsMax         = 32
	GPUIDInvalid      = 0xffffffff
	GPUIDAll          = 0x0000ffff // ATTACH_IDS, DETACH_IDS: every probed card
	DeviceIDsMask     = 0          // GET_DEVICE_IDS: bit n is device instance n
	ActiveDeviceCount = 0          // GET_ACTIVE_DEVICE_IDS
	ActiveDeviceList  = 4
	ActiveDeviceSize  = 12
	ActiveDeviceGPUID = 0
)

// NV0000_CTRL_GPU_GET_ID_INFO_PARAMS, its V2, GET_PCI_INFO, GET_UUID_FROM_GPU_ID
// and QUERY_DRAIN_STATE all begin with a card id.
const (
	IDInfoGPUID             = 0
	IDInfoFlags             = 4
	IDInfoDeviceInstance    = 8
	IDInfoSubdeviceInstance = 12
	IDInfoSLIStatus         = 24
	IDInfoBoardID           = 28
	IDInfoGPUInstance       = 32
	IDInfoNUMA              = 36
	IDInfoV2SLIStatus       = 16
	IDInfoV2BoardID         = 20
	IDInfoV2GPUInstance     = 24
	IDInfoV2NUMA            = 28

	PCIInfoDomain = 4
	PCIInfoBus    = 8  // uint16
	PCIInfoSlot   = 10 // uint16

	UUIDFlags  = 4
	UUIDData   = 8 // 256 bytes
	UUIDLength = 264

	DrainState = 4
	DrainFlags = 8
)

// NV0000_CTRL_SYSTEM_GET_P2P_CAPS_PARAMS, its V2 and P2P_CAPS_MATRIX.
const (
	P2PGPUIDs     = 0
	P2PGPUCount   = 128
	P2PCaps       = 132
	P2PMatrixNA   = 0
	P2PMatrixNB   = 4
	P2PMatrixIDsA = 8  // 8 ids
	P2PMatrixIDsB = 40 // 8 ids
)

// NV0000_CTRL_SYNC_GPU_BOOST_GROUP_INFO_PARAMS.
const BoostGroupCount = 0

// NV0000_CTRL_CLIENT_* parameters.
const (
	AddrSpaceObject = 0 // GET_ADDR_SPACE_TYPE
	AddrSpaceFlags  = 4
	AddrSpaceType   = 8

	InheritedSharePolicy = 0 // SET_INHERITED_SHARE_POLICY: an RS_SHARE_POLICY
	ShareObject          = 0 // SHARE_OBJECT
	ShareObjectPolicy    = 4
)

// NV0000_CTRL_OS_UNIX_* parameters: objects behind descriptors.
const (
	ExportObjectType   = 0 // NV0000_CTRL_OS_UNIX_EXPORT_OBJECT
	ExportObjectDevice = 4
	ExportObjectParent = 8
	ExportObjectHandle = 12

	ExportToFDObject = 0
	ExportToFDFD     = 16
	ExportToFDFlags  = 20

	ImportFromFDFD     = 0
	ImportFromFDObject = 4

	ExportInfoFD     = 0 // GET_EXPORT_OBJECT_INFO
	ExportInfoDevice = 4

	CreateExportDevice     = 0 // CREATE_EXPORT_OBJECT_FD
	CreateExportMaxObjects = 4 // uint16
	CreateExportFD         = 72

	ExportObjectsFD     = 0 // EXPORT_OBJECTS_TO_FD
	ExportObjectsDevice = 4
	ExportObjectsList   = 76 // 512 handles
	ExportObjectsCount  = 2124
	ExportObjectsIndex  = 2126

	ImportObjectsFD     = 0 // IMPORT_OBJECTS_FROM_FD
	ImportObjectsParent = 4
	ImportObjectsList   = 8 // 128 handles
	ImportObjectsTypes  = 520
	ImportObjectsCount  = 648
	ImportObjectsIndex  = 650
)

// NV0000_CTRL_GPUACCT_* parameters begin with a card id.
const (
	AcctGPUID    = 0
	AcctPid      = 4 // GET_PROC_ACCOUNTING_INFO
	AcctPids     = 8 // GET_ACCOUNTING_PIDS
	AcctPidCount = 16008
)

// NV2080_CTRL_FIFO_DISABLE_CHANNELS_PARAMS.
const (
	DisableChannelsDisable      = 0 // uint8
	DisableChannelsCount        = 4
	DisableChannelsOnlySchedule = 8 // uint8
	DisableChannelsRewind       = 9 // uint8
	DisableChannelsEvent        = 16
	DisableChannelsClients      = 24
	DisableChannelsChannels     = 280
	DisableChannelsMax          = 64
)

// Scheduling of channels and groups (ctrl/ctrla06c.h, ctrla06f/*.h).
const (
	ScheduleEnable      = 0 // uint8, NVA06C and NVA06F GPFIFO_SCHEDULE
	ScheduleSkipSubmit  = 1 // uint8
	TimesliceMicros     = 0 // uint64, NVA06C SET_TIMESLICE and GET_TIMESLICE
	PreemptWait         = 0 // uint8, NVA06C PREEMPT
	PreemptManual       = 1 // uint8
	PreemptTimeout      = 4 // µs
	InterleaveLevel     = 0 // NVA06C and NVA06F SET_INTERLEAVE_LEVEL
	RestartForce        = 0 // uint8, NVA06F RESTART_RUNLIST
	RestartBypassWait   = 1 // uint8
	WorkSubmitToken     = 0 // NVC36F GPFIFO_GET_WORK_SUBMIT_TOKEN
	ClassEngineObject   = 0 // NV906F, NVC36F GET_CLASS_ENGINEID
	ClassEngineID       = 4
	ClassEngineClass    = 8
	ClassEngineEngine   = 12
	ChannelListCount    = 0 // NV0080 FIFO_GET_CHANNELLIST
	ChannelListHandles  = 8
	ChannelListChannels = 16
	ClassListCount      = 0 // NV0080 GPU_GET_CLASSLIST_V2
	ClassListList       = 4
	EnginesCount        = 0 // NV2080 GPU_GET_ENGINES_V2
	EnginesList         = 4
	ComputePolicyCount  = 0 // NV2080 GPU_GET_COMPUTE_POLICY_CONFIG
	ComputePolicyList   = 4
)

// NV2080_CTRL_BUS_GET_PCI_BAR_INFO_PARAMS and its elements.
const (
	BARCount     = 0
	BARList      = 8
	BARInfoSize  = 24
	BARFlags     = 0
	BARSizeMiB   = 4
	BARSizeBytes = 8
	BAROffset    = 16
)

// NV2080_CTRL_GPU_GET_GID_INFO_PARAMS.
const (
	GIDIndex  = 0
	GIDFlags  = 4
	GIDLength = 8
	GIDData   = 12 // 256 bytes
)
