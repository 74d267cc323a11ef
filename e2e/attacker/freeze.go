package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"time"

	"gvisor.dev/gvisor/pkg/abi/nvgpu"
)

// Where other clients' handles lie: the driver numbers clients, and libcuda its objects.
const (
	firstObject = 0x5c000000
	clients     = 0x20
	objects     = 0x100
)

// setPreemption is NV2080_CTRL_CMD_GR_SET_CTXSW_PREEMPTION_MODE (ctrl2080gr.h).
const setPreemption = 0x20801210

// freeze tries, for so many seconds, to keep others off the card: it names all channels that
// they may have in a list of disabled ones, restarts the runlist by its own channel group,
// sets long slices, and changes when it may be interrupted. It says when it is ready, and
// begins with a line of standard input.
func freeze(r *report, args []string) error {
	seconds, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	c, err := newClient()
	if err != nil {
		return err
	}
	const group = 0xd0000010
	if o := c.newGroup(group); !o.ok() {
		return o.err("make a group")
	}
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	slice := make(block, 8)
	slice.set64(0, 1<<24)
	onlyWhenIdle := c.controlParams(setPreemption)
	onlyWhenIdle.set32(0, 1) // flags: of compute
	for end := time.Now().Add(time.Duration(seconds) * time.Second); time.Now().Before(end); {
		for client := uint32(firstClient); client < firstClient+clients; client++ {
			if client == c.root {
				continue
			}
			for object := uint32(firstObject); object < firstObject+objects; object++ {
				r.forbidden(c.disableChannels(client, object).ok(), "disabled channel %#x of client %#x", object, client)
			}
			c.control(group, nvgpu.NVA06C_CTRL_CMD_SET_TIMESLICE, slice)
			r.forbidden(c.control(group, restartRunlist, make(block, 2)).ok(), "restarted the runlist")
			r.forbidden(c.control(subdevice, setPreemption, onlyWhenIdle).ok(), "made its work last until it is idle")
		}
	}
	return nil
}
