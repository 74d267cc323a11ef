package simgpu

// graphicsControls are the controls about the graphics and compute engine
// (ctrl2080gr.h). Many carry a route that only MIG uses; it is not read.
func graphicsControls() map[uint32]control {
	return map[uint32]control{
		0x20801201: listV1((*controlCall).grInfo),
		0x20801228: listV2((*controlCall).grInfo),
		0x2080120f: (*controlCall).smMappings,
		0x20801210: accept, // GR_SET_CTXSW_PREEMPTION_MODE
		0x20801218: answer((*controlCall).contextSize),
		0x2080121b: answer((*controlCall).smOrder),
		0x20801227: zeros, // GR_GET_CAPS_V2
		0x2080122a: answer((*controlCall).gpcMask),
		0x2080122b: answer((*controlCall).tpcMask),
		0x83de0309: accept, // DEBUG_SET_EXCEPTION_MASK
	}
}

// grInfo is GR_GET_INFO by index (NV0080_CTRL_GR_INFO_INDEX_*).
func (c *controlCall) grInfo(index uint32) uint32 {
	m := c.card.model
	facts := map[uint32]int{
		0x06: m.TPCs() * 2,          // VPE_COUNT
		0x07: m.GPCs,                // SHADER_PIPE_COUNT
		0x08: 1024,                  // THREAD_STACK_SCALING_FACTOR
		0x09: m.TPCs(),              // SHADER_PIPE_SUB_COUNT
		0x0a: 2,                     // SM_REG_BANK_COUNT
		0x0b: 64,                    // SM_REG_BANK_REG_COUNT
		0x0c: int(m.SMVersion),      // SM_VERSION
		0x0d: m.WarpsPerSM,          // MAX_WARPS_PER_SM
		0x0e: 32,                    // MAX_THREADS_PER_WARP
		0x13: m.CoresPerSM,          // MAX_SP_PER_SM
		0x14: m.GPCs,                // LITTER_NUM_GPCS
		0x15: int(m.Partitions),     // LITTER_NUM_FBPS
		0x17: m.TPCsPerGPC,          // LITTER_NUM_TPC_PER_GPC
		0x1a: 1,                     // TIMESLICE_ENABLED
		0x1b: 2 * int(m.Partitions), // LITTER_NUM_FBPAS
		0x1c: 3,                     // LITTER_NUM_PES_PER_GPC
		0x1d: m.SMs * m.CoresPerSM,  // GPU_CORE_COUNT
		0x1e: 2,                     // LITTER_NUM_TPCS_PER_PES
		0x20: 2,                     // LITTER_NUM_SM_PER_TPC
		0x22: m.RTCores,             // RT_CORE_COUNT
		0x23: m.SMs * m.TensorPerSM, // TENSOR_CORE_COUNT
		0x24: 1,                     // LITTER_NUM_GRS
		0x25: 2 * int(m.Partitions), // LITTER_NUM_LTCS
		0x26: 4,                     // LITTER_NUM_LTC_SLICES
		0x27: 1,                     // LITTER_NUM_GPCMMU_PER_GPC
		0x28: 2,                     // LITTER_NUM_LTC_PER_FBP
		0x2a: m.TPCsPerGPC,          // FAMILY_MAX_TPC_PER_GPC
		0x2b: 2,                     // LITTER_NUM_FBPA_PER_FBP
		0x2c: 64,                    // MAX_SUBCONTEXT_COUNT
		0x2d: 64,                    // MAX_LEGACY_SUBCONTEXT_COUNT
		0x2e: 64,                    // MAX_PER_ENGINE_SUBCONTEXT_COUNT
		0x32: 4,                     // LITTER_NUM_SLICES_PER_LTC
	}
	return uint32(facts[index])
}

// smPlace says where an SM lies. SMs are dealt out to the GPCs in turn, a TPC of
// two at a time, as the driver numbers them.
func (m *Model) smPlace(sm int) (gpc, localTPC, localSM, tpc int) {
	tpc = sm / 2
	return tpc % m.GPCs, tpc / m.GPCs, sm % 2, tpc
}

type smOrder struct {
	SMs [512]struct {
		GPC, LocalTPC, LocalSM, TPC, VirtualGPC, MigratableTPC uint16
	}
	NumSM, NumTPC uint16
}

func (c *controlCall) smOrder(p *smOrder) status {
	m := c.card.model
	*p = smOrder{NumSM: uint16(m.SMs), NumTPC: uint16(m.TPCs())}
	for i := range m.SMs {
		gpc, localTPC, localSM, tpc := m.smPlace(i)
		s := &p.SMs[i]
		s.GPC, s.LocalTPC, s.LocalSM = uint16(gpc), uint16(localTPC), uint16(localSM)
		s.TPC, s.VirtualGPC, s.MigratableTPC = uint16(tpc), uint16(gpc), uint16(tpc)
	}
	return ok
}

// smMappings lists GPC and TPC of each SM, at most 144 of them.
func (c *controlCall) smMappings() status {
	const most = 144
	m := c.card.model
	list, fits := viewList[struct{ GPC, TPC uint32 }](c.params, most)
	if !fits || len(c.params) < most*8+4 {
		return errInvalidParamStruct
	}
	clear(c.params[:most*8])
	for i := range min(m.SMs, most) {
		gpc, localTPC, _, _ := m.smPlace(i)
		list[i].GPC, list[i].TPC = uint32(gpc), uint32(localTPC)
	}
	putUint32(c.params[most*8:], uint32(m.SMs))
	return ok
}

type gpcMask struct {
	Route [2]uint64
	Mask  uint32
}

func (c *controlCall) gpcMask(p *gpcMask) status {
	p.Mask = 1<<c.card.model.GPCs - 1
	return ok
}

type tpcMask struct {
	Route     [2]uint64
	GPC, Mask uint32
}

func (c *controlCall) tpcMask(p *tpcMask) status {
	m := c.card.model
	if p.GPC >= uint32(m.GPCs) {
		return errInvalidArgument
	}
	p.Mask = 0
	for sm := range m.SMs {
		if gpc, tpc, _, _ := m.smPlace(sm); gpc == int(p.GPC) {
			p.Mask |= 1 << tpc
		}
	}
	return ok
}

type contextSize struct {
	Channel, _ uint32
	Size       uint64
}

func (c *controlCall) contextSize(p *contextSize) status {
	p.Size = c.card.model.GroupCost
	return ok
}
