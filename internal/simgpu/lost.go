package simgpu

import "fmt"

// SetLost makes a card fall off the bus (Xid 79), or puts it back as if the machine had
// been restarted for it. RM then answers NV_ERR_GPU_IS_LOST to whatever is asked of the
// card's objects (API_GPU_ATTACHED_SANITY_CHECK), but frees them; files open and close as
// before, and the control file and other cards do not notice. Of a real card this was read,
// not seen. Work that the card has already is not stopped.
func (d *Driver) SetLost(minor int, lost bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if minor < 0 || minor >= len(d.cards) {
		return fmt.Errorf("there is no card %d; there are 0 to %d", minor, len(d.cards)-1)
	}
	d.cards[minor].lost = lost
	return nil
}

// isLost reports whether an object's card fell off the bus. What belongs to no card, which
// has a nil one, does not.
func (c *card) isLost() bool { return c != nil && c.lost }
