package mediator

import (
	"fmt"

	"github.com/qgpu-project/qgpu/internal/nvabi"
	"github.com/qgpu-project/qgpu/internal/seccomp"
	"golang.org/x/sys/unix"
)

// frontendRule is the disposition of an ioctl on /dev/nvidiactl or /dev/nvidiaN.
// An ioctl without a rule, or unknown to the driver's version, is refused with EINVAL.
type frontendRule struct {
	clients []int // offsets of RM client handles in the argument, which must be the tenant's
	answer  func(*call) seccomp.Answer
	why     string
}

// frontendRules is the table of dispositions of ioctls. Not in it, and so refused:
// XFER_CMD, which wraps any other ioctl; EXPORT_TO_DMABUF_FD, whose file outlives the
// client that is charged; ALLOC_OBJECT, ALLOC_CONTEXT_DMA2, BIND_CONTEXT_DMA,
// IDLE_CHANNELS and (UN)MAP_MEMORY_DMA, which compute has no use for; STATUS_CODE,
// QUERY_DEVICE_INTR, SET_NUMA_STATUS, I2C_ACCESS, ACCESS_REGISTRY and
// LOCKLESS_DIAGNOSTIC, which are the administrator's.
func frontendRules() map[uint8]frontendRule {
	first := []int{0}
	return map[uint8]frontendRule{
		nvabi.EscCardInfo:                  {nil, (*call).cardInfo, "only the tenant's cards exist for it"},
		nvabi.EscRegisterFD:                {nil, (*call).withDescriptor, "the descriptor is translated"},
		nvabi.EscAllocOSEvent:              {first, (*call).withDescriptor, "the descriptor is translated, and may be replaced"},
		nvabi.EscFreeOSEvent:               {first, (*call).withDescriptor, "the descriptor is translated"},
		nvabi.EscCheckVersionStr:           {nil, (*call).run, "a comparison of versions"},
		nvabi.EscAttachGPUsToFD:            {nil, (*call).attachGPUs, "the driver does not check whose cards these are"},
		nvabi.EscSysParams:                 {nil, (*call).run, "a size of the machine's"},
		nvabi.EscNUMAInfo:                  {nil, (*call).run, "facts of the card whose file it is"},
		nvabi.EscWaitOpenComplete:          {nil, (*call).run, "waits for the card whose file it is"},
		nvabi.EscRMAllocMemory:             {first, (*call).allocMemory, "memory of the host and pinned memory only"},
		nvabi.EscRMFree:                    {first, (*call).free, "memory comes back"},
		nvabi.EscRMControl:                 {first, (*call).control, "see the table of controls"},
		nvabi.EscRMAlloc:                   {nil, (*call).alloc, "see the table of classes"},
		nvabi.EscRMDupObject:               {[]int{0, dupClientSrc}, (*call).duplicate, "both clients are the tenant's"},
		nvabi.EscRMShare:                   {first, (*call).share, "the default lets all of the tenant's processes share, and nobody else"},
		nvabi.EscRMVidHeapControl:          {first, (*call).heapControl, "memory is charged"},
		nvabi.EscRMMapMemory:               {first, (*call).withDescriptor, "the descriptor is translated, and may be replaced"},
		nvabi.EscRMUnmapMemory:             {first, (*call).run, "a mapping of the tenant's own client"},
		nvabi.EscRMUpdateDeviceMappingInfo: {first, (*call).run, "renames a mapping of the tenant's own client"},
	}
}

// ioctl answers an ioctl(2).
//
// On a descriptor that is no device file of this tenant the answer is ENOTTY, and
// nothing is executed: the call was notified because a driver of NVIDIA's would act on
// its number, and to let the kernel execute it would let the descriptor be swapped
// in the meantime. No other driver that a container meets has an ioctl whose number
// and size are those of one of NVIDIA's.
func (m *Mediator) ioctl(n Notification) (answer seccomp.Answer) {
	if a, ok := m.lost.find(n); ok {
		return a
	}
	cmd := uint32(n.Arg(1)) // the kernel, too, looks at 32 bits only
	fd, _, d, errno := m.descriptor(n, int32(n.Arg(0)))
	if errno != 0 {
		return fail(errno)
	}
	c, err := m.calls.get(m, n)
	if err != nil {
		m.close(fd)
		m.log.Error("a call of the tenant fails for want of memory", "error", err)
		return fail(unix.ENOMEM)
	}
	c.fd, c.file, c.cmd = fd, d, cmd
	defer func() {
		c.end()
		c.settle(answer)
		if m.interruptible.Load() && c.executed && !c.worked {
			if a, ok := m.dropped(c); ok {
				answer = a
			}
		}
		m.calls.retire(c)
	}()
	if d.kind == uvmFile {
		return c.uvm(n.Arg(2))
	}
	return c.frontend(n.Arg(2))
}

// frontend answers an ioctl on a control or card file.
func (c *call) frontend(addr uint64) seccomp.Answer {
	nr, size := uint8(c.cmd), nvabi.IoctlSize(c.cmd)
	f, known := c.m.abi.FrontendCall(c.cmd)
	if !known {
		c.name = fmt.Sprintf("ioctl %#x of %d bytes", nr, size)
		return c.reject(unix.EINVAL)
	}
	c.name, c.status, c.descriptor = f.Name, f.Status, f.FD
	rule, allowed := c.m.frontend[nr]
	if !allowed {
		return c.reject(unix.EINVAL)
	}
	arg, errno := c.read(addr, int(size))
	if errno != 0 {
		return fail(errno)
	}
	c.arg = arg
	for _, off := range rule.clients {
		if !c.m.ledger.hasClient(arg.u32(off)) {
			return c.refuse(statusInvalidClient)
		}
	}
	return rule.answer(c)
}

// withDescriptor executes a call whose argument holds a descriptor. Where a simulated
// driver put another file behind the descriptor, the tenant gets it.
func (c *call) withDescriptor() seccomp.Answer {
	if c.descriptor == nvabi.None {
		return c.reject(unix.EINVAL)
	}
	target := int32(c.arg.u32(c.descriptor))
	dup, before, d, errno := c.translate(c.arg, c.descriptor, false)
	if errno != 0 {
		return c.reject(errno)
	}
	errno = c.execute()
	if c.ok(errno) && dup != none && c.m.simulated {
		if errno := c.replaced(dup, target, before, d); errno != 0 {
			return fail(errno)
		}
	}
	return c.finish(errno)
}

// replaced hands the file behind the mediator's descriptor dup to the tenant, in
// place of its descriptor target, if a call changed it. A real driver never does.
func (c *call) replaced(dup int, target int32, before Stat, d deviceFile) unix.Errno {
	after, err := c.m.driver.Stat(dup)
	if err != nil {
		return errnoOf(err)
	}
	if after == before {
		return 0
	}
	c.m.files.add(after, deviceFile{kind: d.kind, card: d.card})
	if err := c.n.Replace(dup, target, true); err != nil {
		return errnoOf(err)
	}
	return 0
}

// cardInfo answers NV_ESC_CARD_INFO with the tenant's cards only, as large as its quota.
func (c *call) cardInfo() seccomp.Answer {
	errno := c.execute()
	if errno != 0 {
		return c.finish(errno)
	}
	kept := 0
	for off := 0; off+cardInfoSize <= len(c.arg); off += cardInfoSize {
		e := c.arg[off : off+cardInfoSize]
		i, ok := c.m.cardByID(e.u32(cardInfoGPUID))
		if e[0] == 0 || !ok {
			clear(e)
			continue
		}
		quota, _ := c.m.ledger.balance(i)
		if e.u64(cardInfoFB) > quota {
			e.setU64(cardInfoFB, quota)
		}
		copy(c.arg[kept:kept+cardInfoSize], e)
		if kept != off {
			clear(e)
		}
		kept += cardInfoSize
	}
	return c.finish(0)
}

// attachGPUs checks NV_ESC_ATTACH_GPUS_TO_FD, an array of the driver's ids of cards.
func (c *call) attachGPUs() seccomp.Answer {
	for off := 0; off+4 <= len(c.arg); off += 4 {
		id := c.arg.u32(off)
		if id == 0 {
			continue // the driver skips it, too
		}
		if _, ok := c.m.cardByID(id); !ok {
			return c.reject(unix.EINVAL)
		}
	}
	return c.run()
}

// share answers NV_ESC_RM_SHARE without executing it.
func (c *call) share() seccomp.Answer { return c.pretend(statusOK) }
