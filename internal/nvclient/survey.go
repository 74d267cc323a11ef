package nvclient

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Lost is a card that the driver lists and that cannot be used.
type Lost struct {
	Card Card // minor number, id and address only
	Err  error
}

// Survey makes a client for those cards of the machine that work, and says which do not.
func Survey(d Driver) (*Client, []Lost, error) {
	ctl, err := d.Open("/dev/nvidiactl", unix.O_RDWR)
	if err != nil {
		return nil, nil, fmt.Errorf("open /dev/nvidiactl: %w", err)
	}
	c := &Client{driver: d, ctl: ctl}
	all, err := c.begin()
	if err != nil {
		c.Close()
		return nil, nil, err
	}
	var lost []Lost
	for _, card := range all {
		files := len(c.nodes)
		err := c.attach(card)
		if err == nil {
			continue
		}
		lost = append(lost, Lost{Card: card, Err: err})
		c.free(deviceHandle + uint32(len(c.cards))) // the next card's device takes its handle
		for _, fd := range c.nodes[files:] {
			_ = d.Close(fd)
		}
		c.nodes = c.nodes[:files]
	}
	return c, lost, nil
}

// Check asks the i-th of Cards for its name and memory, for which the driver must reach it.
// The error says how the driver failed to.
func (c *Client) Check(i int) error {
	card := c.cards[i]
	return c.describe(&card, subdeviceHandle+uint32(i))
}

// free frees an object, if there is one.
func (c *Client) free(handle uint32) {
	m := make(message, sizeNVOS00)
	m.setU32(0, c.root)
	m.setU32(8, handle)
	_ = ioctl(c.driver, c.ctl, nrFree, m) // what is not there need not be freed
}

// statusGPUIsLost is NV_ERR_GPU_IS_LOST of nvstatuscodes.h.
const statusGPUIsLost Status = 0x0f
