package simgpu

import (
	"slices"

	"github.com/qgpu-project/qgpu/internal/nvabi"
)

// pciVendor is NVIDIA.
const pciVendor = 0x10de

// systemControls are of a client and about the machine and its cards
// (ctrl0000system.h, ctrl0000gpu.h).
func systemControls() map[uint32]control {
	return map[uint32]control{
		0x00000101: (*controlCall).buildVersion,
		0x00000127: answer((*controlCall).p2pCaps),
		0x0000012b: zeros,       // SYSTEM_GET_P2P_CAPS_V2: none
		0x00000136: constant(1), // SYSTEM_GET_FABRIC_STATUS: skip
		0x000001f0: zeros,       // SYSTEM_GET_FEATURES
		0x00000201: (*controlCall).attachedIDs,
		0x00000202: answer((*controlCall).idInfo),
		0x00000204: answer((*controlCall).deviceIDs),
		0x00000205: answer((*controlCall).idInfoV2),
		0x00000214: (*controlCall).probedIDs,
		0x00000215: accept, // GPU_ATTACH_IDS: all cards are always attached
		0x00000216: accept, // GPU_DETACH_IDS
		0x0000021b: answer((*controlCall).gpuPCIInfo),
		0x00000274: answer((*controlCall).uuidInfo),
		0x00000275: answer((*controlCall).uuidOfGPU),
		0x00000279: answer((*controlCall).drainState),
		0x0000027b: zeros,  // GPU_GET_MEMOP_ENABLE: stream memory operations as by default
		0x00000289: accept, // GPU_ASYNC_ATTACH_ID
		0x00000290: accept, // GPU_WAIT_ATTACH_ID
		0x00000a04: zeros,  // SYNC_GPU_BOOST_GROUP_INFO: no groups
		0x00000b02: answer((*controlCall).accountingState),
		0xcb330101: zeros, // CONF_COMPUTE SYSTEM_GET_CAPABILITIES: none
	}
}

// buildVersion answers with three strings.
func (c *controlCall) buildVersion() status {
	type params struct {
		Size, _                uint32
		Version, Title, Branch uint64
		Changelist, Official   uint32
	}
	p, _ := view[params](c.params)
	const length = 64
	if p.Version == 0 && p.Title == 0 && p.Branch == 0 {
		p.Size = length
		return ok
	}
	for i, s := range []string{
		c.d.abi.Version.String(),
		"r535_00",
		"NVIDIA UNIX x86_64 Kernel Module  " + c.d.abi.Version.String(),
	} {
		if i < len(c.buffers) && c.buffers[i] != nil {
			putString(c.buffers[i], s)
		}
	}
	return ok
}

// noGPU ends lists of GPU ids (NV0000_CTRL_GPU_INVALID_ID).
const noGPU = ^uint32(0)

// listIDs puts the ids of all cards into a list.
func (c *controlCall) listIDs(b []byte) {
	ids, _ := viewList[uint32](b, len(b)/4)
	for i := range ids {
		ids[i] = noGPU
		if i < len(c.d.cards) {
			ids[i] = c.d.cards[i].gpuID
		}
	}
}

func (c *controlCall) attachedIDs() status {
	c.listIDs(c.params)
	return ok
}

func (c *controlCall) probedIDs() status {
	const most = 32 * 4
	if len(c.params) < most {
		return errInvalidParamStruct
	}
	c.listIDs(c.params[:most])
	for i := most; i < len(c.params); i++ {
		c.params[i] = 0xff // no card is excluded
	}
	return ok
}

// gpuFlagInUse is NV0000_CTRL_GPU_ID_INFO_IN_USE.
const gpuFlagInUse = 1

type idInfoV2 struct {
	GPU, Flags, Device, Subdevice, SLI, Board, Instance uint32
	NUMA                                                int32
}

func (c *controlCall) idInfoV2(p *idInfoV2) status {
	card := c.d.cardByGPU(p.GPU)
	if card == nil {
		return errInvalidArgument
	}
	*p = idInfoV2{
		GPU: p.GPU, Flags: gpuFlagInUse, Device: uint32(card.minor),
		Board: card.gpuID, Instance: uint32(card.minor), NUMA: -1,
	}
	return ok
}

type idInfo struct {
	GPU, Flags, Device, Subdevice uint32
	Name                          uint64
	SLI, Board, Instance          uint32
	NUMA                          int32
}

func (c *controlCall) idInfo(p *idInfo) status {
	v2 := idInfoV2{GPU: p.GPU}
	if s := c.idInfoV2(&v2); s != ok {
		return s
	}
	p.Flags, p.Device, p.Subdevice = v2.Flags, v2.Device, v2.Subdevice
	p.SLI, p.Board, p.Instance, p.NUMA = v2.SLI, v2.Board, v2.Instance, v2.NUMA
	return ok
}

func (c *controlCall) deviceIDs(mask *uint32) status {
	*mask = 1<<len(c.d.cards) - 1
	return ok
}

type gpuPCIInfo struct {
	GPU, Domain uint32
	Bus, Slot   uint16
}

func (c *controlCall) gpuPCIInfo(p *gpuPCIInfo) status {
	card := c.d.cardByGPU(p.GPU)
	if card == nil {
		return errInvalidArgument
	}
	p.Domain, p.Bus, p.Slot = 0, uint16(card.bus), 0
	return ok
}

// uuidBinary in the flags asks for the 16 bytes of a UUID, not for its text
// (NV2080_GPU_CMD_GPU_GET_GID_FLAGS_FORMAT_BINARY).
const uuidBinary = 2

type uuidInfo struct {
	UUID                          [256]byte
	Flags, GPU, Device, Subdevice uint32
}

func (c *controlCall) uuidInfo(p *uuidInfo) status {
	for _, card := range c.d.cards {
		if p.Flags&uuidBinary != 0 && slices.Equal(p.UUID[:16], card.uuid[:]) ||
			p.Flags&uuidBinary == 0 && cString(p.UUID[:]) == card.uuidString() {
			p.GPU, p.Device, p.Subdevice = card.gpuID, uint32(card.minor), 0
			return ok
		}
	}
	return errGPUUUIDNotFound
}

type uuidOfGPU struct {
	GPU, Flags uint32
	UUID       [256]byte
	Length     uint32
}

func (c *controlCall) uuidOfGPU(p *uuidOfGPU) status {
	card := c.d.cardByGPU(p.GPU)
	if card == nil {
		return errInvalidArgument
	}
	p.Length = card.putUUID(p.UUID[:], p.Flags)
	return ok
}

// putUUID stores the UUID in the form that flags ask for, and returns its length.
func (c *card) putUUID(b []byte, flags uint32) uint32 {
	if flags&uuidBinary != 0 {
		return uint32(copy(b, c.uuid[:]))
	}
	putString(b, c.uuidString())
	return uint32(len(c.uuidString()) + 1)
}

type drainState struct{ GPU, State, Flags uint32 }

func (c *controlCall) drainState(p *drainState) status {
	p.State, p.Flags = 0, 0
	return ok
}

type accountingState struct{ GPU, PID, State uint32 }

func (c *controlCall) accountingState(p *accountingState) status {
	const disabled = 1
	p.State = disabled
	return ok
}

// p2pCaps is SYSTEM_GET_P2P_CAPS: cards reach each other through the host only.
type p2pCaps struct {
	GPUs                              [32]uint32
	Count, Caps, OptimalRd, OptimalWr uint32
	Status                            [9]byte
}

func (c *controlCall) p2pCaps(p *p2pCaps) status {
	const notSupported = 1 // NV0000_P2P_CAPS_STATUS_CHIPSET_NOT_SUPPORTED
	if p.Count == 0 || p.Count > uint32(len(p.GPUs)) {
		return errInvalidArgument
	}
	for _, id := range p.GPUs[:p.Count] {
		if c.d.cardByGPU(id) == nil {
			return errInvalidArgument
		}
	}
	p.Caps, p.OptimalRd, p.OptimalWr = 0, 0, 0
	for i := range p.Status {
		p.Status[i] = notSupported
	}
	return ok
}

// clientControls are about a client's own objects (ctrl0000client.h,
// ctrl0000unix.h).
func clientControls() map[uint32]control {
	return map[uint32]control{
		0x00000501: accept, // EVENT_SET_NOTIFICATION
		0x00000d01: answer((*controlCall).addressSpaceType),
		0x00000d02: answer((*controlCall).handleInfo),
		0x00000d04: answer((*controlCall).inheritedSharing),
		0x00000d05: answer((*controlCall).childHandle),
		0x00000d06: answer((*controlCall).shareObject),
		0x00000d07: answer((*controlCall).sameObject),
		0x00003d02: accept, // OS_UNIX_FLUSH_USER_CACHE
		0x00003d05: answer((*controlCall).exportToFile),
		0x00003d06: answer((*controlCall).importFromFile),
	}
}

type addressSpaceType struct{ Object, Flags, Type uint32 }

func (c *controlCall) addressSpaceType(p *addressSpaceType) status {
	const sysmem, vidmem, regmem = 1, 2, 3
	o := c.client.objects[p.Object]
	if o == nil {
		return errInvalidObjectHandle
	}
	m, isMemory := o.body.(*memory)
	_, isPage := o.body.(*usermode)
	switch {
	case isMemory && m.card != nil:
		p.Type = vidmem
	case isMemory:
		p.Type = sysmem
	case isPage:
		p.Type = regmem
	default:
		return errInvalidArgument
	}
	return ok
}

type handleInfo struct {
	Object, Index uint32
	Data          uint64
}

func (c *controlCall) handleInfo(p *handleInfo) status {
	const parent, class = 1, 2
	o := c.client.objects[p.Object]
	if o == nil {
		return errInvalidObjectHandle
	}
	switch p.Index {
	case parent:
		p.Data = 0
		if o.parent != nil {
			p.Data = uint64(o.parent.handle)
		}
	case class:
		p.Data = uint64(o.class)
	default:
		return errInvalidArgument
	}
	return ok
}

func (c *controlCall) inheritedSharing(p *sharePolicy) status { return c.client.sharing.widen(*p) }

type childHandle struct{ Parent, Class, Object uint32 }

func (c *controlCall) childHandle(p *childHandle) status {
	o := c.client.objects[p.Parent]
	if o == nil {
		return errInvalidObjectHandle
	}
	for child := range o.children {
		if child.class == p.Class {
			p.Object = child.handle
			return ok
		}
	}
	return errObjectNotFound
}

type shareObject struct {
	Object uint32
	Policy sharePolicy
}

func (c *controlCall) shareObject(p *shareObject) status {
	o := c.client.objects[p.Object]
	if o == nil {
		return errInvalidObjectHandle
	}
	return o.sharing.widen(p.Policy)
}

type sameObject struct {
	First, Second uint32
	Same          uint8
}

func (c *controlCall) sameObject(p *sameObject) status {
	a, b := c.client.objects[p.First], c.client.objects[p.Second]
	if a == nil || b == nil {
		return errInvalidObjectHandle
	}
	p.Same = 0
	if a == b || a.body != nil && a.body == b.body {
		p.Same = 1
	}
	return ok
}

// exportObject names an object to export or import (NV0000_CTRL_OS_UNIX_EXPORT_OBJECT).
type exportObject struct{ Type, Device, Parent, Object uint32 }

const exportTypeRM = 1 // NV0000_CTRL_OS_UNIX_EXPORT_OBJECT_TYPE_RM

type exportToFile struct {
	Object exportObject
	FD     int32
	Flags  uint32
}

func (c *controlCall) exportToFile(p *exportToFile) status {
	o := c.client.objects[p.Object.Object]
	switch {
	case p.Object.Type != exportTypeRM:
		return errInvalidArgument
	case o == nil:
		return errInvalidObjectHandle
	case c.file == nil:
		return errInvalidArgument
	}
	return c.d.export(*c.file, o)
}

type importFromFile struct {
	FD     int32
	Object exportObject
}

func (c *controlCall) importFromFile(p *importFromFile) status {
	parent := c.client.objects[p.Object.Parent]
	if p.Object.Type != exportTypeRM || c.file == nil {
		return errInvalidArgument
	}
	if parent == nil || parent.kind == nvabi.KindRoot {
		return errInvalidObjectParent
	}
	e := c.d.shared[*c.file]
	if e == nil {
		return errInvalidArgument
	}
	o, s := newReference(c.client, parent, p.Object.Object, e.class, e.kind, e.card, e.memory)
	if s == ok {
		p.Object.Object = o.handle
	}
	return s
}
