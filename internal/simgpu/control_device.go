package simgpu

// deviceControls are the controls of NV01_DEVICE_0 (ctrl0080*.h), but for those
// about channels.
func deviceControls() map[uint32]control {
	return map[uint32]control{
		0x00730102: answer((*controlCall).numHeads),
		0x00730120: zeros, // SYSTEM_GET_SUPPORTED: no displays
		0x00730122: zeros, // SYSTEM_GET_CONNECT_STATE: none connected
		0x00800201: (*controlCall).classList,
		0x00800280: constant(1), // GPU_GET_NUM_SUBDEVICES
		0x00800287: accept,      // GPU_MODIFY_SW_STATE_PERSISTENCE
		0x00800288: constant(0), // GPU_QUERY_SW_STATE_PERSISTENCE: enabled
		0x00800289: zeros,       // GPU_GET_VIRTUALIZATION_MODE: none
		0x0080028e: zeros,       // GPU_GET_VGX_CAPS
		0x00800292: (*controlCall).classListV2,
		0x00800294: constant(0), // GPU_GET_BRAND_CAPS
		0x00801104: listV1((*controlCall).grInfo),
		0x00801109: zeros,                  // GR_GET_CAPS_V2
		0x00801307: caps(0x0b, 0x81, 0x00), // FB_GET_CAPS_V2: sysmem, block-linear, ISO; L2 cache
		0x00801402: zeros,                  // HOST_GET_CAPS_V2
		0x00801713: caps(0x47, 0x21),       // FIFO_GET_CAPS_V2: scheduling, groups, per-runlist channels
		0x00801909: accept,                 // PERF_CUDA_LIMIT_SET_CONTROL
		0x00809909: accept,                 // the same before 550
	}
}

// constant is for controls whose parameters are one number.
func constant(n uint32) control {
	return func(c *controlCall) status {
		clear(c.params)
		if len(c.params) >= 4 {
			putUint32(c.params, n)
		}
		return ok
	}
}

// caps is for controls that answer with a table of capability bits.
func caps(bits ...byte) control {
	return func(c *controlCall) status {
		clear(c.params)
		copy(c.params, bits)
		return ok
	}
}

type numHeads struct{ Subdevice, Flags, Heads uint32 }

func (c *controlCall) numHeads(p *numHeads) status {
	p.Heads = 0
	return ok
}

// classListV2 answers a count and a list whose length the version decides.
func (c *controlCall) classListV2() status {
	classes := c.card.model.Classes
	room := len(c.params)/4 - 1
	if room < len(classes) {
		return errInvalidParamStruct
	}
	clear(c.params)
	list, _ := viewList[uint32](c.params, 1+len(classes))
	list[0] = uint32(len(classes))
	copy(list[1:], classes)
	return ok
}

// classList answers through a pointer; a null pointer asks for the count.
func (c *controlCall) classList() status {
	classes := c.card.model.Classes
	if len(c.buffers) > 0 && c.buffers[0] != nil {
		list, _ := viewList[uint32](c.buffers[0], len(c.buffers[0])/4)
		copy(list, classes)
	}
	putUint32(c.params, uint32(len(classes)))
	return ok
}
