package nvclient

import (
	"encoding/binary"
	"fmt"

	"gvisor.dev/gvisor/pkg/abi/nvgpu"

	"github.com/qgpu-project/qgpu/internal/nvabi"
)

// Controls of a card's schedule (ctrla06c.h, ctrla06fgpfifo.h, ctrl2080fifo.h,
// ctrl2080tmr.h).
const (
	ctrlSetTimeslice   = 0xa06c0103
	ctrlGetTimeslice   = 0xa06c0104
	ctrlRestartRunlist = 0xa06f0111
	ctrlDisable        = 0x2080110b
	ctrlTime           = 0x20800403
)

// InvalidState is the status of a runlist that is being changed: the restart is to be
// tried again.
const InvalidState Status = 0x40

// A Channel is named by the client that has it and its handle there.
type Channel struct{ Client, Handle uint32 }

// Time is the clock of the i-th of Cards, in ns.
func (c *Client) Time(i int) (uint64, error) {
	p, err := c.params(ctrlTime, 8)
	if err != nil {
		return 0, err
	}
	if err := c.control(subdeviceHandle+uint32(i), ctrlTime, p); err != nil {
		return 0, fmt.Errorf("read the card's clock: %w", err)
	}
	return p.u64(0), nil
}

// Disable keeps channels on the i-th of Cards from running, or lets them run again, from
// the next restart of their runlist on. They may be channels of any client: the driver
// does not ask whose they are.
func (c *Client) Disable(i int, disable bool, channels []Channel) error {
	for len(channels) > 0 {
		n := min(len(channels), nvabi.DisableChannelsMax)
		p, err := c.params(ctrlDisable, 536)
		if err != nil {
			return err
		}
		if disable {
			p[nvabi.DisableChannelsDisable] = 1
		}
		p.setU32(nvabi.DisableChannelsCount, uint32(n))
		for k, ch := range channels[:n] {
			p.setU32(nvabi.DisableChannelsClients+4*k, ch.Client)
			p.setU32(nvabi.DisableChannelsChannels+4*k, ch.Handle)
		}
		if err := c.control(subdeviceHandle+uint32(i), ctrlDisable, p); err != nil {
			return fmt.Errorf("disable or enable %d channels: %w", n, err)
		}
		channels = channels[n:]
	}
	return nil
}

// SetTimeslice stores the time slice of another client's channel group, in µs, through a
// duplicate of that client's control file. A group that was scheduled before obeys it
// after the next restart of its runlist.
func SetTimeslice(d Driver, ctl int, client, group uint32, us uint64) error {
	p := make(message, 8)
	binary.LittleEndian.PutUint64(p[nvabi.TimesliceMicros:], us)
	if err := controlOf(d, ctl, client, group, ctrlSetTimeslice, p); err != nil {
		return fmt.Errorf("set a time slice of %d µs: %w", us, err)
	}
	return nil
}

// Timeslice is the time slice of another client's channel group that was set last, in µs.
func Timeslice(d Driver, ctl int, client, group uint32) (uint64, error) {
	p := make(message, 8)
	if err := controlOf(d, ctl, client, group, ctrlGetTimeslice, p); err != nil {
		return 0, fmt.Errorf("ask for a time slice: %w", err)
	}
	return p.u64(nvabi.TimesliceMicros), nil
}

// RestartRunlist restarts the runlist of another client's channel, through a duplicate of
// that client's control file: time slices and disabled channels take effect. The caller
// needs CAP_SYS_NICE. The error is [InvalidState] if it is to be tried again.
func RestartRunlist(d Driver, ctl int, ch Channel) error {
	if err := controlOf(d, ctl, ch.Client, ch.Handle, ctrlRestartRunlist, make(message, 2)); err != nil {
		return fmt.Errorf("restart the runlist: %w", err)
	}
	return nil
}

// controlStatus is the offset of the status in NVOS54_PARAMETERS.
const controlStatus = 28

// controlOf performs a control on an object of another client.
func controlOf(d Driver, ctl int, client, object, cmd uint32, params message) error {
	m := make(message, sizeNVOS54)
	m.setU32(0, client)
	m.setU32(nvabi.NVOS54Object, object)
	m.setU32(nvabi.NVOS54Cmd, cmd)
	m.setPointer(nvabi.NVOS54Params, params)
	m.setU32(nvabi.NVOS54ParamLen, uint32(len(params)))
	if err := ioctl(d, ctl, nrControl, m, params); err != nil {
		return err
	}
	if s := m.u32(controlStatus); s != nvgpu.NV_OK {
		return Status(s)
	}
	return nil
}
