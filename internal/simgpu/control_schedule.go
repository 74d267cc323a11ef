package simgpu

import "github.com/qgpu-project/qgpu/internal/simgpu/engine"

// scheduleControls decide when channels run (ctrla06c.h, ctrla06f*.h,
// ctrl2080fifo.h). As on real cards, a stored time slice or a disabled channel
// takes effect with the next restart of the runlist, which may be refused with
// NV_ERR_INVALID_STATE.
func scheduleControls() map[uint32]control {
	return map[uint32]control{
		0xa06c0101: (*controlCall).scheduleGroup,
		0xa06c0103: answer((*controlCall).setTimeslice),
		0xa06c0104: answer((*controlCall).timeslice),
		0xa06c0105: (*controlCall).preempt,
		0xa06c0106: answer((*controlCall).groupID),
		0xa06c0107: accept, // SET_INTERLEAVE_LEVEL: no effect was ever seen
		0xa06f0103: (*controlCall).scheduleChannel,
		0xa06f0109: accept, // SET_INTERLEAVE_LEVEL
		0xa06f0111: (*controlCall).restartRunlist,
		0xa06f0112: (*controlCall).stopChannel,
		0xc36f0103: (*controlCall).scheduleChannel,
		0x2080110b: answer((*controlCall).disableChannels),
	}
}

// scheduleGroup enables or disables all channels that the group has now.
func (c *controlCall) scheduleGroup() status {
	if len(c.params) == 0 {
		return errInvalidParamStruct
	}
	for ch := range c.object.body.(*group).channels {
		ch.engine.Enable(c.params[0] != 0)
	}
	return ok
}

func (c *controlCall) scheduleChannel() status {
	if len(c.params) == 0 {
		return errInvalidParamStruct
	}
	c.object.body.(*channel).engine.Enable(c.params[0] != 0)
	return ok
}

func (c *controlCall) stopChannel() status {
	c.object.body.(*channel).engine.Enable(false)
	return ok
}

func (c *controlCall) setTimeslice(us *uint64) status {
	if *us == 0 {
		return errInvalidArgument
	}
	c.object.body.(*group).engine.SetTimeslice(*us)
	return ok
}

func (c *controlCall) timeslice(us *uint64) status {
	*us = c.object.body.(*group).engine.Timeslice()
	return ok
}

func (c *controlCall) preempt() status {
	c.object.body.(*group).engine.Preempt()
	return ok
}

// groupID answers with a number that tells the groups of a card apart.
func (c *controlCall) groupID(id *uint32) status {
	*id = c.object.handle & clientHandleMask
	return ok
}

func (c *controlCall) restartRunlist() status {
	if err := c.card.engine.RestartRunlist(); err != nil {
		return errInvalidState
	}
	return ok
}

type disableChannels struct {
	Disable        uint8
	Count          uint32
	OnlyScheduling uint8
	RewindPut      uint8
	Event          uint64
	Clients        [64]uint32
	Channels       [64]uint32
}

// disableChannels may name channels of any client: the real driver does not ask
// whose they are. A group's handle stands for all of its channels.
func (c *controlCall) disableChannels(p *disableChannels) status {
	if p.Count > uint32(len(p.Clients)) {
		return errInvalidArgument
	}
	if p.Event != 0 {
		return errInsufficientPermissions // a callback, for the kernel only
	}
	var named []*engine.Channel
	for i := range p.Count {
		client := c.d.clients[p.Clients[i]]
		if client == nil {
			return errInvalidClient
		}
		o := client.objects[p.Channels[i]]
		if o == nil || o.card != c.card {
			return errInvalidChannel
		}
		switch body := o.body.(type) {
		case *channel:
			named = append(named, body.engine)
		case *group:
			for ch := range body.channels {
				named = append(named, ch.engine)
			}
		default:
			return errInvalidChannel
		}
	}
	c.card.engine.DisableChannels(p.Disable != 0, named...)
	return ok
}
