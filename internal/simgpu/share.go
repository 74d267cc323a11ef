package simgpu

import (
	"gvisor.dev/gvisor/pkg/abi/nvgpu"

	"github.com/qgpu-project/qgpu/internal/nvabi"
)

// Share types (RS_SHARE_TYPE_*).
const (
	shareTypeNone     = 0
	shareTypeAll      = 1
	shareTypeToken    = 2 // OS_SECURITY_TOKEN: the same user
	shareTypeClient   = 3
	shareTypePID      = 4
	shareActionRevoke = 1
)

// sharePolicy is RS_SHARE_POLICY (rs_access.h).
type sharePolicy struct {
	Target uint32
	Access uint32
	Type   uint16
	Action uint8
	_      uint8
}

// widen adds a policy to what an object, or all new objects of a client, allow.
func (s *sharing) widen(p sharePolicy) status {
	revoke := p.Action&shareActionRevoke != 0
	switch p.Type {
	case shareTypeNone, shareTypePID:
		return ok
	case shareTypeAll, shareTypeToken, shareTypeClient:
		*s = shareAll
		if revoke {
			*s = shareProcess
		}
		return ok
	}
	return errInvalidArgument
}

// rmShare is NV_ESC_RM_SHARE.
func (c *frontendCall) rmShare() error {
	p, _ := view[nvgpu.NVOS57_PARAMETERS](c.arg)
	policy, _ := view[sharePolicy](c.arg[8:])
	c.d.lock()
	defer c.d.mu.Unlock()
	client, s := c.d.clientOn(c.file, p.HClient.Val)
	if s == ok {
		if o := client.objects[p.HObject.Val]; o != nil {
			s = o.sharing.widen(*policy)
		} else {
			s = errInvalidObjectHandle
		}
	}
	p.Status = uint32(s)
	return nil
}

// rmDupObject is NV_ESC_RM_DUP_OBJECT: another handle, perhaps of another client,
// for the same memory. The source client need not be the caller's: what allows it
// is the object's share policy.
func (c *frontendCall) rmDupObject() error {
	p, _ := view[nvgpu.NVOS55_PARAMETERS](c.arg)
	c.d.lock()
	defer c.d.mu.Unlock()
	o, s := c.dup(p)
	if s == ok {
		p.HObject.Val = o.handle
	}
	p.Status = uint32(s)
	return nil
}

func (c *frontendCall) dup(p *nvgpu.NVOS55_PARAMETERS) (*object, status) {
	client, s := c.d.clientOn(c.file, p.HClient.Val)
	if s != ok {
		return nil, s
	}
	parent := client.objects[p.HParent.Val]
	if parent == nil {
		return nil, errInvalidObjectParent
	}
	from := c.d.clients[p.HClientSrc.Val]
	if from == nil {
		return nil, errInvalidClient
	}
	src := from.objects[p.HObjectSrc.Val]
	if src == nil {
		return nil, errInvalidObjectHandle
	}
	if from != client && !src.mayBeDuplicatedBy(c.pid) {
		return nil, errInsufficientPermissions
	}
	return dupMemory(client, parent, p.HObject.Val, src)
}

func (o *object) mayBeDuplicatedBy(pid int) bool {
	return o.sharing == shareAll || o.client.pid == pid
}

// dupMemory makes a new object of the source's memory.
func dupMemory(client *client, parent *object, handle uint32, src *object) (*object, status) {
	m, is := src.body.(*memory)
	if !is {
		return nil, errNotSupported
	}
	return newReference(client, parent, handle, src.class, src.kind, src.card, m)
}

func newReference(client *client, parent *object, handle, class uint32, kind nvabi.Kind, card *card, m *memory) (*object, status) {
	if parent.card != nil && card != nil && parent.card != card {
		return nil, errInvalidDevice
	}
	o, s := client.newObject(parent, handle, nvabi.RMClass{ID: class, Kind: kind})
	if s != ok {
		return nil, s
	}
	o.card = card
	m.refs++
	o.hold(m)
	return o, ok
}

// exported is memory that a control file stands for, so that whoever holds the
// file can import it (NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECT_TO_FD).
type exported struct {
	memory *memory
	class  uint32
	kind   nvabi.Kind
	card   *card
}

// export makes the file stand for the object's memory.
func (d *Driver) export(id FileID, o *object) status {
	f := d.files[id]
	if f == nil || f.node.Kind != NodeControl || f.event != nil || f.mapped {
		return errInvalidArgument
	}
	if d.shared[id] != nil {
		return errInUse
	}
	m, is := o.body.(*memory)
	if !is {
		return errNotSupported
	}
	m.refs++
	d.shared[id] = &exported{memory: m, class: o.class, kind: o.kind, card: o.card}
	return ok
}

// dropExport ends what a file stands for.
func (d *Driver) dropExport(id FileID) {
	if e := d.shared[id]; e != nil {
		delete(d.shared, id)
		e.memory.drop()
	}
}
