package nvabi

// uvmRow is one line of the table of UVM commands.
type uvmRow struct {
	cmd    uint32
	name   string
	size   sizes
	status offsets
	fd     offsets
}

// uvmCalls are the commands that /dev/nvidia-uvm takes, test commands left out
// (kernel-open/nvidia-uvm/uvm.c, uvm_ioctl.h, uvm_linux_ioctl.h). Those with TOOLS
// in their name hold addresses of the caller's memory.
var uvmCalls = []uvmRow{
	{cmd: 23, name: "UVM_CREATE_RANGE_GROUP", size: sizes{535: 16}, status: offsets{535: 8}},
	{cmd: 24, name: "UVM_DESTROY_RANGE_GROUP", size: sizes{535: 16}, status: offsets{535: 8}},
	{cmd: 25, name: "UVM_REGISTER_GPU_VASPACE", size: sizes{535: 32}, status: offsets{535: 28}, fd: offsets{535: 16}},
	{cmd: 26, name: "UVM_UNREGISTER_GPU_VASPACE", size: sizes{535: 20}, status: offsets{535: 16}},
	{cmd: 27, name: "UVM_REGISTER_CHANNEL", size: sizes{535: 56}, status: offsets{535: 48}, fd: offsets{535: 16}},
	{cmd: 28, name: "UVM_UNREGISTER_CHANNEL", size: sizes{535: 28, 590: 12}, status: offsets{535: 24, 590: 8}},
	{cmd: 29, name: "UVM_ENABLE_PEER_ACCESS", size: sizes{535: 36}, status: offsets{535: 32}},
	{cmd: 30, name: "UVM_DISABLE_PEER_ACCESS", size: sizes{535: 36}, status: offsets{535: 32}},
	{cmd: 31, name: "UVM_SET_RANGE_GROUP", size: sizes{535: 32}, status: offsets{535: 24}},
	{cmd: 33, name: "UVM_MAP_EXTERNAL_ALLOCATION", size: sizes{535: 1200, 550: 9264}, status: offsets{535: 1196, 550: 9260}, fd: offsets{535: 1184, 550: 9248}},
	{cmd: 34, name: "UVM_FREE", size: sizes{535: 24, 590: 16}, status: offsets{535: 16, 590: 8}},
	{cmd: 37, name: "UVM_REGISTER_GPU", size: sizes{535: 40}, status: offsets{535: 36}, fd: offsets{535: 24}},
	{cmd: 38, name: "UVM_UNREGISTER_GPU", size: sizes{535: 20}, status: offsets{535: 16}},
	{cmd: 39, name: "UVM_PAGEABLE_MEM_ACCESS", size: sizes{535: 8}, status: offsets{535: 4}},
	{cmd: 40, name: "UVM_PREVENT_MIGRATION_RANGE_GROUPS", size: sizes{535: 272}, status: offsets{535: 264}},
	{cmd: 41, name: "UVM_ALLOW_MIGRATION_RANGE_GROUPS", size: sizes{535: 272}, status: offsets{535: 264}},
	{cmd: 42, name: "UVM_SET_PREFERRED_LOCATION", size: sizes{535: 40}, status: offsets{535: 32, 550: 36}},
	{cmd: 43, name: "UVM_UNSET_PREFERRED_LOCATION", size: sizes{535: 24}, status: offsets{535: 16}},
	{cmd: 44, name: "UVM_ENABLE_READ_DUPLICATION", size: sizes{535: 24}, status: offsets{535: 16}},
	{cmd: 45, name: "UVM_DISABLE_READ_DUPLICATION", size: sizes{535: 24}, status: offsets{535: 16}},
	{cmd: 46, name: "UVM_SET_ACCESSED_BY", size: sizes{535: 40}, status: offsets{535: 32}},
	{cmd: 47, name: "UVM_UNSET_ACCESSED_BY", size: sizes{535: 40}, status: offsets{535: 32}},
	{cmd: 51, name: "UVM_MIGRATE", size: sizes{535: 80}, status: offsets{535: 72}},
	{cmd: 53, name: "UVM_MIGRATE_RANGE_GROUP", size: sizes{535: 32}, status: offsets{535: 24}},
	{cmd: 54, name: "UVM_ENABLE_SYSTEM_WIDE_ATOMICS", size: sizes{535: 20, 595: gone}, status: offsets{535: 16}},
	{cmd: 55, name: "UVM_DISABLE_SYSTEM_WIDE_ATOMICS", size: sizes{535: 20, 595: gone}, status: offsets{535: 16}},
	{cmd: 62, name: "UVM_TOOLS_READ_PROCESS_MEMORY", size: sizes{535: 40}, status: offsets{535: 32}},
	{cmd: 63, name: "UVM_TOOLS_WRITE_PROCESS_MEMORY", size: sizes{535: 40}, status: offsets{535: 32}},
	{cmd: 64, name: "UVM_TOOLS_GET_PROCESSOR_UUID_TABLE", size: sizes{535: 16, 550: 24, 570: 16}, status: offsets{535: 12, 570: 8}},
	{cmd: 65, name: "UVM_MAP_DYNAMIC_PARALLELISM_REGION", size: sizes{535: 40}, status: offsets{535: 32}},
	{cmd: 66, name: "UVM_UNMAP_EXTERNAL", size: sizes{535: 40}, status: offsets{535: 32}},
	{cmd: 67, name: "UVM_TOOLS_FLUSH_EVENTS", size: sizes{535: 4}, status: offsets{535: 0}},
	{cmd: 68, name: "UVM_ALLOC_SEMAPHORE_POOL", size: sizes{535: 1184, 550: 9248}, status: offsets{535: 1176, 550: 9240}},
	{cmd: 69, name: "UVM_CLEAN_UP_ZOMBIE_RESOURCES", size: sizes{535: 4}, status: offsets{535: 0}},
	{cmd: 70, name: "UVM_PAGEABLE_MEM_ACCESS_ON_GPU", size: sizes{535: 24}, status: offsets{535: 20}},
	{cmd: 71, name: "UVM_POPULATE_PAGEABLE", size: sizes{535: 24}, status: offsets{535: 20}},
	{cmd: 72, name: "UVM_VALIDATE_VA_RANGE", size: sizes{535: 24}, status: offsets{535: 16}},
	{cmd: 73, name: "UVM_CREATE_EXTERNAL_RANGE", size: sizes{535: 24}, status: offsets{535: 16}},
	{cmd: 74, name: "UVM_MAP_EXTERNAL_SPARSE", size: sizes{535: 40}, status: offsets{535: 32}},
	{cmd: 75, name: "UVM_MM_INITIALIZE", size: sizes{535: 8}, status: offsets{535: 4}, fd: offsets{535: 0}},
	{cmd: 77, name: "UVM_TOOLS_GET_PROCESSOR_UUID_TABLE_V2", size: sizes{570: 16}, status: offsets{570: 8}},
	{cmd: 78, name: "UVM_ALLOC_DEVICE_P2P", size: sizes{570: 56}, status: offsets{570: 52}, fd: offsets{570: 40}},
	{cmd: 79, name: "UVM_CLEAR_ALL_ACCESS_COUNTERS", size: sizes{570: 4}, status: offsets{570: 0}},
	{cmd: 80, name: "UVM_DISCARD", size: sizes{580: 32}, status: offsets{580: 24}},
	{cmd: 0x30000001, name: "UVM_INITIALIZE", size: sizes{535: 16}, status: offsets{535: 8}},
	{cmd: 0x30000002, name: "UVM_DEINITIALIZE", size: sizes{535: 0}},
}

func resolveUVM(major int) map[uint32]UVMCall {
	calls := make(map[uint32]UVMCall)
	for _, row := range uvmCalls {
		size, ok := row.size.at(major)
		if !ok {
			continue
		}
		calls[row.cmd] = UVMCall{
			Name:   row.name,
			Cmd:    row.cmd,
			Size:   size,
			Status: row.status.offset(major),
			FD:     row.fd.offset(major),
		}
	}
	return calls
}
