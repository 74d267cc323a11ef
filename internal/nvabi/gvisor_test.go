package nvabi

import (
	"testing"

	"gvisor.dev/gvisor/pkg/abi/nvgpu"
)

type sized interface{ SizeBytes() int }

// gVisor's structs were written for its own proxy, independently of these tables.
// A row compares a struct with what the tables say from a branch on, up to the
// next row of the same number.
type gvisorRow struct {
	number uint32
	from   int
	params sized
}

func compareSizes(t *testing.T, what string, rows []gvisorRow, size func(a *ABI, number uint32) (uint32, bool)) {
	t.Helper()
	for _, abi := range allABIs(t) {
		want := make(map[uint32]gvisorRow)
		for _, row := range rows {
			if row.from <= abi.Version.Major && row.from >= want[row.number].from {
				want[row.number] = row
			}
		}
		for number, row := range want {
			if got, ok := size(abi, number); !ok || got != uint32(row.params.SizeBytes()) {
				t.Errorf("%s: %s %#x has size %d, %v; %T has %d", abi.Version, what, number, got, ok, row.params, row.params.SizeBytes())
			}
		}
	}
}

func TestFrontendSizesOfGVisor(t *testing.T) {
	compareSizes(t, "ioctl", []gvisorRow{
		{EscRMFree, 535, &nvgpu.NVOS00_PARAMETERS{}},
		{EscRMAllocMemory, 535, &nvgpu.IoctlNVOS02ParametersWithFD{}},
		{EscRMControl, 535, &nvgpu.NVOS54_PARAMETERS{}},
		{EscRMDupObject, 535, &nvgpu.NVOS55_PARAMETERS{}},
		{EscRMShare, 535, &nvgpu.NVOS57_PARAMETERS{}},
		{EscRMIdleChannels, 535, &nvgpu.NVOS30_PARAMETERS{}},
		{EscRMVidHeapControl, 535, &nvgpu.NVOS32_PARAMETERS{}},
		{EscRMMapMemory, 535, &nvgpu.IoctlNVOS33ParametersWithFD{}},
		{EscRMUnmapMemory, 535, &nvgpu.NVOS34_PARAMETERS{}},
		{EscRMAllocContextDMA2, 535, &nvgpu.NVOS39_PARAMETERS{}},
		{EscRMMapMemoryDMA, 535, &nvgpu.NVOS46_PARAMETERS{}},
		{EscRMMapMemoryDMA, 580, &nvgpu.NVOS46_PARAMETERS_V580{}},
		{EscRMUnmapMemoryDMA, 535, &nvgpu.NVOS47_PARAMETERS{}},
		{EscRMUnmapMemoryDMA, 550, &nvgpu.NVOS47_PARAMETERS_V550{}},
		{EscRMUpdateDeviceMappingInfo, 535, &nvgpu.NVOS56_PARAMETERS{}},
		{EscCardInfo, 535, &nvgpu.IoctlCardInfo{}},
		{EscRegisterFD, 535, &nvgpu.IoctlRegisterFD{}},
		{EscAllocOSEvent, 535, &nvgpu.IoctlAllocOSEvent{}},
		{EscFreeOSEvent, 535, &nvgpu.IoctlFreeOSEvent{}},
		{EscCheckVersionStr, 535, &nvgpu.RMAPIVersion{}},
		{EscSysParams, 535, &nvgpu.IoctlSysParams{}},
		{EscWaitOpenComplete, 550, &nvgpu.IoctlWaitOpenComplete{}},
		{EscExportToDMABufFD, 535, &nvgpu.IoctlExportToDMABufFD{}},
		{EscExportToDMABufFD, 570, &nvgpu.IoctlExportToDMABufFD_V570{}},
		{EscExportToDMABufFD, 580, &nvgpu.IoctlExportToDMABufFD_V580{}},
	}, func(a *ABI, nr uint32) (uint32, bool) {
		calls := a.Frontend[uint8(nr)]
		if len(calls) != 1 {
			return 0, false
		}
		return calls[0].Size, true
	})
	if NVOS21Size != (&nvgpu.NVOS21_PARAMETERS{}).SizeBytes() || NVOS64Size != (&nvgpu.NVOS64_PARAMETERS{}).SizeBytes() {
		t.Error("the two forms of RM_ALLOC differ from gVisor's")
	}
}

func TestClassSizesOfGVisor(t *testing.T) {
	compareSizes(t, "class", []gvisorRow{
		{0x3e, 535, &nvgpu.NV_MEMORY_ALLOCATION_PARAMS{}},
		{0x3e, 550, &nvgpu.NV_MEMORY_ALLOCATION_PARAMS_V545{}},
		{0x40, 535, &nvgpu.NV_MEMORY_ALLOCATION_PARAMS{}},
		{0x40, 550, &nvgpu.NV_MEMORY_ALLOCATION_PARAMS_V545{}},
		{0x70, 535, &nvgpu.NV_MEMORY_VIRTUAL_ALLOCATION_PARAMS{}},
		{0x79, 535, &nvgpu.NV0005_ALLOC_PARAMETERS{}},
		{0x80, 535, &nvgpu.NV0080_ALLOC_PARAMETERS{}},
		{0xda, 535, &nvgpu.NV_SEMAPHORE_SURFACE_ALLOC_PARAMETERS{}},
		{0xde, 535, &nvgpu.NV00DE_ALLOC_PARAMETERS{}},
		{0xde, 550, &nvgpu.NV00DE_ALLOC_PARAMETERS_V545{}},
		{0xe0, 550, &nvgpu.NV00E0_ALLOCATION_PARAMETERS{}},
		{0xf1, 550, &nvgpu.NV00F1_ALLOCATION_PARAMETERS{}},
		{0xf8, 535, &nvgpu.NV00F8_ALLOCATION_PARAMETERS{}},
		{0xfb, 550, &nvgpu.NV00FB_ALLOCATION_PARAMETERS{}},
		{0xfd, 535, &nvgpu.NV00FD_ALLOCATION_PARAMETERS{}},
		{0xfd, 550, &nvgpu.NV00FD_ALLOCATION_PARAMETERS_V545{}},
		{0xfd, 590, &nvgpu.NV00FD_ALLOCATION_PARAMETERS_V590{}},
		{0x2080, 535, &nvgpu.NV2080_ALLOC_PARAMETERS{}},
		{0x503b, 535, &nvgpu.NV503B_ALLOC_PARAMETERS{}},
		{0x503b, 590, &nvgpu.NV503B_ALLOC_PARAMETERS_V590{}},
		{0x503c, 535, &nvgpu.NV503C_ALLOC_PARAMETERS{}},
		{0x83de, 535, &nvgpu.NV83DE_ALLOC_PARAMETERS{}},
		{0x9067, 535, &nvgpu.NV_CTXSHARE_ALLOCATION_PARAMETERS{}},
		{0x90f1, 535, &nvgpu.NV_VASPACE_ALLOCATION_PARAMETERS{}},
		{0x90f1, 580, &nvgpu.NV_VASPACE_ALLOCATION_PARAMETERS_V580{}},
		{0xa06c, 535, &nvgpu.NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS{}},
		{0xc46f, 535, &nvgpu.NV_CHANNEL_ALLOC_PARAMS{}},
		{0xc46f, 570, &nvgpu.NV_CHANNEL_ALLOC_PARAMS_V570{}},
		{0xc5b5, 535, &nvgpu.NVB0B5_ALLOCATION_PARAMETERS{}},
		{0xc5c0, 535, &nvgpu.NV_GR_ALLOCATION_PARAMETERS{}},
		{0xc661, 535, &nvgpu.NV_HOPPER_USERMODE_A_PARAMS{}},
		{0xcb33, 535, &nvgpu.NV_CONFIDENTIAL_COMPUTE_ALLOC_PARAMS{}},
	}, func(a *ABI, id uint32) (uint32, bool) {
		class, ok := a.Classes[id]
		return class.Size, ok
	})
}

func TestControlSizesOfGVisor(t *testing.T) {
	compareSizes(t, "control", []gvisorRow{
		{nvgpu.NV0000_CTRL_CMD_GPU_GET_ID_INFO, 535, &nvgpu.NV0000_CTRL_GPU_GET_ID_INFO_PARAMS{}},
		{nvgpu.NV0000_CTRL_CMD_GPU_ATTACH_IDS, 535, &nvgpu.NV0000_CTRL_GPU_ATTACH_IDS_PARAMS{}},
		{nvgpu.NV0000_CTRL_CMD_GPU_GET_UUID_FROM_GPU_ID, 535, &nvgpu.NV0000_CTRL_GPU_GET_UUID_FROM_GPU_ID_PARAMS{}},
		{nvgpu.NV0000_CTRL_CMD_SYSTEM_GET_P2P_CAPS, 535, &nvgpu.NV0000_CTRL_SYSTEM_GET_P2P_CAPS_PARAMS{}},
		{nvgpu.NV0000_CTRL_CMD_SYSTEM_GET_P2P_CAPS, 550, &nvgpu.NV0000_CTRL_SYSTEM_GET_P2P_CAPS_PARAMS_V550{}},
		{nvgpu.NV0000_CTRL_CMD_SYSTEM_GET_BUILD_VERSION, 535, &nvgpu.NV0000_CTRL_SYSTEM_GET_BUILD_VERSION_PARAMS{}},
		{nvgpu.NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECT_TO_FD, 535, &nvgpu.NV0000_CTRL_OS_UNIX_EXPORT_OBJECT_TO_FD_PARAMS{}},
		{nvgpu.NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECT_FROM_FD, 535, &nvgpu.NV0000_CTRL_OS_UNIX_IMPORT_OBJECT_FROM_FD_PARAMS{}},
		{nvgpu.NV0000_CTRL_CMD_OS_UNIX_GET_EXPORT_OBJECT_INFO, 535, &nvgpu.NV0000_CTRL_OS_UNIX_GET_EXPORT_OBJECT_INFO_PARAMS{}},
		{nvgpu.NV0000_CTRL_CMD_OS_UNIX_GET_EXPORT_OBJECT_INFO, 550, &nvgpu.NV0000_CTRL_OS_UNIX_GET_EXPORT_OBJECT_INFO_PARAMS_V545{}},
		{nvgpu.NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECTS_TO_FD, 535, &nvgpu.NV0000_CTRL_OS_UNIX_EXPORT_OBJECTS_TO_FD_PARAMS{}},
		{nvgpu.NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECTS_FROM_FD, 535, &nvgpu.NV0000_CTRL_OS_UNIX_IMPORT_OBJECTS_FROM_FD_PARAMS{}},
		{nvgpu.NV0080_CTRL_CMD_FIFO_GET_CHANNELLIST, 535, &nvgpu.NV0080_CTRL_FIFO_GET_CHANNELLIST_PARAMS{}},
		{nvgpu.NV0080_CTRL_CMD_GPU_GET_CLASSLIST, 535, &nvgpu.RmapiParamNvU32List{}},
		{nvgpu.NV0080_CTRL_CMD_MSENC_GET_CAPS, 535, &nvgpu.NV0080_CTRL_GET_CAPS_PARAMS{}},
		{nvgpu.NV00FD_CTRL_CMD_ATTACH_GPU, 535, &nvgpu.NV00FD_CTRL_ATTACH_GPU_PARAMS{}},
		{nvgpu.NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS, 535, &nvgpu.NV2080_CTRL_FIFO_DISABLE_CHANNELS_PARAMS{}},
		{nvgpu.NV2080_CTRL_CMD_GR_GET_INFO, 535, &nvgpu.NV2080_CTRL_GR_GET_INFO_PARAMS{}},
		{nvgpu.NV2080_CTRL_CMD_FB_GET_INFO, 535, &nvgpu.NvxxxCtrlXxxGetInfoParams{}},
		{nvgpu.NV2080_CTRL_CMD_BIOS_GET_INFO, 535, &nvgpu.NvxxxCtrlXxxGetInfoParams{}},
		{nvgpu.NV2080_CTRL_CMD_GPU_EXEC_REG_OPS, 535, &nvgpu.NV2080_CTRL_GPU_EXEC_REG_OPS_PARAMS{}},
		{nvgpu.NV503C_CTRL_CMD_REGISTER_VA_SPACE, 535, &nvgpu.NV503C_CTRL_REGISTER_VA_SPACE_PARAMS{}},
		{nvgpu.NV83DE_CTRL_CMD_DEBUG_READ_MEMORY, 535, &nvgpu.NV83DE_CTRL_DEBUG_READ_MEMORY_PARAMS{}},
	}, func(a *ABI, cmd uint32) (uint32, bool) {
		control, ok := a.Controls[cmd]
		return control.Size, ok
	})
}

func TestUVMSizesOfGVisor(t *testing.T) {
	compareSizes(t, "UVM command", []gvisorRow{
		{nvgpu.UVM_INITIALIZE, 535, &nvgpu.UVM_INITIALIZE_PARAMS{}},
		{nvgpu.UVM_CREATE_RANGE_GROUP, 535, &nvgpu.UVM_CREATE_RANGE_GROUP_PARAMS{}},
		{nvgpu.UVM_DESTROY_RANGE_GROUP, 535, &nvgpu.UVM_DESTROY_RANGE_GROUP_PARAMS{}},
		{nvgpu.UVM_REGISTER_GPU_VASPACE, 535, &nvgpu.UVM_REGISTER_GPU_VASPACE_PARAMS{}},
		{nvgpu.UVM_UNREGISTER_GPU_VASPACE, 535, &nvgpu.UVM_UNREGISTER_GPU_VASPACE_PARAMS{}},
		{nvgpu.UVM_REGISTER_CHANNEL, 535, &nvgpu.UVM_REGISTER_CHANNEL_PARAMS{}},
		{nvgpu.UVM_UNREGISTER_CHANNEL, 535, &nvgpu.UVM_UNREGISTER_CHANNEL_PARAMS{}},
		{nvgpu.UVM_UNREGISTER_CHANNEL, 590, &nvgpu.UVM_UNREGISTER_CHANNEL_PARAMS_V590{}},
		{nvgpu.UVM_ENABLE_PEER_ACCESS, 535, &nvgpu.UVM_ENABLE_PEER_ACCESS_PARAMS{}},
		{nvgpu.UVM_SET_RANGE_GROUP, 535, &nvgpu.UVM_SET_RANGE_GROUP_PARAMS{}},
		{nvgpu.UVM_MAP_EXTERNAL_ALLOCATION, 535, &nvgpu.UVM_MAP_EXTERNAL_ALLOCATION_PARAMS{}},
		{nvgpu.UVM_MAP_EXTERNAL_ALLOCATION, 550, &nvgpu.UVM_MAP_EXTERNAL_ALLOCATION_PARAMS_V550{}},
		{nvgpu.UVM_FREE, 535, &nvgpu.UVM_FREE_PARAMS{}},
		{nvgpu.UVM_FREE, 590, &nvgpu.UVM_FREE_PARAMS_V590{}},
		{nvgpu.UVM_REGISTER_GPU, 535, &nvgpu.UVM_REGISTER_GPU_PARAMS{}},
		{nvgpu.UVM_UNREGISTER_GPU, 535, &nvgpu.UVM_UNREGISTER_GPU_PARAMS{}},
		{nvgpu.UVM_PAGEABLE_MEM_ACCESS, 535, &nvgpu.UVM_PAGEABLE_MEM_ACCESS_PARAMS{}},
		{nvgpu.UVM_SET_PREFERRED_LOCATION, 535, &nvgpu.UVM_SET_PREFERRED_LOCATION_PARAMS{}},
		{nvgpu.UVM_SET_PREFERRED_LOCATION, 550, &nvgpu.UVM_SET_PREFERRED_LOCATION_PARAMS_V550{}},
		{nvgpu.UVM_SET_ACCESSED_BY, 535, &nvgpu.UVM_SET_ACCESSED_BY_PARAMS{}},
		{nvgpu.UVM_MIGRATE, 535, &nvgpu.UVM_MIGRATE_PARAMS{}},
		{nvgpu.UVM_MIGRATE, 550, &nvgpu.UVM_MIGRATE_PARAMS_V550{}},
		{nvgpu.UVM_MIGRATE_RANGE_GROUP, 535, &nvgpu.UVM_MIGRATE_RANGE_GROUP_PARAMS{}},
		{nvgpu.UVM_MAP_DYNAMIC_PARALLELISM_REGION, 535, &nvgpu.UVM_MAP_DYNAMIC_PARALLELISM_REGION_PARAMS{}},
		{nvgpu.UVM_UNMAP_EXTERNAL, 535, &nvgpu.UVM_UNMAP_EXTERNAL_PARAMS{}},
		{nvgpu.UVM_ALLOC_SEMAPHORE_POOL, 535, &nvgpu.UVM_ALLOC_SEMAPHORE_POOL_PARAMS{}},
		{nvgpu.UVM_ALLOC_SEMAPHORE_POOL, 550, &nvgpu.UVM_ALLOC_SEMAPHORE_POOL_PARAMS_V550{}},
		{nvgpu.UVM_PAGEABLE_MEM_ACCESS_ON_GPU, 535, &nvgpu.UVM_PAGEABLE_MEM_ACCESS_ON_GPU_PARAMS{}},
		{nvgpu.UVM_VALIDATE_VA_RANGE, 535, &nvgpu.UVM_VALIDATE_VA_RANGE_PARAMS{}},
		{nvgpu.UVM_CREATE_EXTERNAL_RANGE, 535, &nvgpu.UVM_CREATE_EXTERNAL_RANGE_PARAMS{}},
		{nvgpu.UVM_MM_INITIALIZE, 535, &nvgpu.UVM_MM_INITIALIZE_PARAMS{}},
	}, func(a *ABI, cmd uint32) (uint32, bool) {
		call, ok := a.UVM[cmd]
		return call.Size, ok
	})
}
