package simgpu

import "time"

// watchdogDisabled says that no kernel is ended for running long, as on cards
// without a display (NV2080_CTRL_RC_GET_WATCHDOG_INFO_FLAGS_DISABLED).
const watchdogDisabled = 1

// gpuControls are the controls of NV20_SUBDEVICE_0 about the card itself, its
// timer, events and copy engines (ctrl2080gpu.h, ctrl2080mc.h, ctrl2080tmr.h,
// ctrl2080event.h, ctrl2080ce.h).
func gpuControls() map[uint32]control {
	return map[uint32]control{
		0x20800101: listV1((*controlCall).gpuInfo),
		0x20800102: listV2((*controlCall).gpuInfo),
		0x20800110: answer((*controlCall).name),
		0x20800111: (*controlCall).shortName,
		0x20800119: constant(0), // GPU_GET_SIMULATION_INFO: silicon, as far as clients go
		0x20800123: (*controlCall).engines,
		0x20800131: constant(0), // GPU_QUERY_COMPUTE_MODE_RULES: none
		0x20800142: (*controlCall).gpuID,
		0x20800145: accept, // GPU_ACQUIRE_COMPUTE_MODE_RESERVATION
		0x20800146: accept, // GPU_RELEASE_COMPUTE_MODE_RESERVATION
		0x20800147: answer((*controlCall).partners),
		0x2080014a: answer((*controlCall).gid),
		0x20800170: (*controlCall).enginesV2,
		0x2080018b: zeros, // GPU_GET_ACTIVE_PARTITION_IDS: no MIG
		0x208001a4: answer((*controlCall).chipDetails),
		0x20800301: accept, // EVENT_SET_NOTIFICATION
		0x20800303: accept, // EVENT_SET_MEMORY_NOTIFIES
		0x20800403: answer((*controlCall).time),
		0x20800406: answer((*controlCall).timeCorrelation),
		0x20801701: answer((*controlCall).archInfo),
		0x20801702: accept,                     // MC_SERVICE_INTERRUPTS: none is ever pending
		0x2080200a: accept,                     // PERF_BOOST
		0x20802209: constant(watchdogDisabled), // RC_GET_WATCHDOG_INFO
		0x2080220c: accept,                     // RC_RELEASE_WATCHDOG_REQUESTS
		0x20802210: accept,                     // RC_SOFT_DISABLE_WATCHDOG
		0x20802a01: answer((*controlCall).copyCaps),
		0x20802a03: answer((*controlCall).copyCapsV2),
		0x20802a0a: (*controlCall).allCopyCaps,
		0x20803601: answer((*controlCall).gspFeatures),
		0x20803d07: caps(1), // OS_UNIX_VIDMEM_PERSISTENCE_STATUS
		0x20808159: zeros,   // closed
	}
}

// gpuInfo is GPU_GET_INFO by index.
func (c *controlCall) gpuInfo(index uint32) uint32 {
	const smVersion, profiling, debugging = 0x2c, 0x36, 0x37
	switch index {
	case smVersion:
		return c.card.model.SMVersion
	case profiling, debugging:
		return 1
	}
	return 0
}

type nameString struct {
	Flags uint32
	Text  [128]byte
}

func (c *controlCall) name(p *nameString) status {
	const unicode = 1
	name := c.card.model.Name
	if p.Flags&unicode == 0 {
		putString(p.Text[:64], name)
		return ok
	}
	clear(p.Text[:])
	for i := range min(len(name), 63) {
		p.Text[2*i] = name[i]
	}
	return ok
}

func (c *controlCall) shortName() status {
	putString(c.params, c.card.model.ShortName)
	return ok
}

func (c *controlCall) gpuID() status {
	putUint32(c.params, c.card.gpuID)
	return ok
}

// engineTypes lists the card's engines (NV2080_ENGINE_TYPE_*).
func (m *Model) engineTypes() []uint32 {
	types := []uint32{engineGraphics}
	for i := range m.CopyEngines {
		types = append(types, engineCopyFirst+uint32(i))
	}
	return append(types, engineSoftware)
}

func (c *controlCall) enginesV2() status {
	types := c.card.model.engineTypes()
	clear(c.params)
	list, fits := viewList[uint32](c.params, 1+len(types))
	if !fits {
		return errInvalidParamStruct
	}
	list[0] = uint32(len(types))
	copy(list[1:], types)
	return ok
}

func (c *controlCall) engines() status {
	types := c.card.model.engineTypes()
	if len(c.buffers) > 0 && c.buffers[0] != nil {
		list, _ := viewList[uint32](c.buffers[0], len(c.buffers[0])/4)
		copy(list, types)
	}
	putUint32(c.params, uint32(len(types)))
	return ok
}

type partners struct {
	Engine, Class, Runqueue, Count uint32
	List                           [32]uint32
}

// partners lists engines that share a runlist with another.
func (c *controlCall) partners(p *partners) status {
	p.Count = 0
	if p.Engine == engineGraphics {
		p.Count, p.List[0] = 1, engineCopyFirst
	}
	return ok
}

type gid struct {
	Index, Flags, Length uint32
	Data                 [256]byte
}

func (c *controlCall) gid(p *gid) status {
	p.Length = c.card.putUUID(p.Data[:], p.Flags)
	return ok
}

type chipDetails struct {
	PCI   uint32
	SKU   [4]byte
	Major uint32
	Minor uint32
}

func (c *controlCall) chipDetails(p *chipDetails) status {
	m := c.card.model
	*p = chipDetails{PCI: uint32(m.Device)<<16 | pciVendor, Major: uint32(m.Revision >> 4), Minor: uint32(m.Revision & 0xf)}
	return ok
}

type archInfo struct {
	Architecture, Implementation, Revision uint32
	SubRevision                            uint8
}

func (c *controlCall) archInfo(p *archInfo) status {
	m := c.card.model
	*p = archInfo{m.Architecture, m.Implementation, uint32(m.Revision), 0}
	return ok
}

func (c *controlCall) time(ns *uint64) status {
	*ns = c.card.engine.Now()
	return ok
}

type timeCorrelation struct {
	Clock   uint8
	Count   uint8
	Samples [16]struct{ CPU, GPU uint64 } // CPU in µs, GPU in ns
}

func (c *controlCall) timeCorrelation(p *timeCorrelation) status {
	if int(p.Count) > len(p.Samples) {
		return errInvalidArgument
	}
	for i := range p.Samples[:p.Count] {
		p.Samples[i].CPU = uint64(time.Now().UnixMicro())
		p.Samples[i].GPU = c.card.engine.Now()
	}
	return ok
}

// Capabilities of a copy engine (NV2080_CTRL_CE_CAPS_*).
const (
	copyCapsGraphics = 0x03 // works for the graphics engine
	copyCapsAll      = 0xec // sysmem, non-pipelined, physical, …
	copyCaps2        = 0x03
)

func (m *Model) copyEngineCaps(i int) [2]byte {
	if i < 2 {
		return [2]byte{copyCapsAll | copyCapsGraphics, copyCaps2}
	}
	return [2]byte{copyCapsAll, copyCaps2}
}

type copyCaps struct {
	Engine, Size uint32
	Table        uint64
}

func (c *controlCall) copyCaps(p *copyCaps) status {
	caps, s := c.copyEngine(p.Engine)
	if s == ok && len(c.buffers) > 0 {
		copy(c.buffers[0], caps[:])
	}
	return s
}

type copyCapsV2 struct {
	Engine uint32
	Table  [2]byte
}

func (c *controlCall) copyCapsV2(p *copyCapsV2) status {
	var s status
	p.Table, s = c.copyEngine(p.Engine)
	return s
}

func (c *controlCall) copyEngine(engineType uint32) ([2]byte, status) {
	if engineType < engineCopyFirst || engineType-engineCopyFirst >= uint32(c.card.model.CopyEngines) {
		return [2]byte{}, errInvalidArgument
	}
	return c.card.model.copyEngineCaps(int(engineType - engineCopyFirst)), ok
}

// allCopyCaps answers a table of two bytes per copy engine and a mask of those
// present; both grew between 535 and 550.
func (c *controlCall) allCopyCaps() status {
	m := c.card.model
	clear(c.params)
	tableSize := 64
	if len(c.params) >= 136 {
		tableSize = 128
	}
	if len(c.params) < tableSize+4 {
		return errInvalidParamStruct
	}
	for i := range m.CopyEngines {
		caps := m.copyEngineCaps(i)
		copy(c.params[2*i:], caps[:])
	}
	putUint32(c.params[tableSize:], 1<<m.CopyEngines-1)
	return ok
}

type gspFeatures struct {
	Features            uint32
	Valid, DefaultGSPRM uint8
	Firmware            [64]byte
}

func (c *controlCall) gspFeatures(p *gspFeatures) status {
	*p = gspFeatures{Features: 1, Valid: 1, DefaultGSPRM: 1}
	putString(p.Firmware[:], c.d.abi.Version.String())
	return ok
}
