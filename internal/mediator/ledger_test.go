package mediator

import (
	"testing"
	"time"

	"github.com/qgpu-project/qgpu/internal/nvabi"
	"gvisor.dev/gvisor/pkg/abi/nvgpu"
	"pgregory.net/rapid"
)

const modelQuota = 1000

// model is the ledger's rules in their plainest form: every allocation with the set
// of things that refer to it.
type model struct {
	objects map[[2]uint32]modelObject // by client and handle
	maps    map[uint64]int            // UVM mapping by base: allocation
	bytes   map[int]uint64            // by allocation
	next    int
	open    []uint64 // reservations of calls under way
}

type modelObject struct {
	parent     uint32
	allocation int // 0: none
}

func (m *model) used() uint64 {
	alive := make(map[int]bool)
	for _, o := range m.objects {
		alive[o.allocation] = true
	}
	for _, a := range m.maps {
		alive[a] = true
	}
	var sum uint64
	for a := range alive {
		sum += m.bytes[a]
	}
	for _, n := range m.open {
		sum += n
	}
	return sum
}

func (m *model) free(client, handle uint32) {
	delete(m.objects, [2]uint32{client, handle})
	for k, o := range m.objects {
		if k[0] == client && (handle == client || o.parent == handle) {
			m.free(client, k[1])
		}
	}
}

func (m *model) add(client, parent, handle uint32, allocation int) {
	m.free(client, handle)
	if _, ok := m.objects[[2]uint32{client, parent}]; !ok {
		parent = client
	}
	m.objects[[2]uint32{client, handle}] = modelObject{parent, allocation}
}

// ledgerMachine makes calls on a ledger and the model alike.
type ledgerMachine struct {
	l *ledger
	m model
}

var (
	someClient = rapid.SampledFrom([]uint32{100, 200})
	someHandle = rapid.Uint32Range(1, 8)
	someBase   = rapid.Uint64Range(1, 4)
)

func newLedgerMachine() *ledgerMachine {
	x := &ledgerMachine{l: newLedger([]uint64{modelQuota}), m: model{
		objects: make(map[[2]uint32]modelObject), maps: make(map[uint64]int), bytes: make(map[int]uint64),
	}}
	x.l.addClient(100, 1)
	x.l.addClient(200, 1)
	return x
}

func (x *ledgerMachine) Reserve(t *rapid.T) {
	room := modelQuota - x.m.used()
	n := rapid.OneOf(rapid.Uint64Range(1, 400), rapid.Uint64Range(room, room+1)).Draw(t, "bytes")
	want := x.m.used()+n <= modelQuota
	if got := x.l.reserve(0, n); got != want {
		t.Fatalf("reserve %d with %d used: %v", n, x.m.used(), got)
	}
	if want {
		x.m.open = append(x.m.open, n)
	}
}

func (x *ledgerMachine) take(t *rapid.T) uint64 {
	if len(x.m.open) == 0 {
		t.Skip("no call under way")
	}
	n := x.m.open[0]
	x.m.open = x.m.open[1:]
	return n
}

func (x *ledgerMachine) Cancel(t *rapid.T) { x.l.cancel(0, x.take(t)) }

func (x *ledgerMachine) Settle(t *rapid.T) {
	n := x.take(t)
	actual := n + rapid.Uint64Range(0, 300).Draw(t, "rounding")
	c, parent, h := someClient.Draw(t, "client"), someHandle.Draw(t, "parent"), someHandle.Draw(t, "handle")
	want := x.m.used()+actual <= modelQuota && x.l.hasClient(c)
	if got := x.l.settle(0, n, actual, newObject{client: c, parent: parent, handle: h, kind: nvabi.KindVideoMemory}); got != want {
		t.Fatalf("settle %d with %d used: %v", actual, x.m.used(), got)
	}
	if want {
		x.m.next++
		x.m.bytes[x.m.next] = actual
		x.m.add(c, parent, h, x.m.next)
	}
}

func (x *ledgerMachine) Add(t *rapid.T) {
	c, parent, h := someClient.Draw(t, "client"), someHandle.Draw(t, "parent"), someHandle.Draw(t, "handle")
	x.l.add(newObject{client: c, parent: parent, handle: h, class: nvgpu.NV01_DEVICE_0})
	if x.l.hasClient(c) {
		x.m.add(c, parent, h, 0)
	}
}

func (x *ledgerMachine) Duplicate(t *rapid.T) {
	dst, src := someClient.Draw(t, "to"), someClient.Draw(t, "from")
	parent, h, s := someHandle.Draw(t, "parent"), someHandle.Draw(t, "handle"), someHandle.Draw(t, "source")
	x.l.duplicate(dst, parent, h, src, s)
	if x.l.hasClient(dst) {
		x.m.add(dst, parent, h, x.m.objects[[2]uint32{src, s}].allocation)
	}
}

func (x *ledgerMachine) Free(t *rapid.T) {
	c, h := someClient.Draw(t, "client"), someHandle.Draw(t, "handle")
	x.l.free(c, h)
	x.m.free(c, h)
}

func (x *ledgerMachine) FreeClient(t *rapid.T) {
	c := someClient.Draw(t, "client")
	x.l.free(c, c)
	x.m.free(c, c)
	if rapid.Bool().Draw(t, "comes back") {
		x.l.addClient(c, 1)
	}
}

func (x *ledgerMachine) Map(t *rapid.T) {
	c, h, b := someClient.Draw(t, "client"), someHandle.Draw(t, "handle"), someBase.Draw(t, "base")
	x.l.mapExternal(1, none, b, 1, c, h)
	if o := x.m.objects[[2]uint32{c, h}]; o.allocation != 0 {
		x.m.maps[b] = o.allocation
	}
}

func (x *ledgerMachine) Unmap(t *rapid.T) {
	b := someBase.Draw(t, "base")
	x.l.unmapExternal(1, span{b, b + 1})
	delete(x.m.maps, b)
}

func (x *ledgerMachine) Check(t *rapid.T) {
	quota, used := x.l.balance(0)
	if used != x.m.used() || used > quota {
		t.Fatalf("used %d of %d, the model says %d", used, quota, x.m.used())
	}
	n := 0
	for _, c := range x.l.clients {
		n += len(c.objects)
	}
	if n != x.l.objects || n != len(x.m.objects) {
		t.Fatalf("%d objects, counted %d, the model has %d", n, x.l.objects, len(x.m.objects))
	}
}

// TestLedgerIsTheModel drives the ledger through any interleaving of calls, compares
// it with the model after each, and expects everything back at the end.
func TestLedgerIsTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := newLedgerMachine()
		t.Repeat(rapid.StateMachineActions(x))
		for _, n := range x.m.open {
			x.l.cancel(0, n)
		}
		x.l.free(100, 100)
		x.l.free(200, 200)
		if s := x.l.takeSpace(1); s != nil {
			x.l.dropMappings(s)
		}
		if _, used := x.l.balance(0); used != 0 || x.l.objects != 0 || x.l.inFlight != 0 {
			t.Fatalf("at the end: used %d, %d objects, %d calls", used, x.l.objects, x.l.inFlight)
		}
	})
}

// TestManagedRangesAreTheModel compares charged ranges with a set of pages.
func TestManagedRangesAreTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const quota, space = 24, 40
		l := newLedger([]uint64{quota, quota / 2})
		pages := make(map[uint64]bool)
		rangeOf := func(t *rapid.T) span {
			first := rapid.Uint64Range(0, space-1).Draw(t, "first")
			return span{first, first + rapid.Uint64Range(1, space-first).Draw(t, "length")}
		}
		used := func() uint64 { return l.cards[0].managed + l.cards[1].managed }
		t.Repeat(map[string]func(*rapid.T){
			"map": func(t *rapid.T) {
				x := rangeOf(t)
				before := used()
				ok := l.mapManaged(1, 1, x)
				if !ok {
					if used() != before {
						t.Fatalf("refused, but used went from %d to %d", before, used())
					}
					return
				}
				for p := x.first; p < x.end; p++ {
					pages[p] = true
				}
			},
			"unmap": func(t *rapid.T) {
				x := rangeOf(t)
				var mapped spans
				for p := range pages {
					if p < x.first || p >= x.end {
						mapped = mapped.with(span{p, p + 1})
					}
				}
				l.keepManaged(1, 1, mapped, l.latest(1))
				for p := x.first; p < x.end; p++ {
					delete(pages, p)
				}
			},
			"": func(t *rapid.T) {
				if used() != uint64(len(pages)) {
					t.Fatalf("used %d, mapped %d", used(), len(pages))
				}
				for i := range l.cards {
					if l.cards[i].used() > l.cards[i].quota {
						t.Fatalf("card %d: used %d of %d", i, l.cards[i].used(), l.cards[i].quota)
					}
					if n := l.spaceBytes(1, i); n != l.cards[i].managed {
						t.Fatalf("card %d: ranges of %d bytes, charged %d", i, n, l.cards[i].managed)
					}
				}
			},
		})
		l.takeSpace(1)
		if used() != 0 {
			t.Fatalf("at the end: used %d", used())
		}
	})
}

// TestReconcilingNeverFreesTheLiving gives back no more than orphans hold, whatever the
// driver counts.
func TestReconcilingNeverFreesTheLiving(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newLedger([]uint64{1 << 20})
		l.addClient(1, 10)
		l.addClient(2, 20)
		var sums [3]uint64
		for i := range rapid.IntRange(1, 6).Draw(t, "allocations") {
			c := rapid.SampledFrom([]uint32{1, 2}).Draw(t, "client")
			n := rapid.Uint64Range(1, 100).Draw(t, "bytes")
			l.reserve(0, n)
			l.settle(0, n, n, newObject{client: c, handle: uint32(i + 1)})
			sums[c] += n
		}
		l.dropProcess(10)
		s := l.snapshot()
		counted := rapid.Uint64Range(0, 700).Draw(t, "driver counts")
		disturbed := rapid.Bool().Draw(t, "disturbed")
		if disturbed {
			l.begin()
			l.free(2, 1)
			l.end()
			sums[2] = 0
			for _, o := range l.clients[2].objects {
				sums[2] += o.allocation.bytes
			}
		}
		l.correct(s, []uint64{counted})
		_, used := l.balance(0)
		if used < sums[2] {
			t.Fatalf("used %d, but the living hold %d", used, sums[2])
		}
		if !disturbed && counted <= sums[1]+sums[2] && counted >= sums[2] && used != counted {
			t.Fatalf("used %d, the driver counts %d", used, counted)
		}
	})
}

// latest is a time when nothing of a process is under way any more.
func (l *ledger) latest(process int) (t time.Time) {
	if s, ok := l.spaces[process]; ok {
		for _, p := range s.pending {
			t = p.since
		}
	}
	return t.Add(2 * settlingTime)
}

func (l *ledger) spaceBytes(process, card int) uint64 {
	if s, ok := l.spaces[process]; ok {
		return s.managed[card].bytes()
	}
	return 0
}
