package simgpu

import (
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/nvgpu"

	"github.com/qgpu-project/qgpu/internal/nvabi"
)

// allocation is an RM_ALLOC of an object that is already in its tree. Its
// constructor gives it a body, or a status with which it is taken out again.
type allocation struct {
	d      *Driver
	pid    int
	object *object
	params []byte // the class's parameters; empty when the class takes none
	// files are what the parameters' descriptors stand for.
	file *FileID
}

// constructor makes the body of an object. The driver's lock is held.
type constructor func(*allocation) status

// constructors lists how the kinds of class come to be. What is not listed needs
// nothing but its place in the tree.
func constructors() map[nvabi.Kind]constructor {
	return map[nvabi.Kind]constructor{
		nvabi.KindDevice:        (*allocation).device,
		nvabi.KindSubdevice:     (*allocation).subdevice,
		nvabi.KindVideoMemory:   (*allocation).videoMemory,
		nvabi.KindSystemMemory:  (*allocation).systemMemory,
		nvabi.KindVirtualMemory: (*allocation).virtualMemory,
		nvabi.KindAddressSpace:  (*allocation).addressSpace,
		nvabi.KindGroup:         (*allocation).group,
		nvabi.KindChannel:       (*allocation).channel,
		nvabi.KindContextShare:  (*allocation).contextShare,
		nvabi.KindEngine:        (*allocation).engineObject,
		nvabi.KindUsermode:      (*allocation).usermode,
		nvabi.KindEvent:         (*allocation).event,
		nvabi.KindPinnedMemory:  (*allocation).refuse,
		nvabi.KindFabric:        (*allocation).refuse,
		nvabi.KindPeer:          (*allocation).peer,
	}
}

// refuse is for classes that the cards lack: there is no NVLink fabric, and pages
// are pinned by RM_ALLOC_MEMORY alone.
func (*allocation) refuse() status { return errInvalidClass }

// allocArgs is what RM_ALLOC's two argument structures have in common.
type allocArgs struct {
	root, parent, handle, class uint32
	params                      uint64
	flags                       uint32
	answer                      func(root, handle uint32, s status)
}

func (c *frontendCall) allocArgs() allocArgs {
	if p, is64 := view[nvgpu.NVOS64_PARAMETERS](c.arg); is64 {
		return allocArgs{
			p.HRoot.Val, p.HObjectParent.Val, p.HObjectNew.Val, uint32(p.HClass),
			uint64(p.PAllocParms), p.Flags,
			func(root, handle uint32, s status) {
				p.HRoot.Val, p.HObjectNew.Val, p.Status = root, handle, uint32(s)
			},
		}
	}
	p, _ := view[nvgpu.NVOS21_PARAMETERS](c.arg)
	return allocArgs{
		p.HRoot.Val, p.HObjectParent.Val, p.HObjectNew.Val, uint32(p.HClass),
		uint64(p.PAllocParms), 0,
		func(root, handle uint32, s status) {
			p.HRoot.Val, p.HObjectNew.Val, p.Status = root, handle, uint32(s)
		},
	}
}

// rmAlloc is NV_ESC_RM_ALLOC. The size of the parameters comes from the class,
// never from the caller.
func (c *frontendCall) rmAlloc() error {
	a := c.allocArgs()
	class, known := c.d.abi.Classes[a.class]
	if !known {
		c.d.reportUnknown("class", a.class)
		a.answer(a.root, a.handle, errInvalidClass)
		return nil
	}
	if a.flags != 0 {
		a.answer(a.root, a.handle, errInvalidArgument)
		return nil
	}
	if c.file.node.Kind != NodeControl && class.Kind != nvabi.KindEvent {
		return unix.EINVAL
	}
	var params []byte
	if a.params != 0 && class.Size > 0 {
		params = newBytes(int(class.Size))
		if err := c.caller.ReadMemory(params, a.params); err != nil {
			a.answer(a.root, a.handle, errInvalidAddress)
			return nil
		}
	}
	file := c.eventFile(class, params)
	root, handle, s := c.alloc(a, class, params, file)
	c.d.trace("alloc", class.Name, a.class, s, "parent", hexNumber(a.parent), "handle", hexNumber(handle))
	a.answer(root, handle, s)
	if s == ok && len(params) > 0 {
		if err := c.caller.WriteMemory(params, a.params); err != nil {
			return unix.EFAULT
		}
	}
	return nil
}

// eventFile is the file that an event's parameters name, or nil.
func (c *frontendCall) eventFile(class nvabi.RMClass, params []byte) *FileID {
	p, enough := view[nvgpu.NV0005_ALLOC_PARAMETERS](params)
	if class.Kind != nvabi.KindEvent || !enough {
		return nil
	}
	if id, found := c.fileOf(int32(p.Data)); found {
		return &id
	}
	return nil
}

func (c *frontendCall) alloc(a allocArgs, class nvabi.RMClass, params []byte, file *FileID) (root, handle uint32, s status) {
	d := c.d
	d.lock()
	defer d.mu.Unlock()
	if class.Kind == nvabi.KindRoot {
		client, s := d.newClient(c.file.owner(), c.pid, a.handle, class)
		if s != ok {
			return a.root, a.handle, s
		}
		return client.handle, client.handle, ok
	}
	client, s := d.clientOn(c.file, a.root)
	if s != ok {
		return a.root, a.handle, s
	}
	if !may(c.caller, class.Privilege) {
		return a.root, a.handle, errInsufficientPermissions
	}
	if class.Kind == nvabi.KindEvent {
		a.parent = eventParent(params, a.root, a.parent)
	}
	parent := client.objects[a.parent]
	if parent == nil {
		return a.root, a.handle, errInvalidObjectParent
	}
	if parent.card.isLost() {
		return a.root, a.handle, errGPUIsLost
	}
	o, s := client.newObject(parent, a.handle, class)
	if s != ok {
		return a.root, a.handle, s
	}
	if construct := d.classes[class.Kind]; construct != nil {
		if s := construct(&allocation{d: d, pid: c.pid, object: o, params: params, file: file}); s != ok {
			d.freeObject(o)
			return a.root, a.handle, s
		}
	}
	return a.root, o.handle, ok
}

// rmFree is NV_ESC_RM_FREE; freeing what does not exist succeeds.
func (c *frontendCall) rmFree() error {
	p, _ := view[nvgpu.NVOS00_PARAMETERS](c.arg)
	c.d.lock()
	defer c.d.mu.Unlock()
	client, s := c.d.clientOn(c.file, p.HRoot.Val)
	p.Status = uint32(s)
	if s != ok {
		return nil
	}
	switch o := client.objects[p.HObjectOld.Val]; o {
	case nil:
	case client.root:
		c.d.freeClient(client)
	default:
		c.d.freeObject(o)
	}
	return nil
}

// device ties the object to a card that the process has open
// (osIsGpuAccessible in the real module).
func (a *allocation) device() status {
	if a.object.parent.kind != nvabi.KindRoot {
		return errInvalidObjectParent
	}
	instance := uint32(0)
	if p, given := view[nvgpu.NV0080_ALLOC_PARAMETERS](a.params); given {
		instance = p.DeviceID
	}
	if instance >= uint32(len(a.d.cards)) {
		return errInvalidDevice
	}
	card := a.d.cards[instance]
	if !a.d.cardOpenIn(a.pid, card) {
		return errInsufficientPermissions
	}
	if card.isLost() {
		return errGPUIsLost
	}
	a.object.card = card
	return ok
}

func (a *allocation) subdevice() status {
	if a.object.parent.kind != nvabi.KindDevice {
		return errInvalidObjectParent
	}
	if p, given := view[nvgpu.NV2080_ALLOC_PARAMETERS](a.params); given && p.SubDeviceID != 0 {
		return errInvalidArgument
	}
	return ok
}

// peer is for objects that join two cards, which here reach each other through
// the host only.
func (*allocation) peer() status { return errNotSupported }
