package simgpu

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/qgpu-project/qgpu/internal/nvabi"
)

// processControls report which processes use a card, and how much of it.
func processControls() map[uint32]control {
	return map[uint32]control{
		0x2080018d: answer((*controlCall).pids),
		0x2080018e: answer((*controlCall).pidInfo),
		0x20802096: (*controlCall).utilSamples,
	}
}

type pids struct {
	Type, Class, Count uint32
	PIDs               [950]uint32
}

// pids lists the processes that have an object of a class on the card.
func (c *controlCall) pids(p *pids) status {
	const byClass = 0
	if p.Type != byClass {
		return errInvalidArgument
	}
	found := map[int]bool{}
	for _, client := range c.d.clients {
		if !found[client.pid] && client.uses(c.card, p.Class) {
			found[client.pid] = true
		}
	}
	p.Count = 0
	for _, pid := range sortedKeys(found) {
		if int(p.Count) == len(p.PIDs) {
			break
		}
		p.PIDs[p.Count] = uint32(pid)
		p.Count++
	}
	return ok
}

// uses reports whether the client has an object of the class on the card. A
// device or subdevice alone is no use of the card: a channel is.
func (c *client) uses(card *card, class uint32) bool {
	for _, o := range c.objects {
		if o.card != card {
			continue
		}
		switch class {
		case 0x0080, 0x2080:
			if o.kind == nvabi.KindChannel {
				return true
			}
		default:
			if o.class == class {
				return true
			}
		}
	}
	return false
}

func sortedKeys(set map[int]bool) []int {
	keys := make([]int, 0, len(set))
	for k := range set {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

type pidInfoEntry struct {
	PID, Index, Result, _ uint32
	Private, SharedOwned  uint64
	SharedDuped           uint64
	Protected             [3]uint64
	Partition             [2]uint32
}

type pidInfo struct {
	Count, _ uint32
	List     [200]pidInfoEntry
}

// pidInfo says how much video memory processes use, in bytes.
func (c *controlCall) pidInfo(p *pidInfo) status {
	if int(p.Count) > len(p.List) {
		return errInvalidArgument
	}
	for i := range p.List[:p.Count] {
		e := &p.List[i]
		e.Result = uint32(ok)
		e.Private, e.SharedOwned, e.SharedDuped = c.d.memoryOf(int(e.PID), c.card)
		e.Protected = [3]uint64{}
	}
	return ok
}

// memoryOf adds up a process's video memory on a card: its own, its own that
// others share, and others' that it shares.
func (d *Driver) memoryOf(pid int, card *card) (private, owned, duped uint64) {
	seen := map[*memory]bool{}
	for _, client := range d.clients {
		if client.pid != pid {
			continue
		}
		for _, o := range client.objects {
			m, is := o.body.(*memory)
			if !is || m.card != card || seen[m] {
				continue
			}
			seen[m] = true
			switch {
			case m.refs == 1:
				private += m.size
			case m.owner == client:
				owned += m.size
			default:
				duped += m.size
			}
		}
	}
	return private, owned, duped
}

// Layout of UTIL_SAMPLES_V2: a header, and samples that hold a time stamp and one
// entry per kind of engine. The size of a sample depends on the version.
const (
	utilHeader  = 16
	utilSamples = 72
	utilEntry   = 116
	utilStamp   = 8
)

// Entries of a sample: frame buffer, graphics, encoder, decoder; 550 has more.
const (
	utilFB = iota
	utilGraphics
)

// noProcess marks an entry of a sample without a process.
const noProcess = ^uint32(0)

// utilSamples reports the last samples of utilisation, in 1/100 percent, the
// newest last, each with the process that used most of it.
func (c *controlCall) utilSamples() status {
	size := (len(c.params) - utilHeader) / utilSamples
	if size < utilStamp+2*utilEntry {
		return errInvalidParamStruct
	}
	clear(c.params[4:])
	samples := c.card.engine.Samples()
	if len(samples) > utilSamples {
		samples = samples[len(samples)-utilSamples:]
	}
	now, gpuNow := time.Now(), c.card.engine.Now()
	for i, s := range samples {
		b := c.params[utilHeader+i*size:][:size]
		age := time.Duration(max(gpuNow, s.End) - s.End)
		binary.NativeEndian.PutUint64(b, uint64(now.Add(-age).UnixMicro()))
		for at := utilStamp; at+utilEntry <= size; at += utilEntry {
			putUint32(b[at+8:], noProcess)
		}
		if s.Period <= 0 {
			continue
		}
		busiest, most := noProcess, time.Duration(0)
		for owner, t := range s.ByOwner {
			if pid, is := owner.(int); is && t > most {
				busiest, most = uint32(pid), t
			}
		}
		util := uint32(s.Busy * 10000 / s.Period)
		for _, engine := range []int{utilFB, utilGraphics} {
			e := b[utilStamp+engine*utilEntry:]
			share := util
			if engine == utilFB {
				share = util / memoryShare
			}
			putUint32(e, share)
			putUint32(e[8:], busiest)
		}
	}
	n := uint32(len(samples))
	putUint32(c.params[4:], n*uint32(size))
	putUint32(c.params[8:], n)
	putUint32(c.params[12:], max(n, 1)-1)
	return ok
}

// memoryShare relates the model's memory utilisation to that of its SMs: a kernel
// that keeps them busy uses half of the memory's bandwidth.
const memoryShare = 2
