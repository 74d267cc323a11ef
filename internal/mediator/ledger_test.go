package mediator

import (
	"testing"
	"time"

	"github.com/qgpu-project/qgpu/internal/nvabi"
	"gvisor.dev/gvisor/pkg/abi/nvgpu"
	"pgregory.net/rapid"
)

// model is the ledger's rules in their plainest form: every allocation with the set
// of things that refer to it.
type model struct {
	quota   uint64
	objects map[[2]uint32]modelObject // by client and handle
	maps    map[uint64]int            // UVM mapping by base: allocation
	bytes   map[int]uint64            // by allocation
	next    int
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
	return sum
}

func (m *model) free(client, handle uint32) {
	for k, o := range m.objects {
		if k[0] == client && (handle == client || k[1] == handle) {
			delete(m.objects, k)
			if handle == client {
				continue
			}
			_ = o
		}
	}
	if handle == client {
		return
	}
	for k, o := range m.objects {
		if k[0] == client && o.parent == handle {
			m.free(client, k[1])
		}
	}
}

// TestLedgerIsTheModel drives the ledger through any interleaving of calls and
// compares it with the model after each.
func TestLedgerIsTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const quota = 1000
		l := newLedger([]uint64{quota})
		m := &model{quota: quota, objects: make(map[[2]uint32]modelObject), maps: make(map[uint64]int), bytes: make(map[int]uint64)}
		clients := []uint32{100, 200}
		for _, c := range clients {
			l.addClient(c, int(c))
		}
		type pending struct{ bytes uint64 }
		var open []pending // reservations of calls under way
		var reserved uint64
		client := rapid.SampledFrom(clients)
		handle := rapid.Uint32Range(1, 8)
		size := rapid.Uint64Range(1, 400)
		base := rapid.Uint64Range(1, 4)
		known := func(c uint32) bool { return l.hasClient(c) }
		t.Repeat(map[string]func(*rapid.T){
			"reserve": func(t *rapid.T) {
				n := size.Draw(t, "bytes")
				want := m.used()+reserved+n <= quota
				if got := l.reserve(0, n); got != want {
					t.Fatalf("reserve %d of %d with %d used: %v", n, quota, m.used()+reserved, got)
				}
				if want {
					open = append(open, pending{n})
					reserved += n
				}
			},
			"cancel": func(t *rapid.T) {
				if len(open) == 0 {
					t.Skip()
				}
				l.cancel(0, open[0].bytes)
				reserved -= open[0].bytes
				open = open[1:]
			},
			"settle": func(t *rapid.T) {
				if len(open) == 0 {
					t.Skip()
				}
				p := open[0]
				open = open[1:]
				reserved -= p.bytes
				actual := p.bytes + rapid.Uint64Range(0, 300).Draw(t, "rounding")
				c, h, parent := client.Draw(t, "client"), handle.Draw(t, "handle"), handle.Draw(t, "parent")
				want := m.used()+reserved+actual <= quota && known(c)
				got := l.settle(0, p.bytes, actual, newObject{client: c, parent: parent, handle: h, kind: nvabi.KindVideoMemory})
				if got != want {
					t.Fatalf("settle %d: %v", actual, got)
				}
				if want {
					m.free(c, h)
					m.next++
					m.bytes[m.next] = actual
					if _, ok := m.objects[[2]uint32{c, parent}]; !ok {
						parent = c
					}
					m.objects[[2]uint32{c, h}] = modelObject{parent, m.next}
				}
			},
			"add": func(t *rapid.T) {
				c, h, parent := client.Draw(t, "client"), handle.Draw(t, "handle"), handle.Draw(t, "parent")
				l.add(newObject{client: c, parent: parent, handle: h, class: nvgpu.NV01_DEVICE_0})
				if known(c) {
					m.free(c, h)
					if _, ok := m.objects[[2]uint32{c, parent}]; !ok {
						parent = c
					}
					m.objects[[2]uint32{c, h}] = modelObject{parent: parent}
				}
			},
			"duplicate": func(t *rapid.T) {
				dst, src := client.Draw(t, "to"), client.Draw(t, "from")
				h, s, parent := handle.Draw(t, "handle"), handle.Draw(t, "source"), handle.Draw(t, "parent")
				l.duplicate(dst, parent, h, src, s)
				if known(dst) {
					o := m.objects[[2]uint32{src, s}]
					m.free(dst, h)
					if _, ok := m.objects[[2]uint32{dst, parent}]; !ok {
						parent = dst
					}
					m.objects[[2]uint32{dst, h}] = modelObject{parent, o.allocation}
				}
			},
			"free": func(t *rapid.T) {
				c, h := client.Draw(t, "client"), handle.Draw(t, "handle")
				l.free(c, h)
				m.free(c, h)
			},
			"free client": func(t *rapid.T) {
				c := client.Draw(t, "client")
				l.free(c, c)
				m.free(c, c)
				if rapid.Bool().Draw(t, "again") {
					l.addClient(c, int(c))
				}
			},
			"map": func(t *rapid.T) {
				c, h, b := client.Draw(t, "client"), handle.Draw(t, "handle"), base.Draw(t, "base")
				l.mapExternal(1, none, b, 1, c, h)
				if o := m.objects[[2]uint32{c, h}]; o.allocation != 0 {
					m.maps[b] = o.allocation
				}
			},
			"unmap": func(t *rapid.T) {
				b := base.Draw(t, "base")
				l.unmapExternal(1, span{b, b + 1})
				delete(m.maps, b)
			},
			"": func(t *rapid.T) {
				if _, used := l.balance(0); used != m.used()+reserved {
					t.Fatalf("used %d, the model says %d and %d reserved", used, m.used(), reserved)
				}
				if a := l.cards[0]; a.used() > a.quota {
					t.Fatalf("used %d of %d", a.used(), a.quota)
				}
				n := 0
				for _, c := range l.clients {
					n += len(c.objects)
				}
				if n != l.objects {
					t.Fatalf("%d objects, counted %d", n, l.objects)
				}
			},
		})
		for _, p := range open {
			l.cancel(0, p.bytes)
		}
		for _, c := range clients {
			l.free(c, c)
		}
		if s := l.takeSpace(1); s != nil {
			l.dropMappings(s)
		}
		if _, used := l.balance(0); used != 0 || l.objects != 0 || l.inFlight != 0 {
			t.Fatalf("at the end: used %d, %d objects, %d calls", used, l.objects, l.inFlight)
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
