package pacer

import (
	"cmp"
	"slices"
	"sync"

	"github.com/qgpu-project/qgpu/internal/nvabi"
	"github.com/qgpu-project/qgpu/internal/nvclient"
)

// clocks are the pacer's own client of the driver, for several goroutines.
type clocks struct {
	mu     sync.Mutex
	client *nvclient.Client
}

// now is a card's clock in ns.
func (c *clocks) now(minor int) (uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.client.Time(c.index(minor))
}

func (c *clocks) index(minor int) int {
	for i, card := range c.client.Cards() {
		if card.Minor == minor {
			return i
		}
	}
	return -1
}

// disable disables channels, or enables them, from the next restart on. One that was freed
// meanwhile fails the list that it is in: then each of these is named alone. The error is
// nil if any was there.
func (c *clocks) disable(minor int, yes bool, channels []nvclient.Channel) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	i, found := c.index(minor), false
	var last error
	for list := range slices.Chunk(channels, nvabi.DisableChannelsMax) {
		if err := c.client.Disable(i, yes, list); err == nil {
			found = true
			continue
		}
		for k := range list {
			err := c.client.Disable(i, yes, list[k:k+1])
			found = found || err == nil
			last = cmp.Or(err, last)
		}
	}
	if found {
		return nil
	}
	return last
}
