package simgpu

// memoryControls are the controls about a card's video memory (ctrl2080fb.h).
func memoryControls() map[uint32]control {
	return map[uint32]control{
		0x20801301: listV1((*controlCall).fbInfo),
		0x20801303: listV2((*controlCall).fbInfo),
		0x2080130e: accept, // FB_FLUSH_GPU_CACHE
		0x20801315: zeros,  // FB_GET_GPU_CACHE_INFO
		0x20801320: (*controlCall).fbRegions,
		0x20801322: zeros, // FB_GET_OFFLINED_PAGES: none
	}
}

// fbInfo is FB_GET_INFO by index (NV2080_CTRL_FB_INFO_INDEX_*). Sizes are in KiB.
func (c *controlCall) fbInfo(index uint32) uint32 {
	m, fb := c.card.model, &c.card.fb
	size := func(n uint64) uint32 { return uint32(n / kib) }
	switch index {
	case 0x04, 0x19: // PARTITION_COUNT, FBP_COUNT
		return m.Partitions
	case 0x05, 0x1d, 0x1f, 0x0a: // BAR1_SIZE, …AVAIL…, …MAX_CONTIGUOUS…, MAPPABLE_HEAP_SIZE
		return size(min(m.BAR1, m.Memory))
	case 0x07, 0x08, 0x20: // RAM_SIZE, TOTAL_RAM_SIZE, USABLE_RAM_SIZE
		return size(fb.total)
	case 0x09: // HEAP_SIZE
		return size(fb.heap())
	case 0x16, 0x12: // HEAP_FREE, LARGEST_FREE_REGION_SIZE
		return size(fb.free())
	case 0x0b: // BUS_WIDTH
		return m.BusWidth
	case 0x0d: // RAM_TYPE
		return m.RAMType
	case 0x0e: // BANK_COUNT
		return 16
	case 0x14, 0x1a, 0x2b: // PARTITION_MASK, FBP_MASK, LTC_MASK
		return 1<<m.Partitions - 1
	case 0x1b: // L2CACHE_SIZE, in bytes
		return m.L2
	case 0x1c: // MEMORYINFO_VENDOR_ID
		return 1
	case 0x22: // LTC_COUNT
		return 2 * m.Partitions
	case 0x23: // LTS_COUNT
		return 8 * m.Partitions
	case 0x2a: // ALLOW_PAGE_RETIREMENT
		return 1
	}
	return 0
}

// fbRegion is a range of video memory with the same properties.
type fbRegion struct {
	Base, Limit, Reserved      uint64
	Performance                uint32
	Compressed, ISO, Protected uint8
	Blacklist                  [17]uint8
}

// fbRegions reports the whole memory as one region.
func (c *controlCall) fbRegions() status {
	clear(c.params)
	r, enough := viewAt[fbRegion](c.params, 8)
	if !enough {
		return errInvalidParamStruct
	}
	putUint32(c.params, 1)
	fb := &c.card.fb
	*r = fbRegion{Limit: fb.total - 1, Reserved: fb.reserved, Compressed: 1, ISO: 1}
	return ok
}
