package engine

import (
	"encoding/binary"
	"log/slog"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/qgpu-project/qgpu/internal/simgpu/gpumem"
)

// Where a test's client keeps what, as GPU addresses.
const (
	testRing  = 0x10_0000_0000
	testPush  = 0x20_0000_0000
	testData  = 0x30_0000_0000
	testCode  = 0x40_0000_0000
	testEntry = 64
	testSize  = 8 << 20
)

// handClock is a host clock that tests move.
type handClock struct{ now uint64 }

func newHandClock() *handClock { return &handClock{now: 1_000_000_000_000} }

func (h *handClock) clock() clock { return clock{host: func() uint64 { return h.now }} }

// bench is a card without a loop, on a clock of the test's own.
type bench struct {
	t    testing.TB
	card *Engine
	host *handClock

	patience int // turns at one time after which the card may go on later
}

func newBench(t testing.TB, cfg Config) *bench {
	t.Helper()
	h := newHandClock()
	b := &bench{t: t, card: newEngine(cfg, h.clock()), host: h, patience: 1000}
	t.Cleanup(b.card.Close)
	return b
}

// pass lets d ns of the host's time go by, in which the card gets a turn every 20 µs.
func (b *bench) pass(d uint64) {
	b.turn()
	for end := b.host.now + d; b.host.now < end; {
		b.host.now += min(20_000, end-b.host.now)
		b.turn()
	}
}

// turn does turns until nothing is left to do at this time.
func (b *bench) turn() {
	b.card.mu.Lock()
	defer b.card.mu.Unlock()
	for range b.patience {
		if b.card.turn() != 0 {
			return
		}
	}
}

// client is the user space of one channel.
type client struct {
	t       testing.TB
	space   *gpumem.Space
	ring    *gpumem.Shared
	push    *gpumem.Shared
	data    *gpumem.Shared
	userd   []byte
	channel *Channel

	put   uint32
	at    uint64 // in push
	words []uint32
}

func shared(t testing.TB, size uint64) *gpumem.Shared {
	t.Helper()
	m, err := gpumem.NewShared("test", size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// newClient makes a channel in a space of its own, enabled.
func newClient(t testing.TB, e *Engine, g *Group, with func(*ChannelConfig)) *client {
	t.Helper()
	c := &client{t: t, space: gpumem.NewSpace(), ring: shared(t, 8*testEntry), push: shared(t, testSize), data: shared(t, testSize)}
	code := shared(t, gpumem.PageSize)
	for va, m := range map[uint64]*gpumem.Shared{testRing: c.ring, testPush: c.push, testData: c.data, testCode: code} {
		if err := c.space.Map(va, m.Size(), m, 0); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(c.space.Clear)
	c.userd = make([]byte, userdSize)
	cfg := ChannelConfig{Group: g, Space: c.space, GPFIFO: testRing, Entries: testEntry, USERD: c.userd}
	if with != nil {
		with(&cfg)
	}
	ch, err := e.NewChannel(cfg)
	if err != nil {
		t.Fatal(err)
	}
	c.channel = ch
	ch.Enable(true)
	t.Cleanup(ch.Close)
	return c
}

// method adds a method with its data to the segment, addresses increasing.
func (c *client) method(sub, address uint32, data ...uint32) {
	c.words = append(c.words, 1<<29|uint32(len(data))<<16|sub<<13|address>>2)
	c.words = append(c.words, data...)
}

// write puts the segment and its entry in memory; it returns the next GP_PUT.
func (c *client) write() uint32 {
	c.t.Helper()
	b := make([]byte, 0, 4*len(c.words))
	for _, w := range c.words {
		b = binary.LittleEndian.AppendUint32(b, w)
	}
	if c.at+uint64(len(b)) > testSize {
		c.at = 0
	}
	addr := testPush + c.at
	c.store(addr, b)
	entry := binary.LittleEndian.AppendUint64(nil, addr|uint64(len(c.words))<<42)
	c.store(testRing+8*uint64(c.put), entry)
	c.at += uint64(len(b))
	c.words = c.words[:0]
	c.put = (c.put + 1) % testEntry
	return c.put
}

// submit hands the segment to the card.
func (c *client) submit() {
	c.t.Helper()
	put := c.write()
	storePut(c.channel, put)
}

func (c *client) store(va uint64, b []byte) {
	c.t.Helper()
	if err := c.space.WriteAt(b, va); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) load(va uint64, n int) []byte {
	c.t.Helper()
	b := make([]byte, n)
	if err := c.space.ReadAt(b, va); err != nil {
		c.t.Fatal(err)
	}
	return b
}

func (c *client) word(va uint64) uint32 { return binary.LittleEndian.Uint32(c.load(va, 4)) }
func (c *client) quad(va uint64) uint64 { return binary.LittleEndian.Uint64(c.load(va, 8)) }
func (c *client) setWord(va uint64, v uint32) {
	c.store(va, binary.LittleEndian.AppendUint32(nil, v))
}

// semRelease and semAcquire use the host's semaphores, of 32 bits.
func (c *client) semRelease(va uint64, payload uint32) {
	c.method(0, hostSemAddrLo, uint32(va), uint32(va>>32), payload, 0, 1)
}

func (c *client) semAcquire(va uint64, payload, operation uint32) {
	c.method(0, hostSemAddrLo, uint32(va), uint32(va>>32), payload, 0, operation)
}

// qmdOf is a launch descriptor for code at testCode+code.
func qmdOf(version uint32, grid, block [3]uint32, code uint64) qmd {
	var q qmd
	q[12], q[13], q[14] = grid[0], grid[1], grid[2]
	q[18] = version<<4 | block[0]<<16
	q[19] = block[1] | block[2]<<16
	program := testCode + code
	q[48], q[49] = uint32(program), uint32(program>>32)
	q[32], q[33] = testData&0xffffffff, testData>>32
	return q
}

// releaseV2 makes a version 2 descriptor release a semaphore of one word.
func (q *qmd) releaseV2(va uint64, payload uint32) {
	q[4] |= 1 << 10
	q[23], q[24], q[25] = uint32(va), uint32(va>>32)|1<<31, payload
}

// launch sends a descriptor through the pushbuffer.
func (c *client) launch(q qmd) { c.method(1, computeQMDAddress, append([]uint32{0, 0}, q[:]...)...) }

func (c *client) bind(sub, class uint32) { c.method(sub, hostSetObject, class) }

func testLog(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(string(p))
	return len(p), nil
}

// fileBlocks is the memory, in units of 512 bytes, that backs m.
func fileBlocks(t testing.TB, m *gpumem.Shared) int64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(int(m.File().Fd()), &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks
}
