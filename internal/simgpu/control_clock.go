package simgpu

import "time"

// clockControls are the controls about clocks, power, temperature and
// utilisation. NVIDIA publishes neither names nor layouts of most; the layouts here
// are what nvidia-smi and NVML of drivers 535 and 550 read.
func clockControls() map[uint32]control {
	return map[uint32]control{
		0x20802068: constant(1), // PERF_GET_CURRENT_PSTATE: P0
		0x20809001: answer((*controlCall).programmableDomains),
		0x20809004: answer((*controlCall).clockNow),
		0x20808545: answer((*controlCall).clockRatio),
		0x20809009: answer((*controlCall).clockDomains),
		0x20809064: (*controlCall).clockFrequencies,
		0x20808513: (*controlCall).thermal,
		0x2080a026: (*controlCall).clockShares,
		0x2080a068: constant(1), // performance states: P0 alone
		0x2080a097: answer((*controlCall).utilization),
	}
}

const allClockDomains = ^uint32(0)

// Clock domains.
const clockMemory = 4

type programmableDomains struct{ Mask, _ uint32 }

func (c *controlCall) programmableDomains(p *programmableDomains) status {
	p.Mask = allClockDomains
	return ok
}

type clockDomains struct{ _, Mask uint32 }

func (c *controlCall) clockDomains(p *clockDomains) status {
	p.Mask = allClockDomains
	return ok
}

// clockFrequencies answers a flag word, a count and a list of a domain, a mask, an
// unknown and the highest frequency in kHz, which must not be 0.
func (c *controlCall) clockFrequencies() status {
	const most = 32
	type clock struct{ Domain, Mask, _, KHz uint32 }
	count, enough := viewAt[[2]uint32](c.params, 0)
	if !enough {
		return errInvalidParamStruct
	}
	list, fits := viewList[clock](c.params[8:], int(min(count[1], most)))
	if !fits {
		return errInvalidParamStruct
	}
	m := c.card.model
	for i := range list {
		list[i].Mask, list[i].KHz = list[i].Domain, m.MaxGraphicsMHz*1000
		if list[i].Domain == clockMemory {
			list[i].KHz = m.MaxMemoryMHz * 1000
		}
	}
	return ok
}

// clockShares answers a list of clock domains with how much of its highest frequency
// each one runs at, in percent: libcuda's clock rates. After three words and a gap come
// the count and the list.
func (c *controlCall) clockShares() status {
	const countAt, listAt, most = 16, 20, 32
	type clock struct{ Domain, _, Percent, _ uint32 }
	count, enough := viewAt[uint32](c.params, countAt)
	if !enough {
		return errInvalidParamStruct
	}
	list, fits := viewList[clock](c.params[listAt:], int(min(*count, most)))
	if !fits {
		return errInvalidParamStruct
	}
	for i := range list {
		list[i].Percent = 100
	}
	return ok
}

// clocks is the frequency of a domain now, and its highest, in MHz.
func (c *card) clocks(domain uint32) (now, most uint32) {
	m := c.model
	if domain == clockMemory {
		return m.MemoryMHz, m.MaxMemoryMHz
	}
	if c.busy() > 0 {
		return m.MaxGraphicsMHz, m.MaxGraphicsMHz
	}
	return m.GraphicsMHz, m.MaxGraphicsMHz
}

// clockNow is the frequency of a domain: Percent × Counted ÷ Reference of its
// highest. NVML leaves the counters out if clockRatio answers.
type clockNow struct {
	_, Count, _, Domain, Reference, Percent, _, Counted uint32
}

func (c *controlCall) clockNow(p *clockNow) status {
	p.Counted, p.Reference = c.card.clocks(p.Domain)
	p.Percent = 100
	return ok
}

// clockRatio is the same as a ratio.
type clockRatio struct{ Domain, Now, Most uint32 }

func (c *controlCall) clockRatio(p *clockRatio) status {
	p.Now, p.Most = c.card.clocks(p.Domain)
	return ok
}

// utilWindow is over what time utilisation is reported.
const utilWindow = time.Second

// busy is the utilisation of the card's graphics and compute engine in percent.
func (c *card) busy() uint32 {
	u := c.engine.Utilization(utilWindow)
	if u.Window <= 0 {
		return 0
	}
	return uint32(min(100*u.Busy/u.Window, 100))
}

type utilization struct {
	Count   uint32
	Domains [2]struct{ Domain, Percent, _, _ uint32 } // graphics, memory
}

func (c *controlCall) utilization(p *utilization) status {
	busy := c.card.busy()
	p.Domains[0].Percent = busy
	p.Domains[1].Percent = busy / memoryShare
	return ok
}
