package nvabi

// maxEmbedded is the largest buffer behind a pointer in a control's parameters,
// in bytes (RMAPI_PARAM_COPY_MAX_PARAMS_SIZE, src/nvidia/inc/kernel/rmapi/param_copy.h).
const maxEmbedded = 1 << 20

// pointerRow is a pointer in the parameters of a control, from a branch on.
type pointerRow struct {
	cmd  uint32
	from int
	Pointer
}

// list describes a buffer whose number of elements the parameters hold.
func list(pointer, count int, elem uint32, in, out bool) Pointer {
	return Pointer{Offset: pointer, Count: count, Elem: elem, Max: maxEmbedded / elem, In: in, Out: out}
}

// unused describes a pointer that the driver does not follow for a process.
func unused(pointer int) Pointer {
	return Pointer{Offset: pointer, Count: None}
}

// pointers lists every pointer in the parameters of the controls in the tables.
// Directions and counts are those of embeddedParamCopyIn
// (src/nvidia/src/kernel/rmapi/embedded_param_copy.c) and, for the forms kept for
// old clients, of src/nvidia/interface/deprecated/rmapi_deprecated_control.c.
var pointers = []pointerRow{
	// NV0000_CTRL_CMD_SYSTEM_GET_BUILD_VERSION: three strings. All null asks for
	// the length to allow.
	{0x00000101, 535, Pointer{Offset: 8, Count: 0, Elem: 1, Max: 4096, Out: true}},
	{0x00000101, 535, Pointer{Offset: 16, Count: 0, Elem: 1, Max: 4096, Out: true}},
	{0x00000101, 535, Pointer{Offset: 24, Count: 0, Elem: 1, Max: 4096, Out: true}},
	// NV0000_CTRL_CMD_SYSTEM_GET_P2P_CAPS: a square matrix of peer ids of at most
	// 32 cards, and since 550 one for extended GPU memory.
	{0x00000127, 535, Pointer{Offset: 160, Count: 128, Elem: 4, Max: 32, Square: true, Out: true}},
	{0x00000127, 550, Pointer{Offset: 168, Count: 128, Elem: 4, Max: 32, Square: true, Out: true}},
	{0x00000202, 535, unused(16)},                   // GPU_GET_ID_INFO.szName
	{0x00410110, 535, list(8, 0, 8, true, true)},    // NV0041 GET_SURFACE_INFO
	{0x00800201, 535, list(8, 0, 4, true, true)},    // NV0080 GPU_GET_CLASSLIST
	{0x00801102, 535, list(8, 0, 1, false, true)},   // NV0080 GR_GET_CAPS
	{0x00801104, 535, list(8, 0, 8, true, true)},    // NV0080 GR_GET_INFO
	{0x00801301, 535, list(8, 0, 1, false, true)},   // NV0080 FB_GET_CAPS
	{0x00801701, 535, list(8, 0, 1, false, true)},   // NV0080 FIFO_GET_CAPS
	{0x0080170d, 535, list(8, 0, 4, true, false)},   // NV0080 FIFO_GET_CHANNELLIST: channel handles
	{0x0080170d, 535, list(16, 0, 4, true, true)},   // and their hardware ids
	{0x00801b01, 535, list(8, 0, 1, false, true)},   // NV0080 MSENC_GET_CAPS
	{0x00801c01, 535, list(8, 0, 1, false, true)},   // NV0080 BSP_GET_CAPS
	{0x20800101, 535, list(8, 0, 8, true, true)},    // NV2080 GPU_GET_INFO
	{0x20800122, 535, list(24, 20, 32, true, true)}, // NV2080 GPU_EXEC_REG_OPS
	{0x20800123, 535, list(8, 0, 4, true, true)},    // NV2080 GPU_GET_ENGINES
	{0x20800802, 535, list(8, 0, 8, true, true)},    // NV2080 BIOS_GET_INFO
	{0x2080110b, 535, unused(16)},                   // NV2080 FIFO_DISABLE_CHANNELS.pRunlistPreemptEvent
	{0x20801201, 535, list(8, 0, 8, true, true)},    // NV2080 GR_GET_INFO
	{0x20801301, 535, list(8, 0, 8, true, true)},    // NV2080 FB_GET_INFO
	{0x20801802, 535, list(8, 0, 8, true, true)},    // NV2080 BUS_GET_INFO
	{0x20802a01, 535, list(8, 4, 1, false, true)},   // NV2080 CE_GET_CAPS
	{0x83de0315, 535, list(16, 4, 1, false, true)},  // NV83DE DEBUG_READ_MEMORY
	{0x83de0316, 535, list(16, 4, 1, true, false)},  // NV83DE DEBUG_WRITE_MEMORY
}

func resolvePointers(cmd uint32, major int) []Pointer {
	var found []Pointer
	for _, row := range pointers {
		if row.cmd == cmd && row.from <= major {
			found = append(found, row.Pointer)
		}
	}
	return found
}
