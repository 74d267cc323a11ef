package simgpu

// busControls are the controls about the card's bus, links and firmware image
// (ctrl2080bus.h, ctrl2080nvlink.h, ctrl2080bios.h).
func busControls() map[uint32]control {
	return map[uint32]control{
		0x20800802: listV1((*controlCall).biosInfo),
		0x20801801: answer((*controlCall).pciInfo),
		0x20801802: listV1((*controlCall).busInfo),
		0x20801803: answer((*controlCall).barInfo),
		0x20801823: listV2((*controlCall).busInfo),
		0x2080182a: zeros, // BUS_GET_PCIE_SUPPORTED_GPU_ATOMICS: none
		0x2080182b: zeros, // BUS_GET_C2C_INFO: no C2C link
		0x20803001: zeros, // NVLINK_GET_NVLINK_CAPS
		0x20803002: zeros, // NVLINK_GET_NVLINK_STATUS: no links
	}
}

type pciInfo struct{ Device, Subsystem, Revision, ExtDevice uint32 }

func (c *controlCall) pciInfo(p *pciInfo) status {
	m := c.card.model
	*p = pciInfo{
		Device:    uint32(m.Device)<<16 | pciVendor,
		Subsystem: uint32(m.Subsystem)<<16 | pciVendor,
		Revision:  uint32(m.Revision),
		ExtDevice: uint32(m.Device),
	}
	return ok
}

// busInfo is BUS_GET_INFO by index (NV2080_CTRL_BUS_INFO_INDEX_*).
func (c *controlCall) busInfo(index uint32) uint32 {
	m := c.card.model
	gen, width := m.PCIeGen, m.PCIeWidth
	switch index {
	case 0x00: // TYPE: PCI Express
		return 3
	case 0x03, 0x04, 0x16, 0x2d, 0x30: // PCIE_GPU_LINK_CAPS, …ROOT…, …BOARD…, PCIE_GEN_INFO, …BOARD…
		// Most speed and width, and the generation of link, of now and of the card.
		return gen | width<<4 | (gen-1)<<12 | (gen-1)<<16 | (gen-1)<<20
	case 0x07, 0x17: // PCIE_GPU_LINK_CTRL_STATUS, …BOARD…: speed and width of now
		return gen<<16 | width<<20
	case 0x0b, 0x0c: // (NON)COHERENT_DMA_FLAGS
		return 3
	case 0x0f: // BUS_NUMBER
		return uint32(c.card.bus)
	case 0x13: // INTERFACE_TYPE
		return 2
	case 0x2e: // GPU_INTERFACE_TYPE
		return 2
	}
	return 0
}

type barInfo struct {
	Count, _ uint32
	BARs     [8]struct {
		Flags, MiB   uint32
		Size, Offset uint64
	}
}

func (c *controlCall) barInfo(p *barInfo) status {
	*p = barInfo{Count: 3}
	reg, regSize := c.card.registers()
	fb, fbSize := c.card.bar1()
	for i, r := range [][2]uint64{{reg, regSize}, {fb, fbSize}, {reg + 1<<32, 32 * mib}} {
		b := &p.BARs[i]
		b.Offset, b.Size, b.MiB = r[0], r[1], uint32(r[1]/mib)
	}
	return ok
}

// biosInfo is BIOS_GET_INFO: revision 90.04.96.00.01 and its like.
func (c *controlCall) biosInfo(index uint32) uint32 {
	const revision, oemRevision = 0, 1
	switch index {
	case revision:
		if c.card.model.Ampere {
			return 0x92001900
		}
		return 0x90049600
	case oemRevision:
		return 1
	}
	return 0
}
