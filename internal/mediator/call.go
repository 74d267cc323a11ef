package mediator

import (
	"bytes"
	"errors"
	"sync"
	"unsafe"

	"github.com/qgpu-project/qgpu/internal/nvabi"
	"github.com/qgpu-project/qgpu/internal/seccomp"
	"golang.org/x/sys/unix"
)

const (
	maxSegments = 8 // argument, parameters and the buffers these point to
	maxPatches  = 12
	maxDups     = 4
)

// segment is a piece of the tenant's memory that a call reads and writes.
type segment struct {
	addr uint64
	data message // the mediator's copy, which the driver sees
	in   message // what was read; nil if nothing was
	out  bool    // data is written back
}

// patch is a pointer or descriptor number of the tenant that was replaced by the
// mediator's own in a copy, to be put back before the copy is written to the tenant.
type patch struct {
	in    message
	off   int
	wide  bool // 8 bytes, not 4
	value uint64
}

// call is one ioctl of the tenant while it is answered.
type call struct {
	m      *Mediator
	n      Notification
	id     uint64
	thread int
	args   [3]uint64
	fd     int // duplicate of the descriptor
	file   deviceFile
	cmd    uint32
	name   string
	// arg is the copy of the argument, also segment 0.
	arg        message
	status     int // offset of the status in arg, or nvabi.None
	descriptor int // offset of a descriptor in arg, or nvabi.None

	params   params // of a control
	executed bool   // at the driver
	held     int    // the mediator's own descriptor of the UVM file, of a mapping

	arena    arena
	segments [maxSegments]segment
	patches  [maxPatches]patch
	dups     [maxDups]int
	nSegment int
	nPatch   int
	nDup     int
	answer   seccomp.Answer
	worked   bool // it was executed, and the driver says that it succeeded
}

// read copies size bytes of the tenant at addr into the arena. They are read once:
// whatever the tenant does to them later is not seen.
func (c *call) read(addr uint64, size int) (message, unix.Errno) {
	return c.segment(addr, size, true, true)
}

// segment adds a segment. Without in, it begins as zeros.
func (c *call) segment(addr uint64, size int, in, out bool) (message, unix.Errno) {
	if c.nSegment == maxSegments {
		return nil, unix.EINVAL
	}
	data := c.arena.take(size)
	if data == nil {
		return nil, unix.EINVAL
	}
	s := segment{addr: addr, data: data, out: out}
	if in {
		if err := c.n.ReadMemory(data, addr); err != nil {
			return nil, unix.EFAULT
		}
		if s.in = c.arena.take(size); s.in == nil {
			return nil, unix.EINVAL
		}
		copy(s.in, data)
	} else {
		clear(data)
	}
	c.segments[c.nSegment] = s
	c.nSegment++
	return data, 0
}

// point makes the pointer at off in b point to the mediator's copy target.
func (c *call) point(b message, off int, target message) unix.Errno {
	if c.nPatch == maxPatches {
		return unix.EINVAL
	}
	c.patches[c.nPatch] = patch{in: b, off: off, wide: true, value: b.u64(off)}
	c.nPatch++
	b.setU64(off, target.address())
	return 0
}

// translate replaces the tenant's descriptor number at off in b, 4 or 8 bytes wide,
// by a duplicate. A negative number means no descriptor and stays. A descriptor
// that is no device file of this tenant is refused.
func (c *call) translate(b message, off int, wide bool) (dup int, s Stat, d deviceFile, errno unix.Errno) {
	v := uint64(b.u32(off))
	if wide {
		v = b.u64(off)
	}
	fd := int32(v)
	if fd < 0 {
		return none, s, d, 0
	}
	if c.nDup == maxDups || c.nPatch == maxPatches {
		return none, s, d, unix.EINVAL
	}
	dup, s, d, errno = c.m.descriptor(c.n, fd)
	if errno != 0 {
		return none, s, d, unix.EINVAL
	}
	c.dups[c.nDup] = dup
	c.nDup++
	c.patches[c.nPatch] = patch{in: b, off: off, wide: wide, value: v}
	c.nPatch++
	if wide {
		b.setU64(off, uint64(dup))
	} else {
		b.setU32(off, uint32(dup))
	}
	return dup, s, d, 0
}

// execute performs the call on the copies.
func (c *call) execute() unix.Errno {
	var arg unsafe.Pointer
	if len(c.arg) > 0 {
		arg = unsafe.Pointer(&c.arg[0])
	}
	c.executed = true
	c.m.executed.Add(1)
	if err := c.m.driver.Ioctl(c.fd, c.cmd, arg); err != nil {
		return errnoOf(err)
	}
	return 0
}

// settle puts on record how the call ended.
func (c *call) settle(a seccomp.Answer) {
	c.answer = a
	c.worked = c.executed && a.Errno == 0 && (c.status == nvabi.None || c.arg.u32(c.status) == statusOK)
}

// ok reports whether an executed call succeeded at the driver.
func (c *call) ok(errno unix.Errno) bool {
	return errno == 0 && (c.status == nvabi.None || c.arg.u32(c.status) == statusOK)
}

// finish gives the results of an executed call to the tenant, inner buffers first,
// as the driver does. What did not change is not written.
func (c *call) finish(errno unix.Errno) seccomp.Answer {
	c.restore()
	for i := c.nSegment - 1; i >= 0; i-- {
		s := &c.segments[i]
		if !s.out || len(s.data) == 0 || s.in != nil && bytes.Equal(s.in, s.data) {
			continue
		}
		err := c.n.WriteMemory(s.data, s.addr)
		if errors.Is(err, seccomp.ErrGone) {
			continue // it is written when the call is issued again: see lostCalls
		}
		if err != nil && errno == 0 {
			errno = unix.EFAULT
		}
	}
	if errno != 0 {
		return fail(errno)
	}
	return succeed()
}

// run executes the call and gives its results to the tenant.
func (c *call) run() seccomp.Answer { return c.finish(c.execute()) }

// restore puts the tenant's own pointers and descriptor numbers back.
func (c *call) restore() {
	for i := range c.nPatch {
		p := &c.patches[i]
		if p.wide {
			p.in.setU64(p.off, p.value)
		} else {
			p.in.setU32(p.off, uint32(p.value))
		}
	}
	c.nPatch = 0
}

// refuse answers without executing, with the status that the driver would give, and
// counts the refusal under the call's name.
func (c *call) refuse(status uint32) seccomp.Answer {
	c.m.refused(c.name)
	return c.pretend(status)
}

// pretend answers with a status without executing. Only the argument is written back.
func (c *call) pretend(status uint32) seccomp.Answer {
	if c.status == nvabi.None {
		return fail(unix.EINVAL)
	}
	c.restore()
	c.arg.setU32(c.status, status)
	for i := 1; i < c.nSegment; i++ {
		c.segments[i].out = false
	}
	return c.finish(0)
}

// reject answers with an errno without executing, and counts it.
func (c *call) reject(errno unix.Errno) seccomp.Answer {
	c.m.refused(c.name)
	return fail(errno)
}

// end closes what the call opened.
func (c *call) end() {
	for i := range c.nDup {
		c.m.close(c.dups[i])
	}
	c.nDup = 0
	c.m.close(c.fd)
	c.fd = none
}

// retired is how many answered calls are kept for Lost.
const retired = 32

// callPool recycles calls. The last ones answered are kept as they ended, since the
// answer of one may turn out to be lost.
type callPool struct {
	mu   sync.Mutex
	free []*call
	ring [retired]*call
	next int
}

func (p *callPool) get(m *Mediator, n Notification) (*call, error) {
	p.mu.Lock()
	var c *call
	if k := len(p.free); k > 0 {
		c, p.free = p.free[k-1], p.free[:k-1]
	}
	p.mu.Unlock()
	if c == nil {
		a, err := newArena()
		if err != nil {
			return nil, err
		}
		c = &call{arena: a}
	}
	c.m, c.n, c.id, c.fd, c.status = m, n, n.ID(), none, nvabi.None
	c.thread, c.args = n.Thread(), ioctlArgs(n)
	c.name, c.arg, c.executed, c.worked = "", nil, false, false
	c.nSegment, c.nPatch, c.nDup = 0, 0, 0
	c.arena.reset()
	return c, nil
}

// retire keeps c and frees the oldest one kept.
func (p *callPool) retire(c *call) {
	c.n = nil
	p.mu.Lock()
	defer p.mu.Unlock()
	old := p.ring[p.next]
	p.ring[p.next] = c
	p.next = (p.next + 1) % retired
	if old == nil {
		return
	}
	if len(p.free) >= retired {
		old.arena.release()
		return
	}
	p.free = append(p.free, old)
}

// release frees a call that answered took out.
func (p *callPool) release(c *call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, c)
}

// before is a copy of the last kept call of a thread, or nil.
func (p *callPool) before(thread int) *lostCall {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range retired {
		c := p.ring[(p.next+retired-1-i)%retired]
		if c != nil && c.thread == thread {
			return c.keep()
		}
	}
	return nil
}

// answered takes the kept call with a notification's id out of the pool.
func (p *callPool) answered(id uint64) *call {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, c := range p.ring {
		if c != nil && c.id == id {
			p.ring[i] = nil
			return c
		}
	}
	return nil
}
