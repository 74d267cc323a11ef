package simgpu

import (
	"cmp"
	"slices"

	"github.com/qgpu-project/qgpu/internal/nvabi"
)

// client is an RM client: a tree of objects that belongs to one control file.
type client struct {
	handle  uint32
	file    *file // RM validates a client by the file it was made through
	pid     int   // ProcID: the process that made it
	root    *object
	objects map[uint32]*object
	sharing sharing // of objects made from now on
	nextID  uint32  // of handles that the driver chooses
	nextSeq uint64
}

// object is an RM object.
type object struct {
	client     *client
	handle     uint32
	class      uint32
	kind       nvabi.Kind
	parent     *object
	children   map[*object]bool
	dependants map[*object]bool // freed with it, wherever they are
	dependsOn  []*object
	card       *card // nil for a client and what belongs to no card
	sharing    sharing
	seq        uint64 // order of creation within the client
	mappings   int    // MAP_MEMORY less UNMAP_MEMORY

	// body is what the object is: *memory, *addressSpace, *group, *channel, *event
	// or nil.
	body any
	// release undoes what making the object did; it is called once. May be nil.
	release func()
}

// sharing says which other clients may duplicate an object.
type sharing uint8

const (
	shareProcess sharing = iota // clients of the same process: RM's default
	shareAll
)

// rootHandles begin at this base and follow one another (RS_CLIENT_HANDLE_BASE).
const (
	clientHandleBase = 0xc1d00000
	clientHandleMask = 0x000fffff
	objectHandleBase = 0xcaf00000 // of handles that the driver chooses
)

// newClient makes a client of a process on a control file.
func (d *Driver) newClient(f *file, pid int, want uint32, class nvabi.RMClass) (*client, status) {
	if len(d.clients) >= maxClients {
		return nil, errInsufficientResources
	}
	mine := 0
	for _, c := range d.clients {
		if c.pid == pid {
			mine++
		}
	}
	if mine >= maxClientsPerProcess {
		return nil, errInsufficientResources
	}
	if want != 0 && d.clients[want] != nil {
		return nil, errInsertDuplicateName
	}
	for want == 0 || d.clients[want] != nil {
		d.nextID = d.nextID%clientHandleMask + 1
		want = clientHandleBase | d.nextID
	}
	c := &client{handle: want, file: f, pid: pid, objects: map[uint32]*object{}}
	c.root = &object{client: c, handle: want, class: class.ID, kind: class.Kind}
	c.objects[want] = c.root
	d.clients[want] = c
	f.clients[c] = true
	return c, ok
}

func (d *Driver) freeClient(c *client) {
	d.freeObject(c.root)
	delete(d.clients, c.handle)
	delete(c.file.clients, c)
	d.events.forget(c)
}

// clientOn is the client with the handle, if it may be used through the file.
func (d *Driver) clientOn(f *file, handle uint32) (*client, status) {
	c := d.clients[handle]
	if c == nil || c.file != f.owner() {
		return nil, errInvalidClient
	}
	return c, ok
}

// newObject puts an object into the tree under parent. A zero handle lets the
// driver choose one.
func (c *client) newObject(parent *object, handle uint32, class nvabi.RMClass) (*object, status) {
	if handle != 0 && c.objects[handle] != nil {
		return nil, errInsertDuplicateName
	}
	if len(c.objects) >= maxObjectsPerClient {
		return nil, errInsufficientResources
	}
	for handle == 0 || c.objects[handle] != nil {
		c.nextID = c.nextID%0xfffff + 1
		handle = objectHandleBase | c.nextID
	}
	c.nextSeq++
	o := &object{
		client: c, handle: handle, class: class.ID, kind: class.Kind,
		parent: parent, card: parent.card, sharing: c.sharing, seq: c.nextSeq,
	}
	c.objects[handle] = o
	if parent.children == nil {
		parent.children = map[*object]bool{}
	}
	parent.children[o] = true
	return o, ok
}

// dependOn has o freed before on is.
func (o *object) dependOn(on *object) {
	if on == nil || on == o {
		return
	}
	if on.dependants == nil {
		on.dependants = map[*object]bool{}
	}
	on.dependants[o] = true
	o.dependsOn = append(o.dependsOn, on)
}

// freeObject frees an object with everything under it and everything that
// depends on it, the youngest first.
func (d *Driver) freeObject(o *object) {
	for _, set := range []map[*object]bool{o.dependants, o.children} {
		for _, child := range youngestFirst(set) {
			if set[child] { // not yet freed as a dependant of another
				d.freeObject(child)
			}
		}
	}
	delete(o.client.objects, o.handle)
	if o.parent != nil {
		delete(o.parent.children, o)
	}
	for _, on := range o.dependsOn {
		delete(on.dependants, o)
	}
	if o.release != nil {
		o.release()
		o.release = nil
	}
}

func youngestFirst(set map[*object]bool) []*object {
	list := make([]*object, 0, len(set))
	for o := range set {
		list = append(list, o)
	}
	slices.SortFunc(list, func(a, b *object) int { return cmp.Compare(b.seq, a.seq) })
	return list
}

// find is the client's object with the handle, if its body is a T.
func find[T any](c *client, handle uint32) (*object, T, bool) {
	var none T
	o := c.objects[handle]
	if o == nil {
		return nil, none, false
	}
	body, is := o.body.(T)
	return o, body, is
}
