package mediator

import (
	"fmt"

	"github.com/qgpu-project/qgpu/internal/nvabi"
	"github.com/qgpu-project/qgpu/internal/seccomp"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/nvgpu"
)

// kindRules is the table of dispositions of RM classes by kind. A kind without a
// rule is refused with NV_ERR_INVALID_CLASS, as an unknown class is: debuggers and
// profilers read registers, peers and fabric memory reach beyond the tenant's cards.
var kindRules = map[nvabi.Kind]struct {
	answer func(*call, nvabi.RMClass, message) seccomp.Answer
	why    string
}{
	nvabi.KindRoot:          {(*call).allocRoot, "the client becomes the tenant's"},
	nvabi.KindDevice:        {(*call).allocDevice, "the tenant's cards only"},
	nvabi.KindSubdevice:     {(*call).allocObject, "of a device of the tenant's"},
	nvabi.KindVideoMemory:   {(*call).allocVideoMemory, "charged"},
	nvabi.KindSystemMemory:  {(*call).allocHostMemory, "memory of the host"},
	nvabi.KindVirtualMemory: {(*call).allocObject, "addresses only"},
	nvabi.KindAddressSpace:  {(*call).allocObject, "addresses only"},
	nvabi.KindGroup:         {(*call).allocGroup, "runs in the tenant's time slice"},
	nvabi.KindChannel:       {(*call).allocChannel, "of a group of the tenant's"},
	nvabi.KindContextShare:  {(*call).allocObject, "of a group of the tenant's"},
	nvabi.KindEngine:        {(*call).allocObject, "on a channel of the tenant's"},
	nvabi.KindUsermode:      {(*call).allocObject, "the doorbell, without which nothing runs"},
	nvabi.KindEvent:         {(*call).allocEvent, "the descriptor is translated"},
}

// classRules are dispositions of single classes, before those of their kind.
var classRules = map[uint32]struct {
	answer func(*call, nvabi.RMClass, message) seccomp.Answer
	why    string
}{
	nvgpu.GT200_DEBUGGER:          {(*call).allocDebugger, "libcuda makes one for its own channels"},
	nvgpu.NV_CONFIDENTIAL_COMPUTE: {(*call).allocObject, "libcuda asks it whether the mode is on"},
	nvgpu.NV04_DISPLAY_COMMON:     {(*call).allocObject, "NVML counts displays"},
	nvgpu.NV20_SUBDEVICE_DIAG:     {(*call).allocObject, "NVML makes one; its controls are refused"},
	nvgpu.GF100_SUBDEVICE_MASTER:  {(*call).allocObject, "NVML makes one"},
	nvgpu.GF100_SUBDEVICE_INFOROM: {(*call).allocObject, "NVML makes one"},
	nvgpu.NV2081_BINAPI:           {(*call).allocObject, "libcuda makes one since 550; its controls are refused"},
	nvgpu.NV50_P2P:                {(*call).allocObject, "between subdevices of the tenant's"},

	nvgpu.NV01_EVENT:                       {refuseClass, "the driver would take the class from the parameters"},
	nvgpu.NV01_MEMORY_LOCAL_PRIVILEGED:     {refuseClass, "registers"},
	nvgpu.NV01_MEMORY_SYSTEM_OS_DESCRIPTOR: {refuseClass, "pins memory of the mediator"},
	nvgpu.NV_SEMAPHORE_SURFACE:             {refuseClass, "graphics only"},
	nvgpu.MPS_COMPUTE:                      {refuseClass, "would merge clients into one"},
	nvgpu.RM_USER_SHARED_DATA:              {refuseClass, "tells of the whole card's memory and load"},
}

func refuseClass(c *call, _ nvabi.RMClass, _ message) seccomp.Answer {
	return c.refuse(statusInvalidClass)
}

// alloc answers NV_ESC_RM_ALLOC, in both its forms.
func (c *call) alloc() seccomp.Answer {
	id := c.arg.u32(allocClass)
	class, known := c.m.abi.Classes[id]
	if !known {
		c.name = fmt.Sprintf("class %#x", id)
		return c.refuse(statusInvalidClass)
	}
	c.name = class.Name
	rule, ok := classRules[id]
	if !ok {
		rule, ok = kindRules[class.Kind]
	}
	if !ok || class.Privilege != nvabi.Anyone {
		return c.refuse(statusInvalidClass)
	}
	if class.Kind != nvabi.KindRoot && !c.m.ledger.hasClient(c.arg.u32(0)) {
		return c.refuse(statusInvalidClient)
	}
	// Flags would have the driver read the parameters in a serialized form, and a mask
	// of rights is one more pointer. Neither is used by any known program.
	if len(c.arg) >= sizeNVOS64 && (c.arg.u32(allocFlags) != 0 || c.arg.u64(allocRights) != 0) {
		return c.refuse(statusInvalidArgument)
	}
	if c.m.ledger.full() {
		return c.refuse(statusNoResources)
	}
	params, errno := c.allocParams(class)
	if errno != 0 {
		return fail(errno)
	}
	return rule.answer(c, class, params)
}

// allocParams copies the parameters. Their size follows from the class: the driver
// does not look at the one in the argument. None are nil.
func (c *call) allocParams(class nvabi.RMClass) (message, unix.Errno) {
	addr := c.arg.u64(allocParams)
	if addr == 0 {
		return nil, 0
	}
	if class.Size == 0 {
		// The driver reads none; make sure that it cannot.
		return nil, c.point(c.arg, allocParams, nil)
	}
	params, errno := c.read(addr, int(class.Size))
	if errno != 0 {
		return nil, errno
	}
	return params, c.point(c.arg, allocParams, params)
}

// allocRoot makes an RM client.
func (c *call) allocRoot(class nvabi.RMClass, _ message) seccomp.Answer {
	pid, err := c.n.Process()
	if err != nil {
		return fail(unix.ESRCH)
	}
	if err := c.m.tenants.admit(pid); err != nil {
		return c.refuse(statusNoResources)
	}
	errno := c.execute()
	if c.ok(errno) {
		c.m.ledger.addClient(c.arg.u32(allocHandle), pid)
		c.m.ledger.setFile(c.arg.u32(allocHandle), int32(c.n.Arg(0)))
		c.m.recorded(pid)
	}
	return c.finish(errno)
}

// allocDevice makes a device object of one of the tenant's cards.
func (c *call) allocDevice(class nvabi.RMClass, params message) seccomp.Answer {
	instance := uint32(0) // without parameters
	if params != nil {
		instance = params.u32(deviceInstance)
		for _, off := range []int{deviceClientShare, deviceTargetClient} {
			if h := params.u32(off); h != 0 && !c.m.ledger.hasClient(h) {
				return c.refuse(statusInvalidClient)
			}
		}
	}
	card, ok := c.m.cardByInstance(instance)
	if !ok {
		return c.refuse(statusInvalidArgument)
	}
	return c.allocOn(class, card)
}

// allocObject makes an object that belongs to the card of its parent, if that has one.
func (c *call) allocObject(class nvabi.RMClass, _ message) seccomp.Answer {
	card, ok := c.m.ledger.cardOf(c.arg.u32(0), c.arg.u32(allocParent))
	if !ok {
		card = noCard
	}
	return c.allocOn(class, card)
}

func (c *call) allocOn(class nvabi.RMClass, card int) seccomp.Answer {
	errno := c.execute()
	if c.ok(errno) {
		c.m.ledger.add(c.created(class, card))
	}
	return c.finish(errno)
}

// created describes the object that an executed NV_ESC_RM_ALLOC made.
func (c *call) created(class nvabi.RMClass, card int) newObject {
	return newObject{
		client: c.arg.u32(0), parent: c.arg.u32(allocParent), handle: c.arg.u32(allocHandle),
		class: class.ID, kind: class.Kind, card: card,
	}
}

// allocHostMemory takes memory of the host. Only NV01_MEMORY_SYSTEM is known to be that.
func (c *call) allocHostMemory(class nvabi.RMClass, params message) seccomp.Answer {
	if class.ID != nvgpu.NV01_MEMORY_SYSTEM {
		return c.refuse(statusInvalidClass)
	}
	return c.allocObject(class, params)
}

// allocVideoMemory takes memory of a card. Of the classes of that kind only
// NV01_MEMORY_LOCAL_USER is known to be charged rightly.
func (c *call) allocVideoMemory(class nvabi.RMClass, params message) seccomp.Answer {
	if class.ID != nvgpu.NV01_MEMORY_LOCAL_USER || params == nil {
		return c.refuse(statusInvalidClass)
	}
	card, ok := c.m.ledger.cardOf(c.arg.u32(0), c.arg.u32(allocParent))
	if !ok {
		return c.refuse(statusNotFound)
	}
	return c.takeMemory(card, params.u64(memorySize), func() (newObject, uint64) {
		return c.created(class, card), params.u64(memorySize)
	})
}

// allocEvent binds an event to a descriptor.
func (c *call) allocEvent(class nvabi.RMClass, params message) seccomp.Answer {
	if class.ID != nvgpu.NV01_EVENT_OS_EVENT || class.FD == nvabi.None || params == nil {
		return c.refuse(statusInvalidClass)
	}
	if h := params.u32(eventClient); h != 0 && !c.m.ledger.hasClient(h) {
		return c.refuse(statusInvalidClient)
	}
	if k := params.u32(eventClass); k != 0 && k != nvgpu.NV01_EVENT_OS_EVENT {
		return c.refuse(statusInvalidClass)
	}
	if _, _, _, errno := c.translate(params, class.FD, true); errno != 0 {
		return c.refuse(statusInvalidArgument)
	}
	return c.allocObject(class, params)
}

// allocDebugger makes a debugger of the tenant's own channels.
func (c *call) allocDebugger(class nvabi.RMClass, params message) seccomp.Answer {
	if params == nil {
		return c.refuse(statusInvalidArgument)
	}
	for _, off := range []int{debuggerClient, debuggerAppClient} {
		if h := params.u32(off); h != 0 && !c.m.ledger.hasClient(h) {
			return c.refuse(statusInvalidClient)
		}
	}
	return c.allocObject(class, params)
}
