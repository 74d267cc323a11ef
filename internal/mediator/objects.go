package mediator

import "github.com/qgpu-project/qgpu/internal/nvabi"

// maxObjects bounds the RM objects of a tenant. A CUDA process has a few hundred
// and one more for each allocation.
const maxObjects = 1 << 20

// noCard is the card of an object that belongs to none.
const noCard = -1

// client is an RM client of the tenant.
type client struct {
	handle   uint32
	owner    int   // the process that made it, in the mediator's pid namespace
	file     int32 // the number that the client's control file had there
	orphaned bool
	objects  map[uint32]*object
}

// object is an RM object. Objects of a client form a tree by parents; freeing one
// frees its subtree.
type object struct {
	handle     uint32
	class      uint32
	kind       nvabi.Kind
	card       int
	allocation *allocation
	duplicate  bool
	slice      uint64 // µs, of a channel group: what was set last; the schedule's lock guards it
	disabled   bool   // of a channel: likewise

	parent, child  *object // child: the youngest
	older, younger *object // siblings
}

// newObject describes an object to be recorded.
type newObject struct {
	client, parent, handle uint32
	class                  uint32
	kind                   nvabi.Kind
	card                   int
	compute                bool // a channel group, or a channel of one, on the compute engine
	duplicate              bool
}

// hasClient reports whether an RM client belongs to the tenant.
func (l *ledger) hasClient(handle uint32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.clients[handle]
	return ok
}

// full reports whether the tenant has as many objects as it may.
func (l *ledger) full() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.objects >= maxObjects
}

// addClient records an RM client. A client of that handle from before is gone: the
// driver does not give a handle twice.
func (l *ledger) addClient(handle uint32, owner int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if old, ok := l.clients[handle]; ok {
		l.dropClient(old)
	}
	l.clients[handle] = &client{handle: handle, owner: owner, objects: make(map[uint32]*object)}
}

// add records an object without memory.
func (l *ledger) add(o newObject) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c, ok := l.clients[o.client]; ok {
		l.addObject(c, o, nil)
	}
}

func (l *ledger) addObject(c *client, n newObject, m *allocation) {
	l.refer(m) // before anything is freed: an object may take the place of one with the same memory
	if old, ok := c.objects[n.handle]; ok {
		l.freeTree(c, old)
	}
	o := &object{handle: n.handle, class: n.class, kind: n.kind, card: n.card, allocation: m, duplicate: n.duplicate}
	if p, ok := c.objects[n.parent]; ok {
		o.parent, o.older = p, p.child
		if p.child != nil {
			p.child.younger = o
		}
		p.child = o
	}
	c.objects[n.handle] = o
	l.objects++
	if n.compute {
		l.enlist(c, o)
	}
}

// duplicate records that an object of dst refers to the same thing as an object of
// another client.
func (l *ledger) duplicate(dst, parent, handle, src, source uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	to, ok := l.clients[dst]
	if !ok {
		return
	}
	n := newObject{client: dst, parent: parent, handle: handle, card: noCard, duplicate: true}
	var m *allocation
	if from, ok := l.clients[src]; ok {
		if o, ok := from.objects[source]; ok {
			n.class, n.kind, n.card, m = o.class, o.kind, o.card, o.allocation
		}
	}
	l.addObject(to, n, m)
}

// free records that an object, and all beneath it, is gone. A client's own handle
// stands for the whole client. Freeing what is not known does nothing.
func (l *ledger) free(client, handle uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c, ok := l.clients[client]
	if !ok {
		return
	}
	if handle == client {
		l.dropClient(c)
		return
	}
	if o, ok := c.objects[handle]; ok {
		l.freeTree(c, o)
	}
}

// freeTree removes o and its descendants, without recursion, since their depth is
// the tenant's choice.
func (l *ledger) freeTree(c *client, o *object) {
	unlink(o)
	for cur := o; cur != nil; {
		if cur.child != nil {
			next := cur.child
			cur.child = next.older
			next.older = nil
			cur, next.parent = next, cur
			continue
		}
		next := cur.parent
		if cur == o {
			next = nil
		}
		l.removeObject(c, cur)
		cur = next
	}
}

// unlink takes o out of its parent's list of children.
func unlink(o *object) {
	if o.younger != nil {
		o.younger.older = o.older
	} else if o.parent != nil {
		o.parent.child = o.older
	}
	if o.older != nil {
		o.older.younger = o.younger
	}
	o.parent, o.older, o.younger = nil, nil, nil
}

func (l *ledger) removeObject(c *client, o *object) {
	if c.objects[o.handle] == o {
		delete(c.objects, o.handle)
		l.objects--
	}
	l.delist(o)
	l.unrefer(o.allocation)
	o.allocation = nil
}

func (l *ledger) dropClient(c *client) {
	delete(l.clients, c.handle)
	for _, o := range c.objects {
		l.delist(o)
		l.unrefer(o.allocation)
	}
	l.objects -= len(c.objects)
	c.objects = nil
	l.settleStale()
}

// cardOf is the card that an object belongs to.
func (l *ledger) cardOf(client, handle uint32) (int, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c, ok := l.clients[client]
	if !ok {
		return 0, false
	}
	o, ok := c.objects[handle]
	if !ok || o.card == noCard {
		return 0, false
	}
	return o.card, true
}

// processMemory is what the clients of a process hold on a card. An allocation that
// several objects refer to counts once.
func (l *ledger) processMemory(process, card int) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	var sum uint64
	seen := make(map[*allocation]struct{})
	for _, c := range l.clients {
		if c.owner != process {
			continue
		}
		for _, o := range c.objects {
			m := o.allocation
			if m == nil || m.card != card {
				continue
			}
			if _, ok := seen[m]; !ok {
				seen[m] = struct{}{}
				sum += m.bytes
			}
		}
	}
	return sum
}

// processes are those with a channel on a card, as the driver's own list has them.
func (l *ledger) processes(card int) []int {
	l.mu.Lock()
	defer l.mu.Unlock()
	seen := make(map[int]struct{})
	var list []int
	for _, c := range l.clients {
		if _, ok := seen[c.owner]; ok || c.orphaned {
			continue
		}
		for _, o := range c.objects {
			if o.kind == nvabi.KindChannel && o.card == card {
				seen[c.owner] = struct{}{}
				list = append(list, c.owner)
				break
			}
		}
	}
	return list
}
