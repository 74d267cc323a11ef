package simgpu

import (
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/nvgpu"

	"github.com/qgpu-project/qgpu/internal/simgpu/gpumem"
)

// uvmSpace is what UVM_INITIALIZE makes of a UVM file: one address space that
// processes share with the cards they register.
type uvmSpace struct {
	flags  uint64
	pid    int // whose memory it is bound to
	cards  map[*card]*uvmCard
	ranges map[uint64]uint64 // external ranges and semaphore pools: base to length
	groups map[uint64]bool   // range groups
	nextID uint64
}

// uvmCard is a card registered with a UVM address space.
type uvmCard struct {
	space *gpumem.Space
	as    *addressSpace // the RM address space that stands for it, or nil
}

// detachUVM ends the tie of an RM address space to UVM.
func (as *addressSpace) detachUVM() {
	if as.uvm == nil {
		return
	}
	for _, uc := range as.uvm.cards {
		if uc.as == as {
			uc.as = nil
		}
	}
	as.uvm = nil
}

// maxRanges bounds the ranges of one UVM address space.
const maxRanges = 1 << 16

// multiProcess in the flags of UVM_INITIALIZE leaves the address space unbound to
// a process (UVM_INIT_FLAGS_MULTI_PROCESS_SHARING_MODE).
const multiProcess = nvgpu.UVM_INIT_FLAGS_MULTI_PROCESS_SHARING_MODE

// uvmCall is one ioctl on a UVM file.
type uvmCall struct {
	d     *Driver
	pid   int
	file  *file
	space *uvmSpace // nil only in calls that do not need one
	arg   []byte
	rm    *FileID // behind the descriptor in the argument, if it has one
}

// uvmHandler answers a UVM command. The driver's lock is held.
type uvmHandler struct {
	call func(*uvmCall) status
	// unbound commands need no address space.
	unbound bool
}

// Commands of a UVM file.
const (
	uvmInitialize   = 0x30000001
	uvmDeinitialize = 0x30000002
)

func uvmHandlers() map[uint32]uvmHandler {
	bound := func(f func(*uvmCall) status) uvmHandler { return uvmHandler{call: f} }
	nothing := bound(func(*uvmCall) status { return ok })
	return map[uint32]uvmHandler{
		uvmInitialize:                            {call: (*uvmCall).initialize, unbound: true},
		uvmDeinitialize:                          {call: func(*uvmCall) status { return ok }, unbound: true},
		nvgpu.UVM_MM_INITIALIZE:                  {call: (*uvmCall).mmInitialize, unbound: true},
		nvgpu.UVM_CREATE_RANGE_GROUP:             bound(onUVM((*uvmCall).createRangeGroup)),
		nvgpu.UVM_DESTROY_RANGE_GROUP:            bound(onUVM((*uvmCall).destroyRangeGroup)),
		nvgpu.UVM_REGISTER_GPU:                   bound(onUVM((*uvmCall).registerGPU)),
		nvgpu.UVM_UNREGISTER_GPU:                 bound(onUVM((*uvmCall).unregisterGPU)),
		nvgpu.UVM_REGISTER_GPU_VASPACE:           bound(onUVM((*uvmCall).registerVASpace)),
		nvgpu.UVM_UNREGISTER_GPU_VASPACE:         bound(onUVM((*uvmCall).unregisterVASpace)),
		nvgpu.UVM_REGISTER_CHANNEL:               bound(onUVM((*uvmCall).registerChannel)),
		nvgpu.UVM_UNREGISTER_CHANNEL:             nothing,
		nvgpu.UVM_ENABLE_PEER_ACCESS:             bound(func(*uvmCall) status { return errNotSupported }),
		nvgpu.UVM_DISABLE_PEER_ACCESS:            nothing,
		nvgpu.UVM_SET_RANGE_GROUP:                nothing,
		nvgpu.UVM_MAP_EXTERNAL_ALLOCATION:        bound((*uvmCall).mapExternal),
		nvgpu.UVM_UNMAP_EXTERNAL:                 bound(onUVM((*uvmCall).unmapExternal)),
		nvgpu.UVM_FREE:                           bound(onUVM((*uvmCall).free)),
		nvgpu.UVM_CREATE_EXTERNAL_RANGE:          bound(onUVM((*uvmCall).createExternalRange)),
		nvgpu.UVM_ALLOC_SEMAPHORE_POOL:           bound((*uvmCall).semaphorePool),
		nvgpu.UVM_VALIDATE_VA_RANGE:              nothing,
		nvgpu.UVM_PAGEABLE_MEM_ACCESS:            bound((*uvmCall).pageableAccess),
		nvgpu.UVM_PAGEABLE_MEM_ACCESS_ON_GPU:     bound((*uvmCall).pageableAccessOnGPU),
		nvgpu.UVM_SET_PREFERRED_LOCATION:         nothing,
		nvgpu.UVM_UNSET_PREFERRED_LOCATION:       nothing,
		nvgpu.UVM_ENABLE_READ_DUPLICATION:        nothing,
		nvgpu.UVM_DISABLE_READ_DUPLICATION:       nothing,
		nvgpu.UVM_SET_ACCESSED_BY:                nothing,
		nvgpu.UVM_UNSET_ACCESSED_BY:              nothing,
		nvgpu.UVM_MIGRATE:                        nothing,
		nvgpu.UVM_MIGRATE_RANGE_GROUP:            nothing,
		nvgpu.UVM_MAP_DYNAMIC_PARALLELISM_REGION: bound(onUVM((*uvmCall).dynamicParallelism)),
		uvmMapExternalSparse:                     nothing,
		uvmPreventMigration:                      nothing,
		uvmAllowMigration:                        nothing,
		uvmEnableSystemWideAtomics:               nothing,
		uvmDisableSystemWideAtomics:              nothing,
		uvmCleanUpZombies:                        {call: func(*uvmCall) status { return ok }, unbound: true},
	}
}

// Commands that package nvgpu does not have (uvm_ioctl.h).
const (
	uvmPreventMigration         = 40
	uvmAllowMigration           = 41
	uvmEnableSystemWideAtomics  = 54
	uvmDisableSystemWideAtomics = 55
	uvmCleanUpZombies           = 69
	uvmMapExternalSparse        = 74
)

// onUVM adapts a function of the argument as structure T.
func onUVM[T any](f func(*uvmCall, *T) status) func(*uvmCall) status {
	return func(c *uvmCall) status {
		p, enough := view[T](c.arg)
		if !enough {
			return errInvalidArgument
		}
		return f(c, p)
	}
}

// uvmIoctl answers an ioctl on a UVM file.
func (d *Driver) uvmIoctl(c Caller, pid int, f *file, cmd uint32, arg uint64) error {
	abi, known := d.abi.UVM[cmd]
	h, handled := d.uvmCalls[cmd]
	if !known || !handled || f.node.Kind != NodeUVM {
		d.reportUnknown("UVM command", cmd, "name", abi.Name)
		return unix.EINVAL
	}
	call := &uvmCall{d: d, pid: pid, file: f, arg: newBytes(int(abi.Size))}
	if len(call.arg) > 0 {
		if err := c.ReadMemory(call.arg, arg); err != nil {
			return unix.EFAULT
		}
	}
	if abi.FD >= 0 && abi.FD+4 <= len(call.arg) {
		fd, _ := view[int32](call.arg[abi.FD:])
		if *fd >= 0 {
			if id, err := c.FileOf(*fd); err == nil {
				call.rm = &id
			}
		}
	}
	s := d.runUVM(call, h)
	d.trace("uvm", abi.Name, cmd, s)
	if abi.Status >= 0 && abi.Status+4 <= len(call.arg) {
		putUint32(call.arg[abi.Status:], uint32(s))
	}
	if len(call.arg) > 0 {
		if err := c.WriteMemory(call.arg, arg); err != nil {
			return unix.EFAULT
		}
	}
	return nil
}

func (d *Driver) runUVM(call *uvmCall, h uvmHandler) status {
	d.lock()
	defer d.mu.Unlock()
	call.space = call.file.uvm
	switch {
	case h.unbound:
	case call.space == nil:
		return errIllegalAction
	case call.space.flags&multiProcess == 0 && call.space.pid != call.pid:
		return errInvalidArgument
	}
	return h.call(call)
}

// initialize binds the file to an address space; again only with the same flags.
func (c *uvmCall) initialize() status {
	p, _ := view[nvgpu.UVM_INITIALIZE_PARAMS](c.arg)
	if s := c.file.uvm; s != nil {
		if s.flags != p.Flags {
			return errInvalidArgument
		}
		return ok
	}
	c.file.uvm = &uvmSpace{
		flags: p.Flags, pid: c.pid,
		cards: map[*card]*uvmCard{}, ranges: map[uint64]uint64{}, groups: map[uint64]bool{},
	}
	return ok
}

// mmInitialize ties a second UVM file to the memory of the process of the first.
// A space that is not bound to a process has nothing to tie.
func (c *uvmCall) mmInitialize() status {
	if c.file.uvm != nil || c.rm == nil {
		return errInvalidArgument
	}
	first := c.d.files[*c.rm]
	if first == nil || first.uvm == nil {
		return errInvalidArgument
	}
	if first.uvm.flags&multiProcess != 0 {
		return warnNothingToDo
	}
	return ok
}

// closeUVM ends the address space of a UVM file.
func (d *Driver) closeUVM(f *file) {
	if f.uvm == nil {
		return
	}
	for _, uc := range f.uvm.cards {
		if uc.as != nil {
			uc.as.stop() // before what they work on is gone
			uc.as.uvm = nil
		}
		uc.space.SetManaged(nil)
		uc.space.Clear()
	}
	f.uvm = nil
}

// card is a registered card by its UUID.
func (c *uvmCall) card(uuid [16]byte) (*uvmCard, status) {
	card := c.d.cardByUUID(uuid)
	if card == nil {
		return nil, errGPUUUIDNotFound
	}
	uc := c.space.cards[card]
	if uc == nil {
		return nil, errInvalidDevice
	}
	return uc, ok
}

func (c *uvmCall) pageableAccess() status {
	p, _ := view[nvgpu.UVM_PAGEABLE_MEM_ACCESS_PARAMS](c.arg)
	p.PageableMemAccess = 0 // no HMM, no ATS
	return ok
}

func (c *uvmCall) pageableAccessOnGPU() status {
	p, _ := view[nvgpu.UVM_PAGEABLE_MEM_ACCESS_ON_GPU_PARAMS](c.arg)
	p.PageableMemAccess = 0
	return ok
}

func (c *uvmCall) createRangeGroup(p *nvgpu.UVM_CREATE_RANGE_GROUP_PARAMS) status {
	if len(c.space.groups) >= maxRanges {
		return errNoMemory
	}
	c.space.nextID++
	c.space.groups[c.space.nextID] = true
	p.RangeGroupID = c.space.nextID
	return ok
}

func (c *uvmCall) destroyRangeGroup(p *nvgpu.UVM_DESTROY_RANGE_GROUP_PARAMS) status {
	if !c.space.groups[p.RangeGroupID] {
		return errObjectNotFound
	}
	delete(c.space.groups, p.RangeGroupID)
	return ok
}
