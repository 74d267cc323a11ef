package mediator

import (
	"fmt"

	"github.com/qgpu-project/qgpu/internal/nvabi"
	"github.com/qgpu-project/qgpu/internal/seccomp"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/nvgpu"
)

// uvmRule is the disposition of a command of /dev/nvidia-uvm. One without a rule, or
// unknown to the driver's version, is refused with EINVAL.
type uvmRule struct {
	// before adjusts the arguments, or refuses with a status.
	before func(*call) uint32
	// after records an executed command that succeeded.
	after func(*call, int)
	why   string
}

// uvmRules is the table of dispositions of UVM commands: those gVisor's nvproxy allows
// for compute. Not in it: reading and writing of other processes' memory and flushing
// of events (the debugger's and profiler's), sparse mappings, peer-to-peer memory,
// discarding, and access counters.
func uvmRules() map[uint32]uvmRule {
	simple := uvmRule{why: "concerns the caller's own address space"}
	rules := map[uint32]uvmRule{
		nvgpu.UVM_INITIALIZE:              {before: (*call).uvmInitialize, why: "the address space is shared with the mediator"},
		nvgpu.UVM_REGISTER_GPU:            {before: (*call).uvmCard, why: "the tenant's cards only"},
		nvgpu.UVM_REGISTER_GPU_VASPACE:    {before: uvmClientAt(20), why: "the tenant's clients only"},
		nvgpu.UVM_REGISTER_CHANNEL:        {before: uvmClientAt(20), why: "the tenant's clients only"},
		nvgpu.UVM_MAP_EXTERNAL_ALLOCATION: {before: (*call).uvmMapping, after: (*call).uvmMapped, why: "keeps memory alive"},
		nvgpu.UVM_CREATE_EXTERNAL_RANGE:   {after: (*call).uvmRange, why: "addresses only"},
		nvgpu.UVM_UNMAP_EXTERNAL:          {after: (*call).uvmUnmapped, why: "memory may come back"},
		nvgpu.UVM_FREE:                    {after: (*call).uvmFreed, why: "memory may come back"},
		nvgpu.UVM_ALLOC_SEMAPHORE_POOL:    {after: (*call).uvmPool, why: "memory of the host"},
	}
	for _, cmd := range []uint32{
		nvgpu.UVM_DEINITIALIZE, nvgpu.UVM_MM_INITIALIZE, nvgpu.UVM_CREATE_RANGE_GROUP, nvgpu.UVM_DESTROY_RANGE_GROUP,
		nvgpu.UVM_SET_RANGE_GROUP, nvgpu.UVM_UNREGISTER_GPU_VASPACE, nvgpu.UVM_UNREGISTER_CHANNEL,
		nvgpu.UVM_ENABLE_PEER_ACCESS, nvgpu.UVM_DISABLE_PEER_ACCESS, nvgpu.UVM_UNREGISTER_GPU,
		nvgpu.UVM_PAGEABLE_MEM_ACCESS, nvgpu.UVM_PAGEABLE_MEM_ACCESS_ON_GPU,
		nvgpu.UVM_SET_PREFERRED_LOCATION, nvgpu.UVM_UNSET_PREFERRED_LOCATION,
		nvgpu.UVM_ENABLE_READ_DUPLICATION, nvgpu.UVM_DISABLE_READ_DUPLICATION,
		nvgpu.UVM_SET_ACCESSED_BY, nvgpu.UVM_UNSET_ACCESSED_BY, nvgpu.UVM_MIGRATE, nvgpu.UVM_MIGRATE_RANGE_GROUP,
		nvgpu.UVM_MAP_DYNAMIC_PARALLELISM_REGION, nvgpu.UVM_VALIDATE_VA_RANGE,
	} {
		rules[cmd] = simple
	}
	return rules
}

// uvmExtents are the least sizes of the commands whose arguments are looked at here.
var uvmExtents = map[uint32]uint32{
	nvgpu.UVM_INITIALIZE: 16, nvgpu.UVM_REGISTER_GPU: 40, nvgpu.UVM_REGISTER_GPU_VASPACE: 24, nvgpu.UVM_REGISTER_CHANNEL: 24,
	nvgpu.UVM_MAP_EXTERNAL_ALLOCATION: 40, nvgpu.UVM_CREATE_EXTERNAL_RANGE: 16, nvgpu.UVM_UNMAP_EXTERNAL: 16,
	nvgpu.UVM_FREE: 8, nvgpu.UVM_ALLOC_SEMAPHORE_POOL: 16,
}

// uvm answers an ioctl on a UVM file. UVM's commands carry no size; it follows from
// the driver's version.
func (c *call) uvm(addr uint64) seccomp.Answer {
	abi, known := c.m.abi.UVM[c.cmd]
	rule, allowed := c.m.uvm[c.cmd]
	if c.name = abi.Name; !known {
		c.name = fmt.Sprintf("UVM command %d", c.cmd)
	}
	if !known || !allowed {
		return c.reject(unix.EINVAL)
	}
	c.status, c.descriptor = abi.Status, abi.FD
	if abi.Size > 0 {
		arg, errno := c.read(addr, int(abi.Size))
		if errno != 0 {
			return fail(errno)
		}
		c.arg = arg
	}
	pid := 0
	if rule.after != nil {
		var err error
		if pid, err = c.n.Process(); err != nil {
			return fail(unix.ESRCH)
		}
	}
	if rule.before != nil {
		if status := rule.before(c); status != statusOK {
			return c.refuse(status)
		}
	}
	if abi.FD != nvabi.None {
		if _, _, _, errno := c.translate(c.arg, abi.FD, false); errno != 0 {
			return c.refuse(statusInvalidArgument)
		}
	}
	errno := c.execute()
	if rule.after != nil && c.ok(errno) {
		rule.after(c, pid)
		c.m.recorded(pid)
	}
	return c.finish(errno)
}

// shareSpace is UVM_INIT_FLAGS_MULTI_PROCESS_SHARING_MODE: without it UVM takes
// calls from the process that initialized the address space only, and that process
// would be the mediator. It also keeps UVM from moving the tenant's ordinary memory
// to the card (HMM), where nothing would account for it.
const shareSpace = 2

func (c *call) uvmInitialize() uint32 {
	if c.nPatch == maxPatches {
		return statusInvalidArgument
	}
	// As a patch, so that the tenant sees its own flags again.
	flags := c.arg.u64(0)
	c.patches[c.nPatch] = patch{in: c.arg, off: 0, wide: true, value: flags}
	c.nPatch++
	c.arg.setU64(0, flags|shareSpace)
	return statusOK
}

// uvmCard checks the card that UVM_REGISTER_GPU names by its UUID, and the client,
// which is given for a part of a card only.
func (c *call) uvmCard() uint32 {
	if h := c.arg.u32(28); h != 0 && !c.m.ledger.hasClient(h) {
		return statusInvalidClient
	}
	for i := range c.m.cards {
		if string(c.arg[:16]) == string(c.m.cards[i].uuid[:]) {
			return statusOK
		}
	}
	return statusInvalidArgument
}

// uvmClientAt checks the RM client at an offset. UVM itself does not check whose it is.
func uvmClientAt(off int) func(*call) uint32 {
	return func(c *call) uint32 {
		if !c.m.ledger.hasClient(c.arg.u32(off)) {
			return statusInvalidClient
		}
		return statusOK
	}
}

// uvmMapping checks UVM_MAP_EXTERNAL_ALLOCATION, which ends with the descriptor, the
// client, the object and the status.
func (c *call) uvmMapping() uint32 {
	if !c.m.ledger.hasClient(c.arg.u32(len(c.arg) - 12)) {
		return statusInvalidClient
	}
	pid, err := c.n.Process()
	if err != nil || !c.m.ledger.mayMapExternal(pid) {
		return statusNoResources
	}
	if c.held, err = c.m.heldUVM(pid, c.fd); err != nil {
		return statusNoResources
	}
	return statusOK
}

func (c *call) uvmMapped(pid int) {
	client, object := c.arg.u32(len(c.arg)-12), c.arg.u32(len(c.arg)-8)
	c.m.ledger.mapExternal(pid, c.held, c.arg.u64(0), c.arg.u64(8), client, object)
}

func (c *call) uvmRange(pid int)    { c.m.ledger.addRange(pid, c.arg.u64(0), c.arg.u64(8)) }
func (c *call) uvmUnmapped(pid int) { c.m.ledger.unmapExternal(pid, c.span()) }
func (c *call) uvmFreed(pid int)    { c.m.ledger.freeRange(pid, c.arg.u64(0)) }
func (c *call) uvmPool(pid int)     { c.m.ledger.addPool(pid, c.span()) }

// span is the range that the argument begins with: base and length.
func (c *call) span() span {
	base, length := c.arg.u64(0), c.arg.u64(8)
	return span{base, base + min(length, ^uint64(0)-base)}
}
