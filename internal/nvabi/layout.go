package nvabi

// Layout holds the offsets and sizes of what moved between branches, in bytes.
// An offset is None in branches without the field.
type Layout struct {
	UtilSample           UtilSampleLayout
	UVMMapExternal       UVMMapExternalLayout
	UVMSemaphorePool     UVMSemaphorePoolLayout
	UVMUnregisterChannel UVMUnregisterChannelLayout
	UVMFreeLength        int // in UVM_FREE; the range is known by its base alone since 590
	MulticastSize        int // allocSize in NV00FD_ALLOCATION_PARAMETERS
	MulticastEvent       int // pOsEvent there
	ExportMaxObjects     int // uint16, in NV0000 OS_UNIX_GET_EXPORT_OBJECT_INFO
	FBRegionSize         int // an element of NV2080 FB_GET_FB_REGION_INFO
	CopyEnginesPresent   int // in NV2080 CE_GET_ALL_CAPS: a bit for each two bytes before it
	SMOrderNumSM         int // uint16, in NV2080 GR_GET_GLOBAL_SM_ORDER
	SMOrderNumTPC        int // uint16, there
	ECCFatalPoison       int // uint8, in NV2080 GPU_QUERY_ECC_STATUS
	ECCFlags             int // there
	DMABufHandles        int // in nv_ioctl_export_to_dma_buf_fd_t
	MemoryNUMANode       int // in NV_MEMORY_ALLOCATION_PARAMS
}

// UtilSampleLayout is a sample of utilisation: a time, then a part for each
// engine (NV2080_CTRL_PERF_GPUMON_PERFMON_UTIL_SAMPLE).
type UtilSampleLayout struct {
	Size       int // of a sample
	EngineSize int // of the part for one engine
	Time       int // uint64; NVIDIA's header says ns, NVML takes it for µs
	FB         int // memory controller
	GR         int // graphics and compute
	NVENC      int
	NVDEC      int
	NVJPG      int
	NVOFA      int
}

// UVMMapExternalLayout is UVM_MAP_EXTERNAL_ALLOCATION_PARAMS.
type UVMMapExternalLayout struct {
	MaxGPUs   int // elements of perGpuAttributes, UVMMapAttributesSize each
	Count     int // gpuAttributesCount, uint64
	ControlFD int
	Client    int
	Memory    int
}

// UVMSemaphorePoolLayout is UVM_ALLOC_SEMAPHORE_POOL_PARAMS.
type UVMSemaphorePoolLayout struct {
	MaxGPUs int
	Count   int // gpuAttributesCount, uint64
}

// UVMUnregisterChannelLayout is UVM_UNREGISTER_CHANNEL_PARAMS.
type UVMUnregisterChannelLayout struct {
	GPU     int // gpuUuid
	Client  int
	Channel int
}

func resolveLayout(major int) Layout {
	at := func(o offsets) int { return o.offset(major) }
	return Layout{
		UtilSample: UtilSampleLayout{
			Size:       at(offsets{535: 472, 550: 704, 570: 776}),
			EngineSize: at(offsets{535: 116, 570: 128}),
			Time:       0,
			FB:         8,
			GR:         at(offsets{535: 124, 570: 136}),
			NVENC:      at(offsets{535: 240, 570: 264}),
			NVDEC:      at(offsets{535: 356, 570: 392}),
			NVJPG:      at(offsets{550: 472, 570: 520}),
			NVOFA:      at(offsets{550: 588, 570: 648}),
		},
		UVMMapExternal: UVMMapExternalLayout{
			MaxGPUs:   at(offsets{535: 32, 550: 256}),
			Count:     at(offsets{535: 1176, 550: 9240}),
			ControlFD: at(offsets{535: 1184, 550: 9248}),
			Client:    at(offsets{535: 1188, 550: 9252}),
			Memory:    at(offsets{535: 1192, 550: 9256}),
		},
		UVMSemaphorePool: UVMSemaphorePoolLayout{
			MaxGPUs: at(offsets{535: 32, 550: 256}),
			Count:   at(offsets{535: 1168, 550: 9232}),
		},
		UVMUnregisterChannel: UVMUnregisterChannelLayout{
			GPU:     at(offsets{535: 0, 590: None}),
			Client:  at(offsets{535: 16, 590: 0}),
			Channel: at(offsets{535: 20, 590: 4}),
		},
		UVMFreeLength:      at(offsets{535: 8, 590: None}),
		MulticastSize:      at(offsets{535: 8, 550: 48}),
		MulticastEvent:     at(offsets{535: 32, 550: 72}),
		ExportMaxObjects:   at(offsets{535: 8, 550: 12}),
		FBRegionSize:       at(offsets{535: 48, 580: 56}),
		CopyEnginesPresent: at(offsets{535: 64, 550: 128}),
		SMOrderNumSM:       at(offsets{535: 6144, 580: 9216}),
		SMOrderNumTPC:      at(offsets{535: 6146, 580: 9218}),
		ECCFatalPoison:     at(offsets{535: 960, 550: 1000, 570: 1440, 590: 1640}),
		ECCFlags:           at(offsets{535: 964, 550: 1004, 570: 1444, 590: 1644}),
		DMABufHandles:      at(offsets{535: 32, 570: 36}),
		MemoryNUMANode:     at(offsets{550: 120}),
	}
}
