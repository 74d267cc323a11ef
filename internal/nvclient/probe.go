package nvclient

import "github.com/qgpu-project/qgpu/internal/nvabi"

// probeHandle is the handle of a duplicate that lives for a moment only.
const probeHandle = 0xcafd0000

// Holds reports whether another client of this process has an object of memory of the
// i-th of Cards. It makes a duplicate (NVOS55_PARAMETERS), which RM allows among the
// clients of a process, and frees it.
func (c *Client) Holds(i int, client, object uint32) bool {
	m := make(message, c.abi.Frontend[nvabi.EscRMDupObject][0].Size)
	m.setU32(nvabi.NVOS55Client, c.root)
	m.setU32(nvabi.NVOS55Parent, deviceHandle+uint32(i))
	m.setU32(nvabi.NVOS55Object, probeHandle)
	m.setU32(nvabi.NVOS55ClientSrc, client)
	m.setU32(nvabi.NVOS55ObjectSrc, object)
	if err := ioctl(c.driver, c.ctl, nvabi.EscRMDupObject, m); err != nil || m.u32(dupStatus) != 0 {
		return false
	}
	free := make(message, sizeNVOS00)
	free.setU32(nvabi.NVOS00Root, c.root)
	free.setU32(nvabi.NVOS00Old, probeHandle)
	_ = ioctl(c.driver, c.ctl, nrFree, free) // what was just made can be freed
	return true
}

// dupStatus is the offset of the status in NVOS55_PARAMETERS.
const dupStatus = 24
