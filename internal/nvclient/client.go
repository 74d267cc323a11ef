package nvclient

import (
	"fmt"

	"github.com/qgpu-project/qgpu/internal/nvabi"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/nvgpu"
)

// Sizes of structures that are the same in all supported drivers.
const (
	sizeNVOS00  = 16 // free
	sizeNVOS21  = 32 // alloc
	sizeNVOS54  = 32 // control
	sizeVersion = 72 // nv_ioctl_rm_api_version_t
	sizeCard    = 72 // nv_ioctl_card_info_t
	maxCards    = 32 // NV_MAX_DEVICES
)

// Handles that the client chooses for its objects; they mean something under its
// own root only. Card i has a device at deviceHandle+i and a subdevice at
// subdeviceHandle+i.
const (
	deviceHandle    = 0xcafe0000
	subdeviceHandle = 0xcaff0000
)

// Client is an RM client with a device and a subdevice for each card it was
// opened for. It is not safe for concurrent use.
type Client struct {
	driver Driver
	abi    *nvabi.ABI
	ctl    int
	root   uint32
	cards  []Card
	nodes  []int // open files of the cards, by index into cards
}

// Version asks the driver for its version, as /dev/nvidiactl's file ctl.
func Version(d Driver, ctl int) (nvabi.Version, error) {
	m := make(message, sizeVersion)
	m.setU32(0, '2') // NV_RM_API_VERSION_CMD_QUERY: tell, do not compare
	if err := ioctl(d, ctl, nrCheckVersion, m); err != nil {
		return nvabi.Version{}, fmt.Errorf("ask the driver for its version: %w", err)
	}
	v, err := nvabi.ParseVersion(m.text(8, 64))
	if err != nil {
		return nvabi.Version{}, fmt.Errorf("the driver tells no usable version: %w", err)
	}
	return v, nil
}

// Open makes a client for those cards of the machine whose minor number wanted
// accepts; a nil wanted accepts all. It opens the device files of these cards and
// keeps them open, since RM admits a process to a card only while it has its file open.
func Open(d Driver, wanted func(minor int) bool) (*Client, error) {
	ctl, err := d.Open("/dev/nvidiactl", unix.O_RDWR)
	if err != nil {
		return nil, fmt.Errorf("open /dev/nvidiactl: %w", err)
	}
	c := &Client{driver: d, ctl: ctl}
	if err := c.setUp(wanted); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// begin makes the client's root and returns the driver's list of cards.
func (c *Client) begin() ([]Card, error) {
	v, err := Version(c.driver, c.ctl)
	if err != nil {
		return nil, err
	}
	if c.abi, err = nvabi.For(v); err != nil {
		return nil, err
	}
	all, err := cardInfo(c.driver, c.ctl)
	if err != nil {
		return nil, err
	}
	if c.root, err = c.alloc(0, 0, nvgpu.NV01_ROOT_CLIENT, 0, nil); err != nil {
		return nil, fmt.Errorf("make an RM client: %w", err)
	}
	return all, nil
}

func (c *Client) setUp(wanted func(minor int) bool) error {
	all, err := c.begin()
	if err != nil {
		return err
	}
	for _, card := range all {
		if wanted != nil && !wanted(card.Minor) {
			continue
		}
		if err := c.attach(card); err != nil {
			return fmt.Errorf("card %s (/dev/nvidia%d): %w", card.Address, card.Minor, err)
		}
	}
	return nil
}

// Close frees the client's objects and files.
func (c *Client) Close() error {
	if c.root != 0 {
		m := make(message, sizeNVOS00)
		m.setU32(0, c.root)
		m.setU32(8, c.root)
		// The driver frees the client with its file in any case.
		_ = ioctl(c.driver, c.ctl, nrFree, m)
	}
	for _, fd := range c.nodes {
		_ = c.driver.Close(fd)
	}
	return c.driver.Close(c.ctl)
}

// Version is the driver's version.
func (c *Client) Version() nvabi.Version { return c.abi.Version }

// Cards are the cards of the client. The caller must not change them.
func (c *Client) Cards() []Card { return c.cards }

// attach opens a card's file, attaches the card, and fills in its facts.
func (c *Client) attach(card Card) error {
	fd, err := c.driver.Open(fmt.Sprintf("/dev/nvidia%d", card.Minor), unix.O_RDWR)
	if err != nil {
		return fmt.Errorf("open its device file: %w", err)
	}
	c.nodes = append(c.nodes, fd)
	if err := c.attachID(card.GPUID); err != nil {
		return fmt.Errorf("attach it: %w", err)
	}
	if err := c.identify(&card); err != nil {
		return err
	}
	i := uint32(len(c.cards))
	params := make(message, c.abi.Classes[nvgpu.NV01_DEVICE_0].Size)
	if len(params) < 4 {
		return fmt.Errorf("driver %s: class NV01_DEVICE_0 is not in its ABI table", c.abi.Version)
	}
	params.setU32(0, card.Instance)
	if _, err := c.alloc(c.root, c.root, nvgpu.NV01_DEVICE_0, deviceHandle+i, params); err != nil {
		return fmt.Errorf("make a device object: %w", err)
	}
	sub := make(message, 4)
	sub.setU32(0, card.SubInstance)
	if _, err := c.alloc(c.root, deviceHandle+i, nvgpu.NV20_SUBDEVICE_0, subdeviceHandle+i, sub); err != nil {
		return fmt.Errorf("make a subdevice object: %w", err)
	}
	if err := c.describe(&card, subdeviceHandle+i); err != nil {
		return err
	}
	c.cards = append(c.cards, card)
	return nil
}

// alloc makes an RM object by NV_ESC_RM_ALLOC (NVOS21_PARAMETERS) and returns its
// handle, which the driver chooses if handle is 0.
func (c *Client) alloc(root, parent, class, handle uint32, params message) (uint32, error) {
	m := make(message, sizeNVOS21)
	m.setU32(0, root)
	m.setU32(4, parent)
	m.setU32(8, handle)
	m.setU32(12, class)
	if len(params) > 0 {
		m.setPointer(16, params)
		m.setU32(24, uint32(len(params)))
	}
	if err := ioctl(c.driver, c.ctl, nrAlloc, m, params); err != nil {
		return 0, err
	}
	if s := m.u32(28); s != nvgpu.NV_OK {
		return 0, Status(s)
	}
	return m.u32(8), nil
}

// control performs NV_ESC_RM_CONTROL (NVOS54_PARAMETERS).
func (c *Client) control(object, cmd uint32, params message) error {
	m := make(message, sizeNVOS54)
	m.setU32(0, c.root)
	m.setU32(4, object)
	m.setU32(8, cmd)
	m.setPointer(16, params)
	m.setU32(24, uint32(len(params)))
	if err := ioctl(c.driver, c.ctl, nrControl, m, params); err != nil {
		return err
	}
	if s := m.u32(28); s != nvgpu.NV_OK {
		return Status(s)
	}
	return nil
}

// params is an empty parameter block of the size that the driver demands for cmd,
// which is at least need bytes.
func (c *Client) params(cmd uint32, need int) (message, error) {
	ctrl, ok := c.abi.Controls[cmd]
	if !ok || int(ctrl.Size) < need {
		return nil, fmt.Errorf("driver %s: control %#x is not in its ABI table as expected", c.abi.Version, cmd)
	}
	return make(message, ctrl.Size), nil
}
