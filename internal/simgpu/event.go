package simgpu

import (
	"encoding/binary"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/nvgpu"

	"github.com/qgpu-project/qgpu/internal/nvabi"
)

// pulse is how long an event file stays readable once an event came. The real
// file is readable until somebody polls it; an eventfd cannot know that it was
// polled, and one that stays readable keeps its poller spinning.
const pulse = 2 * time.Millisecond

// maxEventFiles bounds the event files of one control file.
const maxEventFiles = 4096

// osEvent is an event file: an eventfd that its holders poll.
type osEvent struct {
	fd      int
	control *file // the control file whose clients it serves

	mu       sync.Mutex
	readable bool // a pulse is under way
	closed   bool
}

// signal makes the file readable for a moment.
func (e *osEvent) signal() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || e.readable {
		return
	}
	e.readable = true
	_, _ = unix.Write(e.fd, binary.NativeEndian.AppendUint64(nil, 1))
	time.AfterFunc(pulse, e.drain)
}

func (e *osEvent) drain() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	var b [8]byte
	_, _ = unix.Read(e.fd, b[:])
	e.readable = false
}

func (e *osEvent) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.closed {
		e.closed = true
		unix.Close(e.fd)
	}
}

// eventFiles knows which events wait for which interrupts. It has a lock of its
// own, since interrupts come from the engine.
type eventFiles struct {
	mu      sync.Mutex
	waiting map[eventSource]*listeners
}

// eventSource is where interrupts come from: work of a client on a card.
type eventSource struct {
	client *client
	card   *card
}

// listeners are the events that an interrupt wakes.
type listeners struct {
	mu     sync.Mutex
	events map[*object]*osEvent
}

// of is the listeners of a source, made when first asked for.
func (f *eventFiles) of(c *client, card *card) *listeners {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.waiting == nil {
		f.waiting = map[eventSource]*listeners{}
	}
	src := eventSource{c, card}
	l := f.waiting[src]
	if l == nil {
		l = &listeners{events: map[*object]*osEvent{}}
		f.waiting[src] = l
	}
	return l
}

// forget drops the listeners of a client that is gone.
func (f *eventFiles) forget(c *client) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for src := range f.waiting {
		if src.client == c {
			delete(f.waiting, src)
		}
	}
}

func (f *eventFiles) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waiting = nil
}

func (l *listeners) signal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.events {
		e.signal()
	}
}

func (l *listeners) add(o *object, e *osEvent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events[o] = e
}

func (l *listeners) remove(o *object) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.events, o)
}

// allocOSEvent is NV_ESC_ALLOC_OS_EVENT: the file that the argument names becomes
// an event file.
func (c *frontendCall) allocOSEvent() error {
	p, _ := view[nvgpu.IoctlAllocOSEvent](c.arg)
	id, found := c.fileOf(int32(p.FD))
	if !found {
		p.Status = uint32(errInvalidEvent)
		return nil
	}
	end, s := c.newEventFile(id)
	p.Status = uint32(s)
	if s != ok {
		return nil
	}
	defer end.Close()
	if err := c.caller.ReplaceFile(int32(p.FD), end); err != nil {
		c.forgetEventFile(end)
		return err
	}
	return nil
}

func (c *frontendCall) newEventFile(id FileID) (*os.File, status) {
	d := c.d
	d.lock()
	defer d.mu.Unlock()
	f := d.files[id]
	if f == nil || f.event != nil || f.mapped || f.node.Kind > NodeCard {
		return nil, errInvalidEvent
	}
	control := f.owner()
	if len(d.files) >= maxFiles || d.countEventFiles(control) >= maxEventFiles {
		return nil, errInsufficientResources
	}
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, errInsufficientResources
	}
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		unix.Close(fd)
		return nil, errInsufficientResources
	}
	end := os.NewFile(uintptr(dup), "nvidia-event")
	eid, err := Identify(fd)
	if err != nil {
		unix.Close(fd)
		end.Close()
		return nil, errOperatingSystem
	}
	d.files[eid] = &file{
		id: eid, node: f.node, users: map[int]bool{c.pid: true}, clients: map[*client]bool{},
		control: control, pipe: -1, event: &osEvent{fd: fd, control: control},
	}
	return end, ok
}

func (d *Driver) countEventFiles(control *file) (n int) {
	for _, f := range d.files {
		if f.event != nil && f.event.control == control {
			n++
		}
	}
	return n
}

func (c *frontendCall) forgetEventFile(end *os.File) {
	id, err := Identify(int(end.Fd()))
	if err != nil {
		return
	}
	c.d.lock()
	defer c.d.mu.Unlock()
	if f := c.d.files[id]; f != nil && f.event != nil {
		c.d.closeFile(f)
	}
}

// closeEventFile ends an event file. Its holders' copies are never readable again.
func (d *Driver) closeEventFile(f *file) {
	delete(d.files, f.id)
	f.control = nil
	f.event.close()
}

// closeEventFiles ends the event files that belong to a control file.
func (d *Driver) closeEventFiles(control *file) {
	for _, f := range d.files {
		if f.event != nil && f.event.control == control {
			d.closeEventFile(f)
		}
	}
}

func (c *frontendCall) freeOSEvent() error {
	p, _ := view[nvgpu.IoctlFreeOSEvent](c.arg)
	id, found := c.fileOf(int32(p.FD))
	c.d.lock()
	defer c.d.mu.Unlock()
	f := c.d.files[id]
	if !found || f == nil || f.event == nil {
		p.Status = uint32(errInvalidEvent)
		return nil
	}
	c.d.closeEventFile(f)
	p.Status = uint32(ok)
	return nil
}

// eventParent fixes up the parameters of an event as the driver does: what it
// watches is what the call names as its parent, and if that is of another client
// the event hangs on its own client instead. It returns the parent to use.
func eventParent(params []byte, root, parent uint32) uint32 {
	p, given := view[nvgpu.NV0005_ALLOC_PARAMETERS](params)
	if !given {
		return parent
	}
	p.HSrcResource.Val = parent
	if p.HParentClient.Val != root {
		return root
	}
	return parent
}

// event is NV01_EVENT and its kin: it connects an event file to the interrupts of
// a card. Which interrupt is not told apart: all of the client's events on the
// card are signalled, and clients look at their semaphores to see which it was.
func (a *allocation) event() status {
	p, given := view[nvgpu.NV0005_ALLOC_PARAMETERS](a.params)
	if !given {
		return errInvalidArgument
	}
	// Callbacks are for the kernel; NV01_EVENT is generic and takes the class of
	// its parameters.
	const generic, osEventClass = 0x05, 0x79
	class := a.object.class
	if class == generic {
		class = uint32(p.HClass)
	}
	if class != osEventClass {
		return errIllegalAction
	}
	owner := a.object.client
	if h := p.HParentClient.Val; h != 0 {
		if owner = a.d.clients[h]; owner == nil || owner.file != a.object.client.file {
			return errInvalidClient
		}
	}
	source := owner.objects[p.HSrcResource.Val]
	if source == nil {
		return errInvalidObjectHandle
	}
	if a.file == nil {
		return ok // an event without a file is never seen
	}
	f := a.d.files[*a.file]
	if f == nil || f.event == nil {
		return errInvalidEvent
	}
	if source.card == nil || source.kind == nvabi.KindRoot {
		return ok
	}
	a.object.dependOn(source)
	l, e, o := a.d.events.of(owner, source.card), f.event, a.object
	l.add(o, e)
	o.release = func() { l.remove(o) }
	return ok
}
