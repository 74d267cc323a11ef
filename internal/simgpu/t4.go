package simgpu

import "github.com/qgpu-project/qgpu/internal/simgpu/engine"

// teslaT4 is a Tesla T4. Sources: NVIDIA's T4 product brief and Turing
// architecture paper; the reserve is such that CUDA sees what users report of it.
func teslaT4() *Model {
	return &Model{
		Key: "t4", Name: "Tesla T4", ShortName: "TU104-A",
		Device: 0x1eb8, Subsystem: 0x12a2, Revision: 0xa1,
		Architecture: 0x160, Implementation: 4, SMVersion: 0x705,
		GPCs: 5, TPCsPerGPC: 4, SMs: 40, CoresPerSM: 64, TensorPerSM: 8, RTCores: 40,
		WarpsPerSM: 32, RegistersPerSM: 65536, CopyEngines: 4,
		Memory: 15360 * mib, Reserved: 257 * mib,
		VASpaceCost: 1 * mib, GroupCost: 4 * mib, ChannelCost: 64 * kib,
		BAR1: 256 * mib, L2: 4 * mib, BusWidth: 256, RAMType: 0x11, Partitions: 4,
		GraphicsMHz: 585, MaxGraphicsMHz: 1590, MemoryMHz: 5001, MaxMemoryMHz: 5001,
		IdlePower: 27_000, PowerLimit: 70_000, MinPowerLimit: 60_000,
		IdleTemp: 42, BusyTemp: 68,
		PCIeGen: 3, PCIeWidth: 16,
		Classes: append(commonClasses(),
			0xc461, // TURING_USERMODE_A
			0xc46f, // TURING_CHANNEL_GPFIFO_A
			0xc36f, // VOLTA_CHANNEL_GPFIFO_A
			0xc597, // TURING_A
			0xc5c0, // TURING_COMPUTE_A
			0xc5b5, // TURING_DMA_COPY_A
			0xc4b0, // NVC4B0_VIDEO_DECODER
			0xc4b7, // NVC4B7_VIDEO_ENCODER
			0xc570, // NVC570_DISPLAY
			0xc57d, // NVC57D_CORE_CHANNEL_DMA
		),
		Chip: engine.TeslaT4(),
	}
}
