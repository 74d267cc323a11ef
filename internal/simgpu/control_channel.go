package simgpu

import "encoding/binary"

// channelControls are the controls of channels, but for those about scheduling
// (ctrl906f.h, ctrlc36f.h, ctrl0080fifo.h).
func channelControls() map[uint32]control {
	table := map[uint32]control{
		0x0080170d: (*controlCall).channelList,
		0xc36f0108: answer((*controlCall).submitToken),
		0xc36f010a: accept, // GPFIFO_SET_WORK_SUBMIT_TOKEN_NOTIF_INDEX
		0xa06c0102: accept, // BIND
		0xa06f0104: accept, // BIND
		0xc36f0104: accept, // BIND
		0xa06f0108: accept, // SET_ERROR_NOTIFIER
	}
	for _, class := range []uint32{0x906f, 0xa06f, 0xc36f} {
		table[class<<16|0x0101] = answer((*controlCall).classEngineID)
		table[class<<16|0x0102] = accept // RESET_CHANNEL
	}
	return table
}

type classEngineID struct{ Object, ClassEngine, Class, Engine uint32 }

// classEngineID says what a pushbuffer puts into SET_OBJECT for an object.
func (c *controlCall) classEngineID(p *classEngineID) status {
	o, body, is := find[*engineObject](c.client, p.Object)
	if !is || o.parent != c.object {
		return errInvalidObjectHandle
	}
	p.Class, p.ClassEngine, p.Engine = o.class, o.class, engineGraphics
	const copyClass = 0xb5
	if o.class&0xff == copyClass {
		p.Engine = engineCopyFirst
		if t := body.channel.engineType; isCopyEngine(t) {
			p.Engine = t
		}
	}
	return ok
}

func (c *controlCall) submitToken(token *uint32) status {
	*token = c.object.body.(*channel).id
	return ok
}

// channelList turns channel handles into hardware channel ids.
func (c *controlCall) channelList() status {
	const unknown = ^uint32(0)
	if len(c.buffers) < 2 || len(c.buffers[0]) != len(c.buffers[1]) {
		return errInvalidArgument
	}
	for i := 0; i+4 <= len(c.buffers[0]); i += 4 {
		id := unknown
		if _, ch, is := find[*channel](c.client, binary.NativeEndian.Uint32(c.buffers[0][i:])); is {
			id = ch.id
		}
		putUint32(c.buffers[1][i:], id)
	}
	return ok
}
