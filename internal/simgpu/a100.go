package simgpu

import "github.com/qgpu-project/qgpu/internal/simgpu/engine"

// a100SXM4 is an A100-SXM4-40GB. Sources: NVIDIA's A100 architecture paper; the
// reserve as nvidia-smi -q shows it with drivers 535 and 550.
func a100SXM4() *Model {
	return &Model{
		Key: "a100", Name: "NVIDIA A100-SXM4-40GB", ShortName: "GA100-A",
		Device: 0x20b0, Subsystem: 0x134f, Revision: 0xa1,
		Architecture: 0x170, Implementation: 0, SMVersion: 0x800, Ampere: true,
		GPCs: 7, TPCsPerGPC: 8, SMs: 108, CoresPerSM: 64, TensorPerSM: 4,
		WarpsPerSM: 64, RegistersPerSM: 65536, CopyEngines: 4,
		Memory: 40960 * mib, Reserved: 571 * mib,
		VASpaceCost: 1 * mib, GroupCost: 8 * mib, ChannelCost: 64 * kib,
		BAR1: 65536 * mib, L2: 40 * mib, BusWidth: 5120, RAMType: 0x0f, Partitions: 10,
		GraphicsMHz: 210, MaxGraphicsMHz: 1410, MemoryMHz: 1215, MaxMemoryMHz: 1215,
		IdlePower: 52_000, PowerLimit: 400_000, MinPowerLimit: 100_000,
		IdleTemp: 33, BusyTemp: 61,
		PCIeGen: 4, PCIeWidth: 16,
		Classes: append(commonClasses(),
			0xc561, // AMPERE_USERMODE_A
			0xc461, // TURING_USERMODE_A
			0xc56f, // AMPERE_CHANNEL_GPFIFO_A
			0xc46f, // TURING_CHANNEL_GPFIFO_A
			0xc697, // AMPERE_A
			0xc6c0, // AMPERE_COMPUTE_A
			0xc6b5, // AMPERE_DMA_COPY_A
			0xc6b0, // NVC6B0_VIDEO_DECODER
		),
		Chip: engine.Chip{
			Name: "GA100", SMs: 108, ThreadsPerSM: 2048, BlocksPerSM: 32,
			RegistersPerSM: 65536, SharedPerSM: 164 * kib, ClockMHz: 1410,
			MemoryBandwidth: 1555e9, BusBandwidth: 24e9, CopyEngines: 4,
		},
	}
}
