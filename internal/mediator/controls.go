package mediator

import "gvisor.dev/gvisor/pkg/abi/nvgpu"

// controlRule is the disposition of an RM control. The zero rule executes it as it
// stands. A control without a rule is refused with NV_ERR_NOT_SUPPORTED, the driver's
// own answer to an unknown one.
type controlRule struct {
	// fixed: the control is never executed, and answered with status.
	fixed  bool
	status uint32
	// check refuses by the parameters, with the status it returns.
	check func(*call, *params) uint32
	// instead answers in place of the driver.
	instead func(*call, *params) uint32
	// show changes the results of a successful control into what the tenant may see.
	show func(*call, *params)
	why  string
}

func pass(why string) controlRule { return controlRule{why: why} }

func fake(why string) controlRule { return controlRule{fixed: true, why: why} }

func deny(status uint32, why string) controlRule {
	return controlRule{fixed: true, status: status, why: why}
}

// Controls for which gvisor's nvgpu has no name, from the driver's ctrl headers.
const (
	ctrlBuildVersionV2    = 0x0000013e
	ctrlUUIDInfo          = 0x00000274
	ctrlObjectsDuplicates = 0x00000d07
	ctrlNumHeads          = 0x00730102
	ctrlVGXCaps           = 0x0080028e
	ctrlBrandCaps         = 0x00800294
	ctrlGPUGetInfo        = 0x20800101
	ctrlGetSDM            = 0x20800118
	ctrlPartitionCapacity = 0x20800181
	ctrlBIOSInfoV2        = 0x20800810
	ctrlRunlistPolicy     = 0x20801115
	ctrlGRInfoV2          = 0x20801228
	ctrlErrorCount        = 0x20802205
	ctrlCECaps            = 0x20802a01
	ctrlNVLinkPeerIDMask  = 0x20801825
	ctrlGroupGetInfo      = 0xa06c0106
	ctrlGroupInterleave   = 0xa06c0107
	ctrlGroupRealtime     = 0xa06c0110
	ctrlChannelInterleave = 0xa06f0109
	ctrlRestartRunlist    = 0xa06f0111
	ctrlStopChannel       = 0xa06f0112
	ctrlSetErrorNotifier  = 0xa06f0108
	ctrlKeplerClassEngine = 0xa06f0101
	ctrlMMUFault          = 0x906f0106
	ctrlVoltaSchedule     = 0xc36f0103
)

// controlRules is the table of dispositions of RM controls.
func controlRules() map[uint32]controlRule {
	rules := make(map[uint32]controlRule)
	for _, list := range []map[uint32]controlRule{viewRules(), timeRules()} {
		for cmd, r := range list {
			rules[cmd] = r
		}
	}
	for why, list := range passed {
		for _, cmd := range list {
			rules[cmd] = pass(why)
		}
	}
	return rules
}

// viewRules are the controls that tell of other tenants, other cards or the whole card.
func viewRules() map[uint32]controlRule {
	return map[uint32]controlRule{
		nvgpu.NV2080_CTRL_CMD_FB_GET_INFO_V2:        {show: showMemoryInfo, why: "the quota is the card's memory"},
		nvgpu.NV2080_CTRL_CMD_FB_GET_INFO:           {show: showMemoryInfoList, why: "the quota is the card's memory"},
		nvgpu.NV2080_CTRL_CMD_FB_GET_FB_REGION_INFO: {show: showRegions, why: "the quota is the card's memory"},

		nvgpu.NV2080_CTRL_CMD_GPU_GET_PIDS:     {show: showProcesses, why: "the tenant's processes only"},
		nvgpu.NV2080_CTRL_CMD_GPU_GET_PID_INFO: {instead: tellProcessMemory, why: "the tenant's processes only, which the driver takes for one"},
		nvgpu.NV2080_CTRL_CMD_PERF_GET_GPUMON_PERFMON_UTIL_SAMPLES_V2: {
			show: showSamples, why: "the tenant's processes only"},

		nvgpu.NV0000_CTRL_CMD_GPU_GET_PROBED_IDS:        {show: showProbedIDs, why: "the tenant's cards only"},
		nvgpu.NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS:      {show: showAttachedIDs, why: "the tenant's cards only"},
		nvgpu.NV0000_CTRL_CMD_GPU_GET_ACTIVE_DEVICE_IDS: {show: showActiveIDs, why: "the tenant's cards only"},
		nvgpu.NV0000_CTRL_CMD_GPU_GET_DEVICE_IDS:        {show: showDeviceIDs, why: "the tenant's cards only"},
		nvgpu.NV0000_CTRL_CMD_GPU_ATTACH_IDS:            {check: checkAttachIDs, why: "the tenant's cards only"},
		nvgpu.NV0000_CTRL_CMD_GPU_ASYNC_ATTACH_ID:       {check: checkFirstID, why: "the tenant's cards only"},
		nvgpu.NV0000_CTRL_CMD_GPU_WAIT_ATTACH_ID:        {check: checkFirstID, why: "the tenant's cards only"},
		nvgpu.NV0000_CTRL_CMD_GPU_DETACH_IDS:            fake("a card stays attached for the others that use it"),
		nvgpu.NV0000_CTRL_CMD_GPU_GET_ID_INFO:           {check: checkFirstID, why: "the tenant's cards only"},
		nvgpu.NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2:        {check: checkFirstID, why: "the tenant's cards only"},
		nvgpu.NV0000_CTRL_CMD_GPU_GET_PCI_INFO:          {check: checkFirstID, why: "the tenant's cards only"},
		nvgpu.NV0000_CTRL_CMD_GPU_GET_UUID_FROM_GPU_ID:  {check: checkFirstID, why: "the tenant's cards only"},
		nvgpu.NV0000_CTRL_CMD_GPU_QUERY_DRAIN_STATE:     {check: checkFirstID, why: "the tenant's cards only"},
		ctrlUUIDInfo: {show: showUUIDInfo, why: "the tenant's cards only"},
		nvgpu.NV0000_CTRL_CMD_SYSTEM_GET_P2P_CAPS:        {check: checkPeerIDs, why: "between the tenant's cards only"},
		nvgpu.NV0000_CTRL_CMD_SYSTEM_GET_P2P_CAPS_V2:     {check: checkPeerIDs, why: "between the tenant's cards only"},
		nvgpu.NV0000_CTRL_CMD_SYSTEM_GET_P2P_CAPS_MATRIX: {check: checkPeerMatrix, why: "between the tenant's cards only"},
		nvgpu.NV0000_CTRL_CMD_SYNC_GPU_BOOST_GROUP_INFO:  {show: showNone, why: "groups of cards that share a clock are not the tenant's"},

		nvgpu.NV0000_CTRL_CMD_CLIENT_SET_INHERITED_SHARE_POLICY: fake("the default lets all of the tenant's processes share, and nobody else"),
		nvgpu.NV0000_CTRL_CMD_CLIENT_GET_ADDR_SPACE_TYPE:        pass("an object of the calling client"),
	}
}

// timeRules are the controls of scheduling and clocks: a card's time is shared out by
// the tenant's pacer, and its clocks are the operator's.
func timeRules() map[uint32]controlRule {
	return map[uint32]controlRule{
		nvgpu.NVA06C_CTRL_CMD_GPFIFO_SCHEDULE: pass("without it nothing runs"),
		nvgpu.NVA06F_CTRL_CMD_GPFIFO_SCHEDULE: pass("without it nothing runs"),
		ctrlVoltaSchedule:                     pass("without it nothing runs"),
		nvgpu.NVA06C_CTRL_CMD_PREEMPT:         pass("a group of the tenant's gives way"),
		nvgpu.NVA06C_CTRL_CMD_SET_TIMESLICE:   fake("libcuda sets one; the tenant's share decides"),
		nvgpu.NVA06C_CTRL_CMD_GET_TIMESLICE:   pass("a group of the tenant's"),
		ctrlGroupInterleave:                   fake("would run the group more often than its share"),
		ctrlChannelInterleave:                 fake("would run the channel more often than its share"),
		ctrlGroupRealtime:                     deny(statusNoPermission, "would run the group before all others"),
		ctrlRestartRunlist:                    deny(statusNoPermission, "interrupts all tenants; the driver wants CAP_SYS_NICE"),
		ctrlRunlistPolicy:                     deny(statusNoPermission, "concerns all tenants; the driver wants CAP_SYS_NICE"),
		ctrlStopChannel:                       deny(statusNotSupported, "no program is known to use it"),
		// The driver checks neither whose channels are listed nor that the gate that holds
		// a tenant to its share stays shut. A driver without GSP firmware answers the same.
		nvgpu.NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS: deny(statusNotSupported, "lists channels of any tenant"),
		nvgpu.NV2080_CTRL_CMD_GR_SET_CTXSW_PREEMPTION_MODE: {
			check: checkPreemptionMode, why: "a context that cannot be preempted would outlast its slice"},
		nvgpu.NV0080_CTRL_CMD_GR_SET_TPC_PARTITION_MODE:   deny(statusNotSupported, "no program is known to use it"),
		nvgpu.NV2080_CTRL_CMD_PERF_BOOST:                  fake("libcuda asks for higher clocks; they are the operator's"),
		nvgpu.NV0080_CTRL_CMD_PERF_CUDA_LIMIT_SET_CONTROL: fake("clocks are the operator's"),
		0x00809909: fake("clocks are the operator's; the closed form of the one before"),
		nvgpu.NV2080_CTRL_CMD_TIMER_SET_GR_TICK_FREQ:       fake("a frequency of the whole card"),
		nvgpu.NV2080_CTRL_CMD_RC_RELEASE_WATCHDOG_REQUESTS: fake("the watchdog guards the whole card"),
		nvgpu.NV2080_CTRL_CMD_RC_SOFT_DISABLE_WATCHDOG:     fake("the watchdog guards the whole card"),
	}
}

// passed are the controls that are executed as they stand: gVisor's nvproxy allows
// them for compute, or nvidia-smi, NVML or libcuda of drivers 535 and 550 were seen
// to need them.
var passed = map[string][]uint32{
	"a fact of the machine or the driver": {
		nvgpu.NV0000_CTRL_CMD_SYSTEM_GET_BUILD_VERSION, ctrlBuildVersionV2,
		nvgpu.NV0000_CTRL_CMD_SYSTEM_GET_CPU_INFO, nvgpu.NV0000_CTRL_CMD_SYSTEM_GET_FABRIC_STATUS,
		nvgpu.NV0000_CTRL_CMD_SYSTEM_GET_FEATURES, nvgpu.NV0000_CTRL_CMD_GPU_GET_MEMOP_ENABLE,
		nvgpu.NV_CONF_COMPUTE_CTRL_CMD_SYSTEM_GET_CAPABILITIES, nvgpu.NV_CONF_COMPUTE_CTRL_CMD_SYSTEM_GET_GPUS_STATE,
		nvgpu.NV_CONF_COMPUTE_CTRL_CMD_GPU_GET_NUM_SECURE_CHANNELS, nvgpu.NV_CONF_COMPUTE_CTRL_CMD_GPU_GET_KEY_ROTATION_STATE,
		nvgpu.NV0000_CTRL_CMD_GPUACCT_GET_ACCOUNTING_STATE, ctrlNumHeads,
	},
	"a fact of a card of the tenant's": {
		nvgpu.NV0080_CTRL_CMD_GPU_GET_CLASSLIST, nvgpu.NV0080_CTRL_CMD_GPU_GET_CLASSLIST_V2,
		nvgpu.NV0080_CTRL_CMD_GPU_GET_NUM_SUBDEVICES, nvgpu.NV0080_CTRL_CMD_GPU_QUERY_SW_STATE_PERSISTENCE,
		nvgpu.NV0080_CTRL_CMD_GPU_GET_VIRTUALIZATION_MODE, nvgpu.UNKNOWN_CONTROL_COMMAND_80028B,
		ctrlVGXCaps, ctrlBrandCaps, nvgpu.NV0080_CTRL_CMD_HOST_GET_CAPS_V2,
		nvgpu.NV0080_CTRL_CMD_FB_GET_CAPS, nvgpu.NV0080_CTRL_CMD_FB_GET_CAPS_V2,
		nvgpu.NV0080_CTRL_CMD_FIFO_GET_CAPS, nvgpu.NV0080_CTRL_CMD_FIFO_GET_CAPS_V2,
		nvgpu.NV0080_CTRL_CMD_GR_GET_CAPS, nvgpu.NV0080_CTRL_CMD_GR_GET_CAPS_V2, nvgpu.NV0080_CTRL_CMD_GR_GET_INFO,
		nvgpu.NV0080_CTRL_CMD_MSENC_GET_CAPS, nvgpu.NV0080_CTRL_CMD_BSP_GET_CAPS_V2, nvgpu.NV0080_CTRL_CMD_NVJPG_GET_CAPS_V2,
		nvgpu.NV0080_CTRL_CMD_DMA_ADV_SCHED_GET_VA_CAPS, nvgpu.NV0080_CTRL_CMD_DMA_GET_CAPS,
		nvgpu.NV0080_CTRL_CMD_FIFO_GET_ENGINE_CONTEXT_PROPERTIES,
		ctrlGPUGetInfo, nvgpu.NV2080_CTRL_CMD_GPU_GET_INFO_V2, ctrlGetSDM,
		nvgpu.NV2080_CTRL_CMD_GPU_GET_NAME_STRING, nvgpu.NV2080_CTRL_CMD_GPU_GET_SHORT_NAME_STRING,
		nvgpu.NV2080_CTRL_CMD_GPU_GET_SIMULATION_INFO, nvgpu.NV2080_CTRL_CMD_GPU_GET_ENGINES,
		nvgpu.NV2080_CTRL_CMD_GPU_GET_ENGINES_V2, nvgpu.NV2080_CTRL_CMD_GPU_QUERY_ECC_STATUS,
		nvgpu.NV2080_CTRL_CMD_GPU_QUERY_COMPUTE_MODE_RULES, nvgpu.NV2080_CTRL_CMD_GPU_QUERY_ECC_CONFIGURATION,
		nvgpu.NV2080_CTRL_CMD_GPU_GET_OEM_BOARD_INFO, nvgpu.NV2080_CTRL_CMD_GPU_GET_ID,
		nvgpu.NV2080_CTRL_CMD_GPU_GET_ENGINE_PARTNERLIST, nvgpu.NV2080_CTRL_CMD_GPU_GET_GID_INFO,
		nvgpu.NV2080_CTRL_CMD_GPU_GET_INFOROM_OBJECT_VERSION, nvgpu.NV2080_CTRL_CMD_GPU_GET_INFOROM_IMAGE_VERSION,
		nvgpu.NV2080_CTRL_CMD_GPU_QUERY_INFOROM_ECC_SUPPORT, nvgpu.NV2080_CTRL_CMD_GPU_GET_ENCODER_CAPACITY,
		nvgpu.NV2080_CTRL_CMD_GPU_GET_ACTIVE_PARTITION_IDS, ctrlPartitionCapacity,
		nvgpu.NV2080_CTRL_CMD_GPU_GET_COMPUTE_POLICY_CONFIG, nvgpu.NV2080_CTRL_CMD_GET_GPU_FABRIC_PROBE_INFO,
		nvgpu.NV2080_CTRL_CMD_GPU_GET_SKYLINE_INFO, nvgpu.NV2080_CTRL_CMD_GPU_GET_CHIP_DETAILS,
		nvgpu.NV2080_CTRL_CMD_GPU_GET_RECOVERY_ACTION, nvgpu.NV2080_CTRL_CMD_BIOS_GET_INFO, ctrlBIOSInfoV2,
		nvgpu.NV2080_CTRL_CMD_BUS_GET_PCI_INFO, nvgpu.NV2080_CTRL_CMD_BUS_GET_PCI_BAR_INFO,
		nvgpu.NV2080_CTRL_CMD_BUS_GET_INFO, nvgpu.NV2080_CTRL_CMD_BUS_GET_INFO_V2,
		nvgpu.NV2080_CTRL_CMD_BUS_GET_PCIE_SUPPORTED_GPU_ATOMICS, nvgpu.NV2080_CTRL_CMD_BUS_GET_C2C_INFO,
		nvgpu.NV2080_CTRL_CMD_BUS_GET_PCIE_REQ_ATOMICS_CAPS, nvgpu.NV2080_CTRL_CMD_BUS_GET_PCIE_CPL_ATOMICS_CAPS,
		ctrlNVLinkPeerIDMask, ctrlCECaps, nvgpu.NV2080_CTRL_CMD_CE_GET_CAPS_V2, nvgpu.NV2080_CTRL_CMD_CE_GET_ALL_CAPS,
		nvgpu.NV2080_CTRL_CMD_CE_GET_CE_PCE_MASK, nvgpu.NV2080_CTRL_CMD_FLCN_GET_CTX_BUFFER_SIZE,
		nvgpu.NV2080_CTRL_CMD_FB_GET_GPU_CACHE_INFO, nvgpu.NV2080_CTRL_CMD_FB_GET_OFFLINED_PAGES,
		nvgpu.NV2080_CTRL_CMD_FB_QUERY_DRAM_ENCRYPTION_INFOROM_SUPPORT, nvgpu.NV2080_CTRL_CMD_FB_QUERY_DRAM_ENCRYPTION_STATUS,
		nvgpu.NV2080_CTRL_CMD_GR_GET_INFO, ctrlGRInfoV2, nvgpu.NV2080_CTRL_CMD_GR_GET_CTX_BUFFER_SIZE,
		nvgpu.NV2080_CTRL_CMD_GR_GET_GLOBAL_SM_ORDER, nvgpu.NV2080_CTRL_CMD_GR_GET_CAPS_V2,
		nvgpu.NV2080_CTRL_CMD_GR_GET_GPC_MASK, nvgpu.NV2080_CTRL_CMD_GR_GET_TPC_MASK,
		nvgpu.NV2080_CTRL_CMD_GR_GET_SM_ISSUE_RATE_MODIFIER, nvgpu.NV2080_CTRL_CMD_GR_GET_SM_ISSUE_RATE_MODIFIER_V2,
		nvgpu.NV2080_CTRL_CMD_GRMGR_GET_GR_FS_INFO, nvgpu.NV2080_CTRL_CMD_GSP_GET_FEATURES,
		nvgpu.NV2080_CTRL_CMD_MC_GET_ARCH_INFO, nvgpu.NV2080_CTRL_CMD_NVLINK_GET_NVLINK_CAPS,
		nvgpu.NV2080_CTRL_CMD_NVLINK_GET_NVLINK_STATUS, nvgpu.NV2080_CTRL_CMD_OS_UNIX_VIDMEM_PERSISTENCE_STATUS,
		nvgpu.NV90E6_CTRL_CMD_MASTER_GET_VIRTUAL_FUNCTION_ERROR_CONT_INTR_MASK, nvgpu.NV90E7_CTRL_CMD_BBX_GET_LAST_FLUSH_TIME,
		nvgpu.NV2080_CTRL_CMD_ECC_GET_REPAIR_STATUS,
	},
	"how a card of the tenant's is doing": {
		nvgpu.NV2080_CTRL_CMD_PERF_GET_CURRENT_PSTATE, nvgpu.NV2080_CTRL_CMD_RC_GET_WATCHDOG_INFO, ctrlErrorCount,
		nvgpu.NV2080_CTRL_CMD_TIMER_GET_TIME, nvgpu.NV2080_CTRL_CMD_TIMER_GET_GPU_CPU_TIME_CORRELATION_INFO,
		nvgpu.NV2080_CTRL_CMD_THERMAL_SYSTEM_EXECUTE_V2, nvgpu.NV2080_CTRL_CMD_BUS_GET_PEX_COUNTERS,
		nvgpu.NV2080_CTRL_CMD_BUS_GET_PEX_UTIL_COUNTERS,
		// Closed, and passed by number: clocks, utilisation, power, fan, temperature.
		0x20808159, 0x20808161, 0x20808513, 0x2080852e, 0x2080852f, 0x20808545, 0x20809001, 0x20809004, 0x20809009,
		0x20809064, 0x2080a026, 0x2080a068, 0x2080a084, 0x2080a097, 0x2080a612, 0x2080a613, 0x2080a618, 0x2080a61a,
		0x2080a61d, 0x2080a61f,
	},
	"concerns objects of the calling client only": {
		nvgpu.NV0041_CTRL_CMD_GET_SURFACE_INFO, nvgpu.NV0080_CTRL_CMD_FIFO_GET_CHANNELLIST,
		nvgpu.NV2080_CTRL_CMD_EVENT_SET_NOTIFICATION, nvgpu.NV2080_CTRL_CMD_MC_SERVICE_INTERRUPTS,
		nvgpu.NV2080_CTRL_CMD_GPU_ACQUIRE_COMPUTE_MODE_RESERVATION, nvgpu.NV2080_CTRL_CMD_GPU_RELEASE_COMPUTE_MODE_RESERVATION,
		nvgpu.NV906F_CTRL_GET_CLASS_ENGINEID, ctrlKeplerClassEngine, nvgpu.NVC36F_CTRL_GET_CLASS_ENGINEID,
		nvgpu.NV906F_CTRL_CMD_RESET_CHANNEL, ctrlMMUFault, nvgpu.NVA06F_CTRL_CMD_BIND, ctrlSetErrorNotifier,
		nvgpu.NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN, nvgpu.NVC36F_CTRL_CMD_GPFIFO_SET_WORK_SUBMIT_TOKEN_NOTIF_INDEX,
		nvgpu.NVC56F_CTRL_CMD_GET_KMB, ctrlGroupGetInfo, ctrlObjectsDuplicates,
		nvgpu.NV83DE_CTRL_CMD_DEBUG_SET_EXCEPTION_MASK, nvgpu.NV83DE_CTRL_CMD_DEBUG_READ_ALL_SM_ERROR_STATES,
		nvgpu.NV83DE_CTRL_CMD_DEBUG_CLEAR_ALL_SM_ERROR_STATES,
	},
}
