package engine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/qgpu-project/qgpu/internal/simgpu/gpumem"
)

func storePut(c *Channel, put uint32) { atomic.StoreUint32(c.put, put) }

// word is a word that the card and a client share.
func word(b []byte) *uint32 { return (*uint32)(unsafe.Pointer(&b[0])) }

// one is a card with one channel.
func one(t testing.TB, with func(*ChannelConfig)) (*bench, *client) {
	t.Helper()
	b := newBench(t, Config{Log: testLog(t)})
	return b, newClient(t, b.card, b.card.NewGroup("one"), with)
}

func TestHostSemaphores(t *testing.T) {
	const at = testData + 0x100
	tests := []struct {
		name    string
		before  uint64
		data    []uint32 // of the method at first
		first   uint32
		want    uint64
		stamped bool
	}{
		{"release of 32 bits", 1 << 40, []uint32{0x100, testData >> 32, 7, 9, 1}, hostSemAddrLo, 1<<40 | 7, false},
		{"release of 64 bits", 0, []uint32{0x100, testData >> 32, 7, 9, 1 | 1<<24}, hostSemAddrLo, 9<<32 | 7, false},
		{"release with time", 0, []uint32{0x100, testData >> 32, 7, 9, 1 | 1<<25}, hostSemAddrLo, 7, true},
		{"addition", 5, []uint32{0x100, testData >> 32, 7, 0, 6 | 5<<27}, hostSemAddrLo, 12, false},
		{"signed minimum", 5, []uint32{0x100, testData >> 32, 0xffffffff, 0, 6}, hostSemAddrLo, 0xffffffff, false},
		{"unsigned minimum", 5, []uint32{0x100, testData >> 32, 0xffffffff, 0, 6 | 1<<31}, hostSemAddrLo, 5, false},
		{"increment that wraps", 5, []uint32{0x100, testData >> 32, 5, 0, 6 | 6<<27}, hostSemAddrLo, 0, false},
		{"old release", 0, []uint32{testData >> 32, 0x100, 7, 2 | 1<<24}, hostSemaphoreA, 7, false},
		{"old release with time", 0, []uint32{testData >> 32, 0x100, 7, 2}, hostSemaphoreA, 7, true},
		{"old addition", 5, []uint32{testData >> 32, 0x100, 7, 0x10 | 5<<27}, hostSemaphoreA, 12, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b, c := one(t, nil)
			c.store(at, binary.LittleEndian.AppendUint64(nil, tt.before))
			c.method(0, tt.first, tt.data...)
			c.submit()
			b.turn()
			if got := c.quad(at); got != tt.want {
				t.Errorf("semaphore is %#x, want %#x", got, tt.want)
			}
			if got := c.quad(at + 8); (got == b.host.now) != tt.stamped || !tt.stamped && got != 0 {
				t.Errorf("time is %d at %d, want it stamped: %v", got, b.host.now, tt.stamped)
			}
			if got := binary.LittleEndian.Uint32(c.userd[userdGet:]); got != 1 {
				t.Errorf("GP_GET is %d, want 1", got)
			}
		})
	}
}

func TestAcquireWaits(t *testing.T) {
	const at = testData + 0x100
	tests := []struct {
		name      string
		operation uint32
		payload   uint32
		no, yes   uint32
	}{
		{"equal", 0, 5, 6, 5},
		{"greater or equal", 2, 5, 4, 6},
		{"circular", 3, 2, 0xfffffff0, 3},
		{"and", 4, 6, 9, 4},
		{"nor", 5, 6, 6, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b, c := one(t, nil)
			c.setWord(at, tt.no)
			c.semAcquire(at, tt.payload, tt.operation)
			c.semRelease(at+0x20, 1)
			c.submit()
			b.pass(3_000_000)
			if c.word(at+0x20) != 0 {
				t.Fatalf("went on although %#x was found", tt.no)
			}
			c.setWord(at, tt.yes)
			b.pass(3_000_000)
			if c.word(at+0x20) != 1 {
				t.Errorf("did not go on although %#x was there", tt.yes)
			}
		})
	}
}

func TestStalledChannelStallsNoOther(t *testing.T) {
	b := newBench(t, Config{})
	g := b.card.NewGroup("a")
	first, second := newClient(t, b.card, g, nil), newClient(t, b.card, g, nil)
	first.semAcquire(testData, 1, 0)
	first.semRelease(testData+0x20, 1)
	first.submit()
	second.semRelease(testData+0x20, 1)
	second.submit()
	b.pass(1_000_000)
	if first.word(testData+0x20) != 0 || second.word(testData+0x20) != 1 {
		t.Errorf("released %d and %d, want 0 and 1", first.word(testData+0x20), second.word(testData+0x20))
	}
}

func TestPushbufferForms(t *testing.T) {
	const at = testData + 0x100
	lo, hi := uint32(0x100), uint32(testData>>32)
	tests := []struct {
		name  string
		words []uint32
	}{
		{"increasing", []uint32{1<<29 | 5<<16 | 0x5c>>2, lo, hi, 7, 0, 1}},
		{"old increasing", []uint32{5<<18 | 0x5c, lo, hi, 7, 0, 1}},
		{"not increasing", []uint32{1<<29 | 4<<16 | 0x5c>>2, lo, hi, 7, 0, 3<<29 | 2<<16 | 0x6c>>2, 1, 1}},
		{"increasing once", []uint32{1<<29 | 3<<16 | 0x5c>>2, lo, hi, 7, 5<<29 | 2<<16 | 0x68>>2, 0, 1}},
		{"immediate", []uint32{1<<29 | 4<<16 | 0x5c>>2, lo, hi, 7, 0, 4<<29 | 1<<16 | 0x6c>>2}},
		{"after nothing", []uint32{0, 0, 1<<29 | 5<<16 | 0x5c>>2, lo, hi, 7, 0, 1}},
		{"before the end", []uint32{1<<29 | 5<<16 | 0x5c>>2, lo, hi, 7, 0, 1, 7 << 29, 6 << 29}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b, c := one(t, nil)
			c.words = append(c.words, tt.words...)
			c.submit()
			b.turn()
			if got := c.word(at); got != 7 || c.channel.fault != nil {
				t.Errorf("semaphore is %d, want 7; fault %v", got, c.channel.fault)
			}
		})
	}
}

func TestLaunchTakesItsTime(t *testing.T) {
	for name, class := range map[string]uint32{"Turing": 0xc5c0, "Ampere": 0xc6c0} {
		t.Run(name, func(t *testing.T) {
			b, c := one(t, nil)
			hash, _ := c.channel.codeHash(testCode)
			b.card.SetDuration(hash, 20*time.Millisecond)
			q := qmdOf(2, [3]uint32{1, 1, 1}, [3]uint32{32, 1, 1}, 0)
			q.releaseV2(testData+0x40, 3)
			c.bind(1, class)
			c.launch(q)
			c.semRelease(testData, 9)
			c.submit()
			b.pass(19_900_000)
			if c.word(testData+0x40) != 0 || c.word(testData) != 0 {
				t.Fatal("released before the kernel's time was over")
			}
			b.pass(200_000)
			if c.word(testData+0x40) != 3 || c.word(testData) != 9 {
				t.Errorf("released %d and %d, want 3 and 9", c.word(testData+0x40), c.word(testData))
			}
		})
	}
}

func TestVersion3Descriptor(t *testing.T) {
	b, c := one(t, nil)
	q := qmdOf(3, [3]uint32{1, 1, 1}, [3]uint32{32, 1, 1}, 0)
	const first, second = testData + 0x40, testData + 0x60
	q[24], q[25], q[26], q[27] = first&0xffffffff, first>>32|1<<23|1<<29|1<<30, 3, 4
	q[28], q[29], q[30] = second&0xffffffff, second>>32|1<<23|1<<26, 5
	c.setWord(second, 10)
	c.bind(1, 0xc6c0)
	c.launch(q)
	c.submit()
	b.pass(100_000)
	if got := c.quad(first); got != 4<<32|3 {
		t.Errorf("release of 64 bits wrote %#x", got)
	}
	if got := c.word(second); got != 15 {
		t.Errorf("reduction left %d, want 15", got)
	}
	if c.quad(second+8) != 0 {
		t.Error("a reduction stamped the time")
	}
}

func TestDescriptorInMemoryAndItsSuccessor(t *testing.T) {
	b, c := one(t, nil)
	first := qmdOf(2, [3]uint32{1, 1, 1}, [3]uint32{32, 1, 1}, 0)
	first[4] |= 1 << 13
	first[15] = (testData + 0x2000) >> 8
	second := qmdOf(2, [3]uint32{1, 1, 1}, [3]uint32{32, 1, 1}, 0)
	second.releaseV2(testData+0x40, 3)
	for i := range first {
		c.setWord(testData+0x1000+4*uint64(i), first[i])
		c.setWord(testData+0x2000+4*uint64(i), second[i])
	}
	c.bind(1, 0xc5c0)
	c.method(1, computePCASA, (testData+0x1000)>>8)
	c.method(1, computePCASSignal, pcasSchedule)
	c.submit()
	b.pass(100_000)
	if got := c.word(testData + 0x40); got != 3 {
		t.Errorf("released %d, want 3", got)
	}
}

// TestDescriptorThatWaits loads two descriptors as a graph of two kernels does: the
// second is only stored, to be started by the first.
func TestDescriptorThatWaits(t *testing.T) {
	b, c := one(t, nil)
	const second = testData + 0x2000
	q := qmdOf(2, [3]uint32{1, 1, 1}, [3]uint32{32, 1, 1}, 0)
	q[4] |= 1 << (qmdNeedsPCAS - 128)
	q.releaseV2(testData+0x40, 3)
	c.bind(1, 0xc5c0)
	c.method(1, computeQMDAddress, append([]uint32{0, second >> 8}, q[:]...)...)
	c.submit()
	b.pass(100_000)
	if got := c.word(testData + 0x40); got != 0 {
		t.Fatalf("released %d before it was scheduled", got)
	}
	first := qmdOf(2, [3]uint32{1, 1, 1}, [3]uint32{32, 1, 1}, 0)
	first[4] |= 1 << 13
	first[15] = second >> 8
	c.launch(first)
	c.submit()
	b.pass(100_000)
	if got := c.word(testData + 0x40); got != 3 {
		t.Errorf("released %d, want 3; fault %v", got, c.channel.fault)
	}
}

func TestCircleOfDescriptorsEnds(t *testing.T) {
	b, c := one(t, nil)
	q := qmdOf(2, [3]uint32{1, 1, 1}, [3]uint32{32, 1, 1}, 0)
	q[4] |= 1 << 13
	q[15] = (testData + 0x1000) >> 8
	for i := range q {
		c.setWord(testData+0x1000+4*uint64(i), q[i])
	}
	c.bind(1, 0xc5c0)
	c.method(1, computePCASA, (testData+0x1000)>>8)
	c.method(1, computePCASSignal, pcasSchedule)
	c.submit()
	b.pass(500_000_000)
	if c.channel.fault == nil {
		t.Error("the channel still runs after half a second")
	}
}

func TestReportSemaphoreAndInterrupts(t *testing.T) {
	calls := 0
	b, c := one(t, func(cfg *ChannelConfig) { cfg.Interrupt = func() { calls++ } })
	raise := func() {
		c.submit()
		b.turn()
		raised := b.card.raised
		b.card.raised = nil
		for _, r := range raised {
			r.raised = false
		}
		deliver(raised, nil)
	}
	c.bind(1, 0xc5c0)
	c.method(1, computeReport, testData>>32, 0x40, 5, 0)
	raise()
	if c.word(testData+0x40) != 5 || c.quad(testData+0x48) != b.host.now || calls != 0 {
		t.Errorf("report wrote %d at time %d, with %d interrupts", c.word(testData+0x40), c.quad(testData+0x48), calls)
	}
	c.method(1, computeReport, testData>>32, 0x60, 6, reportOneWord|reportAwaken)
	raise()
	if c.word(testData+0x60) != 6 || c.quad(testData+0x68) != 0 || calls != 1 {
		t.Errorf("report of one word wrote %d, time %d, with %d interrupts", c.word(testData+0x60), c.quad(testData+0x68), calls)
	}
	c.method(1, computeReport, 0, 0, 0, reportTrap)
	raise()
	c.method(0, hostNonStallIntr, 0)
	raise()
	if calls != 3 {
		t.Errorf("%d interrupts, want 3", calls)
	}
}

func TestInlineData(t *testing.T) {
	b, c := one(t, nil)
	c.bind(1, 0xc5c0)
	c.method(1, i2mLineLength, 6, 2, testData>>32, 0x40, 16)
	c.method(1, i2mLaunch, 1)
	c.method(1, i2mData, 0x04030201)
	c.words[len(c.words)-2] = 3<<29 | 4<<16 | 1<<13 | i2mData>>2
	c.words = append(c.words, 0xffff0605, 0x0d0c0b0a, 0xffff0f0e)
	c.submit()
	b.turn()
	want := []byte{1, 2, 3, 4, 5, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10, 11, 12, 13, 14, 15, 0, 0}
	if got := c.load(testData+0x40, len(want)); !bytes.Equal(got, want) {
		t.Errorf("stored %v, want %v; fault %v", got, want, c.channel.fault)
	}
}

func TestFaultStopsOneChannel(t *testing.T) {
	tests := map[string]func(c *client){
		"release where nothing is mapped": func(c *client) { c.semRelease(0x1000, 1) },
		"acquire where nothing is mapped": func(c *client) { c.semAcquire(0x1000, 1, 0) },
		"no header":                       func(c *client) { c.words = append(c.words, 6<<29) },
		"unbound subchannel":              func(c *client) { c.method(3, 0x300, 1) },
		"illegal method":                  func(c *client) { c.method(0, hostIllegal, 1) },
		"physical copy":                   func(c *client) { c.bind(4, 0xc5b5); c.method(4, copyLaunch, 1<<12) },
		"unknown descriptor":              func(c *client) { c.bind(1, 0xc5c0); c.launch(qmd{}) },
		"copy from nowhere": func(c *client) {
			c.bind(4, 0xc5b5)
			c.method(4, copyOffsetIn, 0, 0x1000, testData>>32, 0, 0, 0, 64, 1)
			c.method(4, copyLaunch, 2|launchSrcPitch|launchDstPitch)
		},
	}
	for name, push := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, Config{})
			g := b.card.NewGroup("a")
			var told error
			bad := newClient(t, b.card, g, func(cfg *ChannelConfig) { cfg.Fault = func(err error) { told = err } })
			good := newClient(t, b.card, g, nil)
			push(bad)
			bad.submit()
			b.turn()
			deliver(nil, b.card.faults)
			if told == nil {
				t.Error("no fault was reported")
			}
			bad.semRelease(testData, 1)
			bad.submit()
			good.semRelease(testData, 1)
			good.submit()
			b.pass(1_000_000)
			if bad.word(testData) != 0 || good.word(testData) != 1 {
				t.Errorf("released %d and %d, want 0 and 1", bad.word(testData), good.word(testData))
			}
		})
	}
}

func TestPutOutOfRange(t *testing.T) {
	b, c := one(t, nil)
	storePut(c.channel, testEntry)
	b.turn()
	if c.channel.fault == nil {
		t.Error("the channel runs with a GP_PUT beyond its ring")
	}
}

func TestFaultErrorNamesTheAddress(t *testing.T) {
	b, c := one(t, nil)
	c.semRelease(0x12340, 1)
	c.submit()
	b.turn()
	var f *gpumem.FaultError
	if !errors.As(c.channel.fault, &f) || f.Address != 0x12340 || !f.Write {
		t.Errorf("fault is %v, want a write to 0x12340", c.channel.fault)
	}
}
