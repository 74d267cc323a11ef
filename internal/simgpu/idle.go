package simgpu

import (
	"encoding/binary"

	"gvisor.dev/gvisor/pkg/abi/nvgpu"
)

// rmIdleChannels waits for channels to be idle in the real driver. Clients use it
// on the way to freeing channels, which here stop at once.
func (c *frontendCall) rmIdleChannels() error {
	p, _ := view[nvgpu.NVOS30_PARAMETERS](c.arg)
	c.d.lock()
	defer c.d.mu.Unlock()
	_, s := c.d.clientOn(c.file, p.Client.Val)
	p.Status = uint32(s)
	return nil
}

func putUint32(b []byte, v uint32) { binary.NativeEndian.PutUint32(b, v) }

// cString is the text of b up to its first zero.
func cString(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}
