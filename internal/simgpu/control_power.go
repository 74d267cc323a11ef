package simgpu

// powerControls report power and its limits, in mW. Their layouts are closed; these
// fields are what NVML of drivers 535 and 550 reads.
func powerControls() map[uint32]control {
	return map[uint32]control{
		0x2080a612: caps(1), // what can be measured: the card as a whole
		0x2080a613: (*controlCall).powerStatus,
		0x2080a618: (*controlCall).powerLimits,
		0x2080a61a: (*controlCall).powerRequest,
		0x2080a61d: (*controlCall).limitOfCard,
		0x2080a61f: answer((*controlCall).enforcedLimit),
	}
}

// power is what the card draws: between its idle power and its limit, by use.
func (c *card) power() uint32 {
	m := c.model
	return m.IdlePower + (m.PowerLimit-m.IdlePower)/100*c.busy()
}

// powerStatus says what the card draws.
func (c *controlCall) powerStatus() status {
	return c.putWord(9, c.card.power())
}

// powerRequest says which limit is set.
func (c *controlCall) powerRequest() status {
	return c.putWord(6, c.card.model.PowerLimit)
}

// powerLimits lists one policy, the limit of the whole card, with its range. The
// header before the policies grew with 550.
func (c *controlCall) powerLimits() status {
	const (
		header535 = 80   // bytes
		size535   = 6944 // of the parameters
		supported = 1
	)
	if len(c.params) < size535 {
		return errInvalidParamStruct
	}
	clear(c.params)
	c.params[0] = supported
	putUint32(c.params[4:], 1) // mask of the policies there are
	m := c.card.model
	policy := c.params[header535+len(c.params)-size535:]
	if len(policy) < 16 {
		return errInvalidParamStruct
	}
	for i, mw := range []uint32{m.MinPowerLimit, m.PowerLimit, m.PowerLimit} { // least, default, most
		putUint32(policy[4+4*i:], mw)
	}
	return ok
}

// limitOfCard says which limit is set, when nvidia-smi asks for it alone.
func (c *controlCall) limitOfCard() status {
	return c.putWord(1, c.card.model.PowerLimit)
}

type enforcedLimit struct{ Policy, Limit uint32 }

func (c *controlCall) enforcedLimit(p *enforcedLimit) status {
	const wholeCard = 1
	if p.Policy != wholeCard {
		return errNotSupported
	}
	p.Limit = c.card.model.PowerLimit
	return ok
}

// putWord stores a number at a word of the parameters.
func (c *controlCall) putWord(word int, v uint32) status {
	if len(c.params) < 4*(word+1) {
		return errInvalidParamStruct
	}
	putUint32(c.params[4*word:], v)
	return ok
}
