package nvclient

import (
	"fmt"

	"gvisor.dev/gvisor/pkg/abi/nvgpu"
)

// Card is a card as the driver describes it.
type Card struct {
	Minor       int    // of /dev/nvidiaN
	GPUID       uint32 // the driver's own id, unique on the machine
	Address     string // PCI address, such as 0000:01:00.0
	Instance    uint32 // device instance, which NV01_DEVICE_0 names
	SubInstance uint32
	UUID        string // such as GPU-5a1dbeef-1122-4344-8566-778899aabbcc
	Name        string
	Total       uint64 // bytes of memory
	Reserved    uint64 // bytes of Total that the driver keeps for itself
	Free        uint64 // bytes
}

// cardInfo reads the driver's list of cards (NV_ESC_CARD_INFO, nv_ioctl_card_info_t).
func cardInfo(d Driver, ctl int) ([]Card, error) {
	m := make(message, maxCards*sizeCard)
	if err := ioctl(d, ctl, nrCardInfo, m); err != nil {
		return nil, fmt.Errorf("ask the driver for its cards: %w", err)
	}
	var cards []Card
	for i := range maxCards {
		e := m[i*sizeCard : (i+1)*sizeCard]
		if e[0] == 0 { // valid
			continue
		}
		cards = append(cards, Card{
			Minor:   int(e.u32(56)),
			GPUID:   e.u32(16),
			Address: fmt.Sprintf("%04x:%02x:%02x.%x", e.u32(4), e[8], e[9], e[10]),
		})
	}
	return cards, nil
}

// attachID makes a card known to RM's clients (NV0000_CTRL_GPU_ATTACH_IDS_PARAMS).
func (c *Client) attachID(id uint32) error {
	p, err := c.params(nvgpu.NV0000_CTRL_CMD_GPU_ATTACH_IDS, 132)
	if err != nil {
		return err
	}
	p.setU32(0, id)
	for i := 1; i < maxCards; i++ {
		p.setU32(4*i, nvgpu.NV0000_CTRL_GPU_INVALID_ID)
	}
	return c.control(c.root, nvgpu.NV0000_CTRL_CMD_GPU_ATTACH_IDS, p)
}

// identify finds a card's instances (NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS).
func (c *Client) identify(card *Card) error {
	p, err := c.params(nvgpu.NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2, 32)
	if err != nil {
		return err
	}
	p.setU32(0, card.GPUID)
	if err := c.control(c.root, nvgpu.NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2, p); err != nil {
		return fmt.Errorf("ask for its instance: %w", err)
	}
	card.Instance, card.SubInstance = p.u32(8), p.u32(12)
	return nil
}

// Indices of NV2080_CTRL_FB_INFO, from ctrl2080fb.h. The driver answers in KiB.
const (
	fbTotalSize = 0x08
	fbHeapSize  = 0x09
	fbHeapFree  = 0x16
)

// describe asks a card's subdevice for name, UUID and memory.
func (c *Client) describe(card *Card, subdevice uint32) error {
	name, err := c.params(nvgpu.NV2080_CTRL_CMD_GPU_GET_NAME_STRING, 4+64)
	if err != nil {
		return err
	}
	if err := c.control(subdevice, nvgpu.NV2080_CTRL_CMD_GPU_GET_NAME_STRING, name); err != nil {
		return fmt.Errorf("ask for its name: %w", err)
	}
	card.Name = name.text(4, 64)

	gid, err := c.params(nvgpu.NV2080_CTRL_CMD_GPU_GET_GID_INFO, 12+256)
	if err != nil {
		return err
	}
	if err := c.control(subdevice, nvgpu.NV2080_CTRL_CMD_GPU_GET_GID_INFO, gid); err != nil {
		return fmt.Errorf("ask for its UUID: %w", err)
	}
	card.UUID = gid.text(12, 256)

	fb, err := c.params(nvgpu.NV2080_CTRL_CMD_FB_GET_INFO_V2, 4+3*8)
	if err != nil {
		return err
	}
	fb.setU32(0, 3)
	for i, index := range []uint32{fbTotalSize, fbHeapSize, fbHeapFree} {
		fb.setU32(4+8*i, index)
	}
	if err := c.control(subdevice, nvgpu.NV2080_CTRL_CMD_FB_GET_INFO_V2, fb); err != nil {
		return fmt.Errorf("ask for its memory: %w", err)
	}
	card.Total = uint64(fb.u32(8)) << 10
	if heap := uint64(fb.u32(16)) << 10; heap < card.Total {
		card.Reserved = card.Total - heap
	}
	card.Free = uint64(fb.u32(24)) << 10
	return nil
}

// Layout of NV2080_CTRL_GPU_GET_PID_INFO_PARAMS, from ctrl2080gpu.h.
const (
	pidInfoList  = 8 // offset of the first entry
	pidInfoEntry = 72
	pidResult    = 8 // offsets in an entry
	pidPrivate   = 16
	pidShared    = 24
)

// ProcessMemory is the memory in bytes that process pid, in this process's pid
// namespace, holds on the i-th of Cards, as the driver counts it: allocations of
// its clients, also those that others share, but neither managed memory nor what
// the driver allocates for itself.
func (c *Client) ProcessMemory(i int, pid int) (uint64, error) {
	p, err := c.params(nvgpu.NV2080_CTRL_CMD_GPU_GET_PID_INFO, pidInfoList+pidInfoEntry)
	if err != nil {
		return 0, err
	}
	p.setU32(0, 1)
	e := p[pidInfoList:]
	e.setU32(0, uint32(pid))
	if err := c.control(subdeviceHandle+uint32(i), nvgpu.NV2080_CTRL_CMD_GPU_GET_PID_INFO, p); err != nil {
		return 0, fmt.Errorf("ask card %d for the memory of process %d: %w", c.cards[i].Minor, pid, err)
	}
	if s := e.u32(pidResult); s != nvgpu.NV_OK {
		return 0, fmt.Errorf("ask card %d for the memory of process %d: %w", c.cards[i].Minor, pid, Status(s))
	}
	// Memory moves from private to shared-owned once UVM maps it.
	return e.u64(pidPrivate) + e.u64(pidShared), nil
}
