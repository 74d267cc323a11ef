package mediator

import (
	"testing"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/nvgpu"

	"github.com/qgpu-project/qgpu/internal/nvabi"
)

const (
	setTimeslice    = nvgpu.NVA06C_CTRL_CMD_SET_TIMESLICE
	disableChannels = nvgpu.NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS
)

// paced is a tenant whose orders the test gives.
type paced struct {
	*testing.T
	m       *Mediator
	d       *fakeDriver
	tn      *fakeTenant
	c       context
	changes int
	files   int // descriptors that are open when no call is under way
}

func newPaced(t *testing.T) *paced {
	m, d, tn := setUp(t, gib)
	p := &paced{T: t, m: m, d: d, tn: tn}
	m.Pace(func() { p.changes++ })
	m.duplicate = func(pid int, number int32) (int, error) {
		f, ok := tn.fds[number]
		if pid != tn.pid || !ok {
			return none, unix.EBADF
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.install(f), nil
	}
	m.numbers = func(int) (list []int32) {
		for number := range tn.fds {
			list = append(list, number)
		}
		return list
	}
	p.order(Order{Turn: 6000})
	p.c = tn.context()
	p.files = len(d.fds)
	return p
}

// order applies o within slices of 100 to 5000 µs, and closes the file of the answer.
func (p *paced) order(o Order) Applied {
	p.Helper()
	o.Least, o.Most = 100, 5000
	a, err := p.m.Apply(o)
	if err != nil {
		p.Fatal(err)
	}
	if a.File != none && p.d.Close(a.File) != nil {
		p.Error("the answer's file is not open")
	}
	return a
}

func (p *paced) group(engine uint32) uint32 {
	p.Helper()
	params := make(message, 20)
	params.setU32(nvabi.GroupEngineType, engine)
	h, status := p.tn.alloc(p.c.ctl, p.c.client, p.c.device, nvgpu.KEPLER_CHANNEL_GROUP_A, params)
	if status != 0 {
		p.Fatalf("a channel group: status %#x", status)
	}
	return h
}

func (p *paced) channel(parent, engine uint32) (handle, status uint32) {
	p.Helper()
	params := make(message, 360)
	params.setU32(nvabi.ChannelEngineType, engine)
	return p.tn.alloc(p.c.ctl, p.c.client, parent, nvgpu.TURING_CHANNEL_GPFIFO_A, params)
}

// slice is the time slice that was set last.
func (p *paced) slice() uint64 { return message(p.d.seen[setTimeslice]).u64(0) }

func TestSlicesOfGroups(t *testing.T) {
	p := newPaced(t)
	const compute, copies = 1, 9
	p.group(copies)
	if _, ok := p.d.seen[setTimeslice]; ok || p.m.Groups()[0] != 0 {
		t.Error("a group on a copy engine has a slice of compute")
	}
	first := p.group(compute)
	if p.slice() != 5000 {
		t.Errorf("the first group has %d µs, want the longest slice", p.slice())
	}
	if h, status := p.channel(first, compute); status != 0 {
		t.Fatalf("a channel: status %#x", status)
	} else if a := p.order(Order{Turn: 6000}); a.Restart || a.File == none || a.Channel.Client != p.c.client || a.Channel.Handle != h {
		t.Errorf("an order that changes nothing is answered with %+v", a)
	}
	p.group(compute)
	if p.slice() != 3000 {
		t.Errorf("the second group has %d µs, want half of the turn", p.slice())
	}
	if a := p.order(Order{Turn: 6000}); !a.Restart || p.slice() != 3000 {
		t.Errorf("the first group is not set to %d µs: %+v", p.slice(), a)
	}
	if a := p.order(Order{Turn: 20}); !a.Restart || p.slice() != 100 {
		t.Errorf("the groups have %d µs, want the shortest slice: %+v", p.slice(), a)
	}
	if p.m.Groups()[0] != 2 || p.changes != 2 {
		t.Errorf("there are %d groups after %d changes, want 2 and 2", p.m.Groups()[0], p.changes)
	}
	p.tn.free(p.c, first)
	if p.m.Groups()[0] != 1 || p.changes != 3 {
		t.Errorf("there are %d groups after %d changes, want 1 and 3", p.m.Groups()[0], p.changes)
	}
	if len(p.d.fds) != p.files {
		t.Errorf("%d descriptors are open, were %d", len(p.d.fds), p.files)
	}
}

// TestGatedChannels: a channel that comes while the pacer gates is kept off the card until
// the pacer has been told of it; what the pacer does then is its own.
func TestGatedChannels(t *testing.T) {
	p := newPaced(t)
	group := p.group(1)
	p.channel(group, 1)
	p.channel(group, 1)
	disabled := func() (yes bool, n uint32) {
		params := message(p.d.seen[disableChannels])
		if len(params) == 0 {
			return false, 0
		}
		return params[nvabi.DisableChannelsDisable] != 0, params.u32(nvabi.DisableChannelsCount)
	}
	a := p.order(Order{Turn: 6000, Gated: true})
	if _, n := disabled(); n != 0 || len(a.Channels) != 2 || a.Process != p.tn.pid {
		t.Errorf("%d channels are disabled or enabled by the mediator, the answer is %+v", n, a)
	}
	before := p.changes
	p.channel(group, 1)
	if yes, n := disabled(); !yes || n != 1 || p.changes != before+1 {
		t.Errorf("a channel that came later: %d disabled (%v), %d changes", n, yes, p.changes-before)
	}
	if a = p.order(Order{Turn: 6000, Gated: true}); len(a.Channels) != 3 {
		t.Errorf("the pacer is told of %d channels", len(a.Channels))
	}
	p.channel(group, 1)
	a = p.order(Order{Turn: 6000})
	if yes, n := disabled(); yes || n != 1 || !a.Restart {
		t.Errorf("a channel that the pacer was not told of: %d enabled (%v), the answer is %+v", n, !yes, a)
	}
	a = p.order(Order{Turn: 6000, Afresh: true})
	if yes, n := disabled(); yes || n != 4 || !a.Restart {
		t.Errorf("after a pacer that left who knows what: %d enabled (%v), the answer is %+v", n, !yes, a)
	}
}

func TestChannelsAreBounded(t *testing.T) {
	p := newPaced(t)
	group := p.group(1)
	for i := range MaxChannels {
		if _, status := p.channel(group, 1); status != 0 {
			t.Fatalf("channel %d: status %#x", i, status)
		}
	}
	if _, status := p.channel(group, 1); status != statusNoResources {
		t.Errorf("one channel too many: status %#x, want %#x", status, statusNoResources)
	}
}

// TestLostControlFile has a process hand its control file to another and close it: nobody
// can set the slices of its groups, so they are shut off.
func TestLostControlFile(t *testing.T) {
	p := newPaced(t)
	group := p.group(1)
	p.channel(group, 1)
	p.tn.fds[99] = p.tn.fds[p.c.ctl] // under another number
	delete(p.tn.fds, p.c.ctl)
	if a := p.order(Order{Turn: 6000, Afresh: true}); a.File == none || len(a.Channels) != 1 {
		t.Errorf("a control file under another number is not found: %+v", a)
	}
	delete(p.tn.fds, 99)
	if a := p.order(Order{Turn: 6000}); a.File != none || len(a.Channels) != 0 || !a.Restart {
		t.Errorf("channels that cannot be paced are let run: %+v", a)
	}
}

// TestChannelNeedsGroup: the driver would make a group whose slice nobody could set.
func TestChannelNeedsGroup(t *testing.T) {
	p := newPaced(t)
	if _, status := p.channel(p.c.device, 1); status != statusInvalidArgument {
		t.Errorf("a compute channel without a group: status %#x, want %#x", status, statusInvalidArgument)
	}
	if _, status := p.channel(p.c.device, 9); status != 0 {
		t.Errorf("a copy channel without a group: status %#x", status)
	}
}

func TestSetQuotas(t *testing.T) {
	m, _, tn := setUp(t, gib)
	c := tn.context()
	if _, status := tn.vidmem(c, 600*mib); status != 0 {
		t.Fatalf("allocation: status %#x", status)
	}
	err := m.SetQuotas([]uint64{500 * mib})
	if q, ok := err.(*QuotaError); !ok || q.Used != 600*mib || q.Asked != 500*mib || q.Minor != 0 {
		t.Errorf("less than what is in use: %v", err)
	}
	if _, status := tn.vidmem(c, 300*mib); status != 0 {
		t.Errorf("the quota is another after a refusal: status %#x", status)
	}
	if err := m.SetQuotas([]uint64{2 * gib}); err != nil {
		t.Fatal(err)
	}
	if _, status := tn.vidmem(c, gib); status != 0 {
		t.Errorf("within the new quota: status %#x", status)
	}
	if err := m.SetQuotas([]uint64{gib, gib}); err == nil {
		t.Error("two quotas for one card are accepted")
	}
}
