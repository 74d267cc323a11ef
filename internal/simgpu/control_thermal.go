package simgpu

// A thermal instruction (NV2080_CTRL_THERMAL_SYSTEM_INSTRUCTION): a program of them
// asks for what targets and sensors there are and what they read. Published since
// driver 580 (ctrl2080thermal.h); 535 and 550 have the same layout.
type thermalInstruction struct {
	Result, Executed, Opcode uint32
	Operands                 [8]uint32
}

type thermalProgram struct {
	Version, Revision, InstructionSize uint32
	Flags, Successful, Count           uint32
	Instructions                       [32]thermalInstruction
}

// thermal executes a program. A card has one sensor, in the chip.
func (c *controlCall) thermal() status {
	p, enough := view[thermalProgram](c.params)
	if !enough || p.Count > uint32(len(p.Instructions)) {
		return errInvalidParamStruct
	}
	p.Successful = 0
	for i := range p.Instructions[:p.Count] {
		in := &p.Instructions[i]
		in.Executed = 1
		in.Result = uint32(c.thermalStep(in))
		if status(in.Result) == ok {
			p.Successful++
		}
	}
	return ok
}

func (c *controlCall) thermalStep(in *thermalInstruction) status {
	const (
		available      = 1 // as a mask: the first, and only, of its kind
		targetGPU      = 1
		providerInside = 1
	)
	op := &in.Operands
	switch in.Opcode {
	case 0x0100, 0x0500: // GET_INFO_TARGETS_AVAILABLE, GET_INFO_SENSORS_AVAILABLE
		op[0] = available
		return ok
	}
	if op[0] != 0 {
		return errInvalidArgument // there is no second target, provider or sensor
	}
	switch in.Opcode {
	case 0x0101: // GET_INFO_TARGET_TYPE
		op[1] = targetGPU
	case 0x0301: // GET_INFO_PROVIDER_TYPE
		op[1] = providerInside
	case 0x0510, 0x0520: // GET_INFO_SENSOR_PROVIDER, GET_INFO_SENSOR_TARGET
		op[1] = 0
	case 0x0540: // GET_INFO_SENSOR_READING_RANGE, in °C
		op[1], op[2] = 0, 127
	case 0x1500: // GET_STATUS_SENSOR_READING, in °C
		op[1] = c.card.temperature()
	default:
		c.d.reportUnknown("thermal opcode", in.Opcode)
		return errNotSupported
	}
	return ok
}

// temperature rises from that of the idle card with its use.
func (c *card) temperature() uint32 {
	m := c.model
	return m.IdleTemp + (m.BusyTemp-m.IdleTemp)*c.busy()/100
}
