package nvabi

// Ioctl numbers (src/nvidia/arch/nvalloc/unix/include/nv_escape.h,
// nv-ioctl-numbers.h, nv-ioctl-numa.h).
const (
	EscRMAllocMemory             = 0x27
	EscRMAllocObject             = 0x28
	EscRMFree                    = 0x29
	EscRMControl                 = 0x2a
	EscRMAlloc                   = 0x2b
	EscRMDupObject               = 0x34
	EscRMShare                   = 0x35
	EscRMI2CAccess               = 0x39
	EscRMIdleChannels            = 0x41
	EscRMVidHeapControl          = 0x4a
	EscRMAccessRegistry          = 0x4d
	EscRMMapMemory               = 0x4e
	EscRMUnmapMemory             = 0x4f
	EscRMGetEventData            = 0x52
	EscRMAllocContextDMA2        = 0x54
	EscRMMapMemoryDMA            = 0x57
	EscRMUnmapMemoryDMA          = 0x58
	EscRMBindContextDMA          = 0x59
	EscRMUpdateDeviceMappingInfo = 0x5e
	EscRMLocklessDiagnostic      = 0x5f
	EscCardInfo                  = 200
	EscRegisterFD                = 201
	EscAllocOSEvent              = 206
	EscFreeOSEvent               = 207
	EscStatusCode                = 209
	EscCheckVersionStr           = 210
	EscXferCmd                   = 211
	EscAttachGPUsToFD            = 212
	EscQueryDeviceIntr           = 213
	EscSysParams                 = 214
	EscNUMAInfo                  = 215
	EscSetNUMAStatus             = 216
	EscExportToDMABufFD          = 217
	EscWaitOpenComplete          = 218
)

// frontendRow is one line of the table of frontend ioctls. An ioctl without a
// status, or without a descriptor, has no such offsets.
type frontendRow struct {
	nr     uint8
	name   string
	on     File
	size   sizes
	array  bool
	status offsets
	fd     offsets
}

const both = Control | Card

// frontendCalls are the ioctls that the driver handles on /dev/nvidiactl and
// /dev/nvidiaN: nvidia_ioctl (kernel-open/nvidia/nv.c), RmIoctl
// (src/nvidia/arch/nvalloc/unix/src/escape.c) and rm_ioctl (osapi.c, same place).
var frontendCalls = []frontendRow{
	{nr: EscRMAllocMemory, name: "NV_ESC_RM_ALLOC_MEMORY", on: Card, size: sizes{535: 56}, status: offsets{535: 40}, fd: offsets{535: 48}},
	{nr: EscRMAllocObject, name: "NV_ESC_RM_ALLOC_OBJECT", on: Control, size: sizes{535: 20}, status: offsets{535: 16}},
	{nr: EscRMFree, name: "NV_ESC_RM_FREE", on: Control, size: sizes{535: 16}, status: offsets{535: 12}},
	{nr: EscRMControl, name: "NV_ESC_RM_CONTROL", on: Control, size: sizes{535: 32}, status: offsets{535: 28}},
	// RM_ALLOC comes as NVOS21 or as NVOS64, told apart by size alone. On a card
	// file it takes event classes only.
	{nr: EscRMAlloc, name: "NV_ESC_RM_ALLOC", on: both, size: sizes{535: 32}, status: offsets{535: 28}},
	{nr: EscRMAlloc, name: "NV_ESC_RM_ALLOC", on: both, size: sizes{535: 48}, status: offsets{535: 40}},
	{nr: EscRMDupObject, name: "NV_ESC_RM_DUP_OBJECT", on: Control, size: sizes{535: 28}, status: offsets{535: 24}},
	{nr: EscRMShare, name: "NV_ESC_RM_SHARE", on: Control, size: sizes{535: 24}, status: offsets{535: 20}},
	{nr: EscRMI2CAccess, name: "NV_ESC_RM_I2C_ACCESS", on: Card, size: sizes{535: 32}, status: offsets{535: 24}},
	{nr: EscRMIdleChannels, name: "NV_ESC_RM_IDLE_CHANNELS", on: Control, size: sizes{535: 56}, status: offsets{535: 48}},
	{nr: EscRMVidHeapControl, name: "NV_ESC_RM_VID_HEAP_CONTROL", on: Control, size: sizes{535: 184}, status: offsets{535: 20}},
	{nr: EscRMAccessRegistry, name: "NV_ESC_RM_ACCESS_REGISTRY", on: Control, size: sizes{535: 72}, status: offsets{535: 64}},
	{nr: EscRMMapMemory, name: "NV_ESC_RM_MAP_MEMORY", on: Control, size: sizes{535: 56}, status: offsets{535: 40}, fd: offsets{535: 48}},
	{nr: EscRMUnmapMemory, name: "NV_ESC_RM_UNMAP_MEMORY", on: Control, size: sizes{535: 32}, status: offsets{535: 24}},
	{nr: EscRMGetEventData, name: "NV_ESC_RM_GET_EVENT_DATA", on: both, size: sizes{535: 16, 570: gone}, status: offsets{535: 12}},
	{nr: EscRMAllocContextDMA2, name: "NV_ESC_RM_ALLOC_CONTEXT_DMA2", on: Control, size: sizes{535: 56}, status: offsets{535: 48}},
	{nr: EscRMMapMemoryDMA, name: "NV_ESC_RM_MAP_MEMORY_DMA", on: Control, size: sizes{535: 56, 580: 64}, status: offsets{535: 48, 580: 56}},
	{nr: EscRMUnmapMemoryDMA, name: "NV_ESC_RM_UNMAP_MEMORY_DMA", on: Control, size: sizes{535: 40, 550: 48}, status: offsets{535: 32, 550: 40}},
	{nr: EscRMBindContextDMA, name: "NV_ESC_RM_BIND_CONTEXT_DMA", on: Control, size: sizes{535: 16}, status: offsets{535: 12}},
	{nr: EscRMUpdateDeviceMappingInfo, name: "NV_ESC_RM_UPDATE_DEVICE_MAPPING_INFO", on: Control, size: sizes{535: 40}, status: offsets{535: 32}},
	// LOCKLESS_DIAGNOSTIC grew within branch 550.
	{nr: EscRMLocklessDiagnostic, name: "NV_ESC_RM_LOCKLESS_DIAGNOSTIC", on: Control, size: sizes{550: 4024, 570: gone}, status: offsets{550: 4}},
	{nr: EscRMLocklessDiagnostic, name: "NV_ESC_RM_LOCKLESS_DIAGNOSTIC", on: Control, size: sizes{550: 15412}, status: offsets{550: 4}},
	{nr: EscCardInfo, name: "NV_ESC_CARD_INFO", on: Control, size: sizes{535: 72}, array: true},
	{nr: EscRegisterFD, name: "NV_ESC_REGISTER_FD", on: both, size: sizes{535: 4}, fd: offsets{535: 0}},
	{nr: EscAllocOSEvent, name: "NV_ESC_ALLOC_OS_EVENT", on: both, size: sizes{535: 16}, status: offsets{535: 12}, fd: offsets{535: 8}},
	{nr: EscFreeOSEvent, name: "NV_ESC_FREE_OS_EVENT", on: both, size: sizes{535: 16}, status: offsets{535: 12}, fd: offsets{535: 8}},
	{nr: EscStatusCode, name: "NV_ESC_STATUS_CODE", on: Control, size: sizes{535: 12}, status: offsets{535: 8}},
	{nr: EscCheckVersionStr, name: "NV_ESC_CHECK_VERSION_STR", on: Control, size: sizes{535: 72}},
	// XFER_CMD wraps any other call with its argument out of line.
	{nr: EscXferCmd, name: "NV_ESC_IOCTL_XFER_CMD", on: both, size: sizes{535: 16}},
	{nr: EscAttachGPUsToFD, name: "NV_ESC_ATTACH_GPUS_TO_FD", on: Control, size: sizes{535: 4}, array: true},
	{nr: EscQueryDeviceIntr, name: "NV_ESC_QUERY_DEVICE_INTR", on: Card, size: sizes{535: 8}, status: offsets{535: 4}},
	{nr: EscSysParams, name: "NV_ESC_SYS_PARAMS", on: Control, size: sizes{535: 8}},
	{nr: EscNUMAInfo, name: "NV_ESC_NUMA_INFO", on: Card, size: sizes{535: 560}},
	{nr: EscSetNUMAStatus, name: "NV_ESC_SET_NUMA_STATUS", on: Card, size: sizes{535: 4}},
	{nr: EscExportToDMABufFD, name: "NV_ESC_EXPORT_TO_DMABUF_FD", on: Card, size: sizes{535: 2600, 570: 2608}, status: offsets{535: 2592, 570: 2600}, fd: offsets{535: 0}},
	{nr: EscWaitOpenComplete, name: "NV_ESC_WAIT_OPEN_COMPLETE", on: both, size: sizes{550: 8}},
}

func resolveFrontend(major int) map[uint8][]Frontend {
	calls := make(map[uint8][]Frontend)
	for _, row := range frontendCalls {
		size, ok := row.size.at(major)
		if !ok {
			continue
		}
		calls[row.nr] = append(calls[row.nr], Frontend{
			Name:   row.name,
			NR:     row.nr,
			Size:   size,
			Array:  row.array,
			On:     row.on,
			Status: row.status.offset(major),
			FD:     row.fd.offset(major),
		})
	}
	return calls
}
