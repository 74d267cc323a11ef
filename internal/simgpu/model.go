package simgpu

import "github.com/qgpu-project/qgpu/internal/simgpu/engine"

const (
	kib = 1 << 10
	mib = 1 << 20
)

// Model is a model of card as a set of facts: what the driver reports of it and
// what decides how long its work takes. A Model is immutable.
type Model struct {
	Key       string // how users name it, such as "t4"
	Name      string // as nvidia-smi shows it
	ShortName string // the chip

	// PCI identity.
	Device, Subsystem uint16
	Revision          uint8

	// Architecture and Implementation are the fields of PMC_BOOT_0, as
	// NV2080_CTRL_CMD_MC_GET_ARCH_INFO reports them.
	Architecture, Implementation uint32
	SMVersion                    uint32 // such as 0x705 for sm_75
	Ampere                       bool   // Ampere or later: other channel classes

	GPCs, TPCsPerGPC int // of the chip as enabled; the last GPC may have fewer TPCs
	SMs              int
	CoresPerSM       int
	TensorPerSM      int
	RTCores          int
	WarpsPerSM       int
	RegistersPerSM   uint32
	CopyEngines      int

	// Memory sizes in bytes. Total = reserved by the driver + what clients use +
	// free, at every moment.
	Memory      uint64 // what nvidia-smi shows as total
	Reserved    uint64 // kept by the driver and its firmware
	VASpaceCost uint64 // page tables of one GPU address space
	GroupCost   uint64 // context buffers of one channel group on the graphics engine
	ChannelCost uint64 // instance block and method buffers of one channel
	BAR1        uint64
	L2          uint32
	BusWidth    uint32 // of the memory interface, in bits
	RAMType     uint32 // NV2080_CTRL_FB_INFO_RAM_TYPE_*
	Partitions  uint32 // memory partitions (FBPs)

	// Clocks in MHz, power in mW, temperature in °C.
	GraphicsMHz, MaxGraphicsMHz uint32
	MemoryMHz, MaxMemoryMHz     uint32
	IdlePower, PowerLimit       uint32
	MinPowerLimit               uint32
	IdleTemp, BusyTemp          uint32

	PCIeGen, PCIeWidth uint32

	Classes []uint32 // what RM_ALLOC accepts on the card, as GET_CLASSLIST reports it

	Chip engine.Chip
}

// TPCs is the number of texture processing clusters, two SMs each.
func (m *Model) TPCs() int { return m.SMs / 2 }

// Models returns the models of card there are, by key.
func Models() map[string]*Model {
	byKey := map[string]*Model{}
	for _, m := range []*Model{teslaT4(), a100SXM4()} {
		byKey[m.Key] = m
	}
	return byKey
}

// commonClasses are the RM classes that every model has beside its engines' own.
func commonClasses() []uint32 {
	return []uint32{
		0x0040, // NV01_MEMORY_LOCAL_USER
		0x003e, // NV01_MEMORY_SYSTEM
		0x0070, // NV01_MEMORY_VIRTUAL
		0x50a0, // NV50_MEMORY_VIRTUAL
		0x503b, // NV50_P2P
		0x503c, // NV50_THIRD_PARTY_P2P
		0x5080, // NV50_DEFERRED_API_CLASS
		0x00de, // RM_USER_SHARED_DATA
		0x83de, // GT200_DEBUGGER
		0xa06c, // KEPLER_CHANNEL_GROUP_A
		0x90f1, // FERMI_VASPACE_A
		0x9067, // FERMI_CONTEXT_SHARE_A
		0x902d, // FERMI_TWOD_A
		0xa140, // KEPLER_INLINE_TO_MEMORY_B
		0x9072, // GF100_DISP_SW
		0x9074, // GF100_TIMED_SEMAPHORE_SW
		0x9096, // GF100_ZBC_CLEAR
		0x90e6, // GF100_SUBDEVICE_MASTER
		0x90e7, // GF100_SUBDEVICE_INFOROM
		0x208f, // NV20_SUBDEVICE_DIAG
		0xc076, // GP100_UVM_SW
		0xc361, // VOLTA_USERMODE_A
		0xc365, // ACCESS_COUNTER_NOTIFY_BUFFER
		0xc369, // MMU_FAULT_BUFFER
	}
}
