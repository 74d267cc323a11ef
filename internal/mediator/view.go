package mediator

import (
	"slices"

	"gvisor.dev/gvisor/pkg/abi/nvgpu"
)

// controlExtents are the least sizes of controls whose parameters are looked at here.
var controlExtents = map[uint32]uint32{
	nvgpu.NV2080_CTRL_CMD_FB_GET_INFO_V2:                          4 + 8,
	nvgpu.NV2080_CTRL_CMD_FB_GET_INFO:                             16,
	nvgpu.NV2080_CTRL_CMD_FB_GET_FB_REGION_INFO:                   regionFirst + regionSize,
	nvgpu.NV2080_CTRL_CMD_GPU_GET_PIDS:                            pidsFirst + 4,
	nvgpu.NV2080_CTRL_CMD_GPU_GET_PID_INFO:                        pidInfoFirst + pidInfoSize,
	nvgpu.NV2080_CTRL_CMD_PERF_GET_GPUMON_PERFMON_UTIL_SAMPLES_V2: samplesFirst + sampleCount*8,
	nvgpu.NV0000_CTRL_CMD_GPU_GET_PROBED_IDS:                      2 * 4 * maxIDs,
	nvgpu.NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS:                    4 * maxIDs,
	nvgpu.NV0000_CTRL_CMD_GPU_GET_ACTIVE_DEVICE_IDS:               4 + 12,
	nvgpu.NV0000_CTRL_CMD_GPU_GET_DEVICE_IDS:                      4,
	nvgpu.NV0000_CTRL_CMD_GPU_ATTACH_IDS:                          4*maxIDs + 4,
	nvgpu.NV0000_CTRL_CMD_GPU_ASYNC_ATTACH_ID:                     4,
	nvgpu.NV0000_CTRL_CMD_GPU_WAIT_ATTACH_ID:                      4,
	nvgpu.NV0000_CTRL_CMD_GPU_GET_ID_INFO:                         4,
	nvgpu.NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2:                      4,
	nvgpu.NV0000_CTRL_CMD_GPU_GET_PCI_INFO:                        4,
	nvgpu.NV0000_CTRL_CMD_GPU_GET_UUID_FROM_GPU_ID:                4,
	nvgpu.NV0000_CTRL_CMD_GPU_QUERY_DRAIN_STATE:                   4,
	ctrlUUIDInfo: uuidInfoID + 4,
	nvgpu.NV0000_CTRL_CMD_SYSTEM_GET_P2P_CAPS:          4*maxIDs + 4,
	nvgpu.NV0000_CTRL_CMD_SYSTEM_GET_P2P_CAPS_V2:       4*maxIDs + 4,
	nvgpu.NV0000_CTRL_CMD_SYSTEM_GET_P2P_CAPS_MATRIX:   8 + 2*4*maxPeers,
	nvgpu.NV0000_CTRL_CMD_SYNC_GPU_BOOST_GROUP_INFO:    4,
	nvgpu.NV2080_CTRL_CMD_GR_SET_CTXSW_PREEMPTION_MODE: 16,
}

// callCard is the card of the object on which a control is called.
func (c *call) callCard() (int, bool) {
	return c.m.ledger.cardOf(c.arg.u32(0), c.arg.u32(controlObj))
}

// Indices of NV2080_CTRL_FB_INFO, from ctrl2080fb.h. The values are in KiB.
const (
	fbRAMSize     = 0x07
	fbTotalRAM    = 0x08
	fbHeapSize    = 0x09
	fbMappable    = 0x0A
	fbLargestFree = 0x12
	fbHeapFree    = 0x16
	fbUsable      = 0x20
	fbProtected   = 0x33
	fbProtectFree = 0x34
)

// showMemoryInfo rewrites NV2080_CTRL_FB_GET_INFO_V2_PARAMS: a count, then the list.
func showMemoryInfo(c *call, p *params) { c.showMemory(p.message[4:], p.u32(0)) }

// showMemoryInfoList rewrites the list behind the pointer of NV2080_CTRL_FB_GET_INFO.
func showMemoryInfoList(c *call, p *params) {
	if list := p.buffers[0]; list != nil {
		c.showMemory(list, uint32(len(list)/8))
	}
}

// showMemory makes a list of index and value show the tenant's quota as the card's
// memory, all of it heap, and what is left of it as free.
func (c *call) showMemory(list message, n uint32) {
	card, ok := c.callCard()
	if !ok {
		return
	}
	c.m.reconcileManaged(c.n.Thread())
	quota, used := c.m.ledger.balance(card)
	free := quota - min(used, quota)
	for i := range min(int(n), len(list)/8) {
		value := list[8*i+4 : 8*i+8]
		switch list.u32(8 * i) {
		case fbRAMSize, fbTotalRAM, fbHeapSize, fbMappable, fbUsable, fbProtected:
			value.setU32(0, min(value.u32(0), uint32(quota>>10)))
		case fbHeapFree:
			value.setU32(0, uint32(free>>10))
		case fbLargestFree, fbProtectFree:
			value.setU32(0, min(value.u32(0), uint32(free>>10)))
		}
	}
}

// NV2080_CTRL_CMD_FB_GET_FB_REGION_INFO_PARAMS.
const (
	regionFirst = 8
	regionSize  = 48
)

// showRegions makes the card's memory one region as large as the quota.
func showRegions(c *call, p *params) {
	card, ok := c.callCard()
	if !ok || p.u32(0) == 0 {
		return
	}
	quota, _ := c.m.ledger.balance(card)
	p.setU32(0, 1)
	r := p.message[regionFirst : regionFirst+regionSize]
	r.setU64(0, 0)       // base
	r.setU64(8, quota-1) // limit
	r.setU64(16, 0)      // reserved
	clear(p.message[regionFirst+regionSize:])
}

// maxIDs is the length of the driver's lists of cards (NV_MAX_DEVICES,
// NV0000_CTRL_GPU_MAX_ATTACHED_GPUS); maxPeers that of a group in a matrix of peers.
const (
	maxIDs     = 32
	maxPeers   = 8
	uuidInfoID = 264 // of the card's id in NV0000_CTRL_GPU_GET_UUID_INFO_PARAMS
	// attachAll asks for all cards (NV0000_CTRL_GPU_ATTACH_ALL_PROBED_IDS).
	attachAll = 0x0000ffff
)

// keepIDs leaves the tenant's cards in a list of ids, first ones first.
func (c *call) keepIDs(list message) {
	kept := 0
	for i := range maxIDs {
		id := list.u32(4 * i)
		if _, ok := c.m.cardByID(id); ok {
			list.setU32(4*kept, id)
			kept++
		}
	}
	for i := kept; i < maxIDs; i++ {
		list.setU32(4*i, nvgpu.NV0000_CTRL_GPU_INVALID_ID)
	}
}

func showProbedIDs(c *call, p *params) {
	c.keepIDs(p.message[:4*maxIDs])
	c.keepIDs(p.message[4*maxIDs : 2*4*maxIDs]) // excluded from use
}

func showAttachedIDs(c *call, p *params) { c.keepIDs(p.message[:4*maxIDs]) }

// showActiveIDs filters NV0000_CTRL_GPU_GET_ACTIVE_DEVICE_IDS_PARAMS: a count, then
// card, GPU instance and compute instance.
func showActiveIDs(c *call, p *params) {
	const size = 12
	n := min(int(p.u32(0)), (len(p.message)-4)/size)
	kept := 0
	for i := range n {
		e := p.message[4+size*i : 4+size*(i+1)]
		if _, ok := c.m.cardByID(e.u32(0)); ok {
			copy(p.message[4+size*kept:], e)
			kept++
		}
	}
	clear(p.message[4+size*kept : 4+size*n])
	p.setU32(0, uint32(kept))
}

// showDeviceIDs answers with a mask of device instances.
func showDeviceIDs(c *call, p *params) {
	var own uint32
	for i := range c.m.cards {
		own |= 1 << (c.m.cards[i].Instance & 31)
	}
	p.setU32(0, p.u32(0)&own)
}

// showUUIDInfo hides which card has a UUID, unless it is the tenant's.
func showUUIDInfo(c *call, p *params) {
	if _, ok := c.m.cardByID(p.u32(uuidInfoID)); !ok {
		clear(p.message[uuidInfoID:])
		c.arg.setU32(c.status, statusNotFound)
	}
}

func showNone(_ *call, p *params) { clear(p.message) }

// checkAttachIDs checks a list of cards, in which "all" becomes all of the tenant's.
func checkAttachIDs(c *call, p *params) uint32 {
	if p.u32(0) == attachAll {
		for i := range maxIDs {
			id := uint32(nvgpu.NV0000_CTRL_GPU_INVALID_ID)
			if i < len(c.m.cards) {
				id = c.m.cards[i].GPUID
			}
			p.setU32(4*i, id)
		}
		return statusOK
	}
	for i := range maxIDs {
		id := p.u32(4 * i)
		if id == nvgpu.NV0000_CTRL_GPU_INVALID_ID {
			break
		}
		if _, ok := c.m.cardByID(id); !ok {
			return statusInvalidArgument
		}
	}
	return statusOK
}

// checkFirstID checks the card that the parameters begin with.
func checkFirstID(c *call, p *params) uint32 {
	if _, ok := c.m.cardByID(p.u32(0)); !ok {
		return statusInvalidArgument
	}
	return statusOK
}

func (c *call) checkIDs(list message, n uint32) uint32 {
	if int(n) > len(list)/4 {
		return statusInvalidArgument
	}
	for i := range int(n) {
		if _, ok := c.m.cardByID(list.u32(4 * i)); !ok {
			return statusInvalidArgument
		}
	}
	return statusOK
}

// checkPeerIDs checks a list of cards followed by its length.
func checkPeerIDs(c *call, p *params) uint32 {
	return c.checkIDs(p.message[:4*maxIDs], p.u32(4*maxIDs))
}

// checkPeerMatrix checks two groups of cards, whose lengths come first.
func checkPeerMatrix(c *call, p *params) uint32 {
	a, b := p.message[8:8+4*maxPeers], p.message[8+4*maxPeers:8+8*maxPeers]
	if s := c.checkIDs(a, p.u32(0)); s != statusOK {
		return s
	}
	return c.checkIDs(b, p.u32(4))
}

// checkPreemptionMode lets a context have compute preemption at instructions (CILP)
// and thread blocks (CTA), but not only when it is idle (WFI).
func checkPreemptionMode(_ *call, p *params) uint32 {
	const (
		setsCompute = 1
		compute     = 12
		whenIdle    = 0
	)
	if p.u32(0)&setsCompute != 0 && p.u32(compute) == whenIdle {
		return statusNotSupported
	}
	return statusOK
}

// NV2080_CTRL_GPU_GET_PIDS_PARAMS and NV2080_CTRL_GPU_GET_PID_INFO_PARAMS.
const (
	pidsCount    = 8
	pidsFirst    = 12
	pidInfoFirst = 8
	pidInfoSize  = 72
	pidInfoIndex = 4
	pidInfoState = 8
	pidInfoData  = 16
	// of the compute instance, then the GPU instance: none, since a tenant has whole cards
	// or shares of them, but no MIG instance.
	pidInfoInstance = 64
	noInstance      = 0xffffffff // PARTITIONID_INVALID
)

// showProcesses replaces the driver's list of processes. If the driver lists the
// mediator, the tenant has what was asked for, and its own processes are listed.
func showProcesses(c *call, p *params) {
	n := min(int(p.u32(pidsCount)), (len(p.message)-pidsFirst)/4)
	listed := false
	for i := range n {
		listed = listed || p.u32(pidsFirst+4*i) == uint32(c.m.self)
	}
	clear(p.message[pidsCount:])
	card, ok := c.callCard()
	viewer, err := c.n.Process()
	if !listed || !ok || err != nil {
		return
	}
	pids := c.m.ledger.processes(card)
	slices.Sort(pids)
	kept := 0
	for _, pid := range pids {
		if seen, ok := c.m.seenBy(viewer, pid); ok && pidsFirst+4*kept+4 <= len(p.message) {
			p.setU32(pidsFirst+4*kept, seen)
			kept++
		}
	}
	p.setU32(pidsCount, uint32(kept))
}

// tellProcessMemory answers how much memory processes hold. To the driver all of the
// tenant's are one process, so the ledger answers.
func tellProcessMemory(c *call, p *params) uint32 {
	n := int(p.u32(0))
	if n > (len(p.message)-pidInfoFirst)/pidInfoSize {
		return statusInvalidArgument
	}
	card, ok := c.callCard()
	if !ok {
		return statusNotFound
	}
	viewer, err := c.n.Process()
	if err != nil {
		return statusNotFound
	}
	own := make(map[uint32]int)
	for _, pid := range c.m.tenants.list() {
		if seen, ok := c.m.seenBy(viewer, pid); ok {
			own[seen] = pid
		}
	}
	for i := range n {
		e := p.message[pidInfoFirst+pidInfoSize*i : pidInfoFirst+pidInfoSize*(i+1)]
		clear(e[pidInfoState:])
		e.setU32(pidInfoInstance, noInstance)
		e.setU32(pidInfoInstance+4, noInstance)
		if e.u32(pidInfoIndex) != 0 { // NV2080_CTRL_GPU_PID_INFO_INDEX_VIDEO_MEMORY_USAGE
			e.setU32(pidInfoState, statusNotSupported)
			continue
		}
		if pid, ok := own[e.u32(0)]; ok {
			e.setU64(pidInfoData, c.m.ledger.processMemory(pid, card))
		}
	}
	return statusOK
}

// Samples of NV2080_CTRL_PERF_GET_GPUMON_PERFMON_UTIL_SAMPLES_V2_PARAMS: a time, then
// for each engine utilisation, a scale, process, a subprocess and its name.
const (
	samplesFirst  = 16
	sampleCount   = 72
	sampleEngines = 8
	engineProcess = 8
	engineSize    = 116 // 120 since 570, with a pointer
	noProcess     = 0xffffffff
)

// showSamples attributes the mediator's load to the tenant and hides everyone else's.
func showSamples(c *call, p *params) {
	stride := (len(p.message) - samplesFirst) / sampleCount
	engine := engineSize
	if (stride-sampleEngines)%engineSize != 0 {
		// The structure grew by a pointer and is padded.
		engine = (engineSize + 8 + 7) &^ 7
		if (stride-sampleEngines)%engine != 0 {
			clear(p.message[samplesFirst:])
			return
		}
	}
	name := c.loadedProcess()
	for off := samplesFirst; off+stride <= len(p.message); off += stride {
		for e := off + sampleEngines; e+engine <= off+stride; e += engine {
			if p.u32(e+engineProcess) == uint32(c.m.self) {
				p.setU32(e+engineProcess, name)
				continue
			}
			clear(p.message[e : e+engine])
			p.setU32(e+engineProcess, noProcess)
		}
	}
}

// loadedProcess is a process of the tenant that may cause its load, as the caller sees
// it. The driver does not tell which one does.
func (c *call) loadedProcess() uint32 {
	card, ok := c.callCard()
	viewer, err := c.n.Process()
	if !ok || err != nil {
		return noProcess
	}
	pids := c.m.ledger.processes(card)
	slices.Sort(pids)
	for _, pid := range pids {
		if seen, ok := c.m.seenBy(viewer, pid); ok {
			return seen
		}
	}
	return noProcess
}
