package engine

import (
	"encoding/binary"
	"testing"
)

// seeds are pushbuffers that do something.
func seeds(c *client) [][]uint32 {
	var all [][]uint32
	keep := func() { all = append(all, append([]uint32(nil), c.words...)); c.words = c.words[:0] }
	c.semRelease(testData, 1)
	c.semAcquire(testData, 1, 3)
	keep()
	c.method(0, hostSemaphoreA, testData>>32, 0x100, 7, 2)
	keep()
	c.bind(1, 0xc5c0)
	q := qmdOf(2, [3]uint32{1, 2, 3}, [3]uint32{32, 1, 1}, 0)
	q.releaseV2(testData+0x40, 3)
	c.launch(q)
	c.method(1, computeReport, testData>>32, 0x40, 5, reportReduce)
	keep()
	c.bind(1, 0xc6c0)
	c.launch(qmdOf(3, [3]uint32{1 << 31, 65535, 65535}, [3]uint32{1024, 1024, 64}, 0))
	c.method(1, computePCASA, (testData+0x1000)>>8, 0, 0, 2, 2)
	keep()
	c.bind(1, 0xa140)
	c.method(1, i2mLineLength, 6, 2, testData>>32, 0x40, 16)
	c.method(1, i2mLaunch, 1)
	c.method(1, i2mData, 1)
	keep()
	c.bind(4, 0xc5b5)
	c.method(4, copySemaphore, testData>>32, 0x200, 8)
	c.method(4, copyConstA, 0, 1, 4|3<<16)
	c.copyMethods(testData, testData+0x100, 32, 32, 9, 3, pitchLayouts|launchMultiLine|launchRemap|2<<3)
	c.copyMethods(testData, testData+0x100, 0xfffffff0, 32, 0xffffffff, 0xffffffff, 2|launchMultiLine)
	keep()
	return all
}

// FuzzPushbuffer runs what a hostile client might submit beside a peaceful one. The
// card must not panic, each turn must end, and the peaceful client must be served.
func FuzzPushbuffer(f *testing.F) {
	for _, words := range seeds(&client{}) {
		var b []byte
		for _, w := range words {
			b = binary.LittleEndian.AppendUint32(b, w)
		}
		f.Add(b, uint32(1))
	}
	f.Add([]byte{0, 0, 0, 0}, uint32(0xffffffff))
	f.Fuzz(func(t *testing.T, data []byte, put uint32) {
		b := newBench(t, Config{})
		b.patience = 3
		bad := newClient(t, b.card, b.card.NewGroup("bad"), nil)
		good := newClient(t, b.card, b.card.NewGroup("good"), nil)
		for len(data) >= 4 && len(bad.words) < 1<<16 {
			bad.words = append(bad.words, binary.LittleEndian.Uint32(data))
			data = data[4:]
		}
		bad.write()
		storePut(bad.channel, put)
		b.pass(1_000_000)
		good.semRelease(testData, 1)
		good.submit()
		b.pass(5_000_000)
		if good.channel.fault != nil {
			t.Fatalf("the peaceful channel faulted: %v", good.channel.fault)
		}
		if good.word(testData) != 1 {
			t.Fatal("the peaceful channel was not served")
		}
	})
}

// FuzzDescriptor decodes launch descriptors.
func FuzzDescriptor(f *testing.F) {
	add := func(q qmd) {
		var b []byte
		for _, w := range q {
			b = binary.LittleEndian.AppendUint32(b, w)
		}
		f.Add(b)
	}
	add(qmdOf(2, [3]uint32{1, 2, 3}, [3]uint32{32, 1, 1}, 0))
	add(qmdOf(3, [3]uint32{1 << 31, 65535, 65535}, [3]uint32{1024, 1024, 64}, 0))
	chip := TeslaT4()
	f.Fuzz(func(t *testing.T, data []byte) {
		var q qmd
		for i := range q {
			if len(data) >= 4*(i+1) {
				q[i] = binary.LittleEndian.Uint32(data[4*i:])
			}
		}
		if d := chip.gridTime(q.kernel()); d < launchTime || d > launchTime+maxTime {
			t.Errorf("a grid takes %d ns", d)
		}
		l, err := q.layout()
		if err != nil {
			return
		}
		for _, r := range l.releases {
			if got, _, ok := q.release(r); ok && got.addr >= 1<<40 {
				t.Errorf("a release goes to %#x", got.addr)
			}
		}
	})
}
