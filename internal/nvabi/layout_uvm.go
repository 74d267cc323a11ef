package nvabi

// The constants of this file are offsets of fields in the arguments of UVM
// commands, in bytes, equal in every branch with a table
// (kernel-open/nvidia-uvm/uvm_ioctl.h). What moved is in Layout; where the status
// and descriptors lie is in UVMCall.

// UVM_INITIALIZE_PARAMS.
const (
	UVMInitializeFlags = 0 // uint64

	UVMFlagDisableHMM          = 0x1
	UVMFlagMultiProcessSharing = 0x2
)

// UVMBase and UVMLength are the offsets of the address and the length of a range,
// uint64 each, in all commands that act on one: CREATE_EXTERNAL_RANGE,
// MAP_EXTERNAL_ALLOCATION, MAP_EXTERNAL_SPARSE, UNMAP_EXTERNAL,
// MAP_DYNAMIC_PARALLELISM_REGION, ALLOC_SEMAPHORE_POOL, VALIDATE_VA_RANGE, FREE
// (see Layout.UVMFreeLength), MIGRATE, ALLOC_DEVICE_P2P, the preferred location,
// read duplication and accessed-by commands.
const (
	UVMBase   = 0
	UVMLength = 8
)

// UVMUUIDSize is the size of a card's UUID.
const UVMUUIDSize = 16

// UVM_REGISTER_GPU_PARAMS; UVM_UNREGISTER_GPU_PARAMS begins likewise.
const (
	UVMRegisterGPUUUID   = 0
	UVMRegisterGPUNUMA   = 16 // uint8, out
	UVMRegisterGPUNode   = 20 // int32, out
	UVMRegisterGPUFD     = 24
	UVMRegisterGPUClient = 28
	UVMRegisterGPUSMCRef = 32
)

// UVM_REGISTER_GPU_VASPACE_PARAMS; UVM_UNREGISTER_GPU_VASPACE_PARAMS begins
// likewise.
const (
	UVMVASpaceUUID   = 0
	UVMVASpaceFD     = 16
	UVMVASpaceClient = 20
	UVMVASpaceHandle = 24
)

// UVM_REGISTER_CHANNEL_PARAMS.
const (
	UVMChannelUUID   = 0
	UVMChannelFD     = 16
	UVMChannelClient = 20
	UVMChannelHandle = 24
	UVMChannelBase   = 32
	UVMChannelLength = 40
)

// UVM_MAP_EXTERNAL_ALLOCATION_PARAMS, whose range comes first. Of
// perGpuAttributes an element is a UvmGpuMappingAttributes.
const (
	UVMMapExternalOffset     = 16
	UVMMapExternalAttributes = 24
	UVMMapAttributesSize     = 36
	UVMMapAttributesUUID     = 0
	UVMMapAttributesMapping  = 16
	UVMMapAttributesCaching  = 20
)

// Other commands.
const (
	UVMUnmapExternalUUID       = 16
	UVMSemaphorePoolAttributes = 16
	UVMDynamicParallelismUUID  = 16
	UVMMapExternalSparseUUID   = 16
	UVMRangeGroupID            = 0 // uint64, out, CREATE_RANGE_GROUP
	UVMMMInitializeFD          = 0
	UVMPageableAccess          = 0 // uint8, out, PAGEABLE_MEM_ACCESS
	UVMPageableAccessOnGPUUUID = 0
	UVMPageableAccessOnGPU     = 16 // uint8, out, PAGEABLE_MEM_ACCESS_ON_GPU
	UVMMigrateDestination      = 16
	UVMMigrateFlags            = 32
	UVMMigrateSemaphore        = 40 // address the driver releases when done, or 0
	UVMMigrateSemaphorePayload = 48
	UVMPreferredLocation       = 16
	UVMPeerAccessUUIDA         = 0
	UVMPeerAccessUUIDB         = 16
)
