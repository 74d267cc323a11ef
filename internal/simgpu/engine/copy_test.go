package engine

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

// copyMethods adds a copy's registers and its launch.
func (c *client) copyMethods(src, dst uint64, pitchIn, pitchOut, length, lines, launch uint32) {
	c.method(4, copyOffsetIn, uint32(src>>32), uint32(src), uint32(dst>>32), uint32(dst), pitchIn, pitchOut, length, lines)
	c.method(4, copyLaunch, launch)
}

const pitchLayouts = 2 | launchSrcPitch | launchDstPitch

func TestCopy(t *testing.T) {
	for name, class := range map[string]uint32{"Turing": 0xc5b5, "Ampere": 0xc6b5} {
		t.Run(name, func(t *testing.T) {
			b, c := one(t, nil)
			c.store(testData, []byte("simulated"))
			c.bind(4, class)
			c.method(4, copySemaphore, testData>>32, 0x200, 8)
			c.copyMethods(testData, testData+0x100, 0, 0, 9, 0, pitchLayouts|2<<3)
			c.submit()
			b.pass(100_000)
			if got := c.load(testData+0x100, 10); string(got) != "simulated\x00" {
				t.Errorf("copied %q", got)
			}
			if c.word(testData+0x200) != 8 || c.quad(testData+0x208) == 0 {
				t.Errorf("semaphore is %d at time %d", c.word(testData+0x200), c.quad(testData+0x208))
			}
		})
	}
}

func TestCopyTakesItsTime(t *testing.T) {
	b, c := one(t, nil)
	c.data.PlaceOnHost()
	c.bind(4, 0xc5b5)
	c.method(4, copySemaphore, testData>>32, 0x200, 8)
	c.copyMethods(testData+0x1000, testData+testSize/2, 0, 0, 3<<20, 0, pitchLayouts|1<<3)
	c.submit()
	const want = 3 << 20 * 1_000_000_000 / 12_000_000_000
	b.pass(want - 1000)
	if c.word(testData+0x200) != 0 {
		t.Fatal("the copy is done too soon")
	}
	b.pass(copyLatency + 2000)
	if c.word(testData+0x200) != 8 {
		t.Error("the copy is not done in its time")
	}
}

// TestCopyLines compares copies of every shape with a plain loop.
func TestCopyLines(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		b, c := one(t, nil)
		length := rapid.IntRange(0, 5000).Draw(r, "length")
		lines := rapid.IntRange(0, 9).Draw(r, "lines")
		pitchIn := rapid.IntRange(-5000, 6000).Draw(r, "pitch in")
		pitchOut := rapid.IntRange(length, 6000).Draw(r, "pitch out")
		const src, dst, size = 100_000, 1_000_000, 100_000
		before := make([]byte, 2*size)
		for i := range before {
			before[i] = byte(i*7 + i>>8)
		}
		c.store(testData, before)
		c.bind(4, 0xc5b5)
		c.copyMethods(testData+src, testData+dst, uint32(pitchIn), uint32(pitchOut), uint32(length), uint32(lines), pitchLayouts|launchMultiLine)
		c.submit()
		b.pass(1_000_000)
		want := make([]byte, size)
		for y := range lines {
			copy(want[y*pitchOut:][:length], before[src+y*pitchIn:])
		}
		if got := c.load(testData+dst, size); !bytes.Equal(got, want) {
			r.Fatalf("wrong data; fault %v", c.channel.fault)
		}
	})
}

// TestRemap compares composed elements with a plain loop.
func TestRemap(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		b, c := one(t, nil)
		size := rapid.IntRange(1, 4).Draw(r, "size")
		from := rapid.IntRange(1, 4).Draw(r, "from")
		to := rapid.IntRange(1, 4).Draw(r, "to")
		n := rapid.SampledFrom([]int{0, 1, 3, 100, 12_000}).Draw(r, "elements")
		components := uint32((size-1)<<16 | (from-1)<<20 | (to-1)<<24)
		var choose [4]int
		for k := range to {
			choose[k] = rapid.SampledFrom(append([]int{4, 5, 6}, []int{0, 1, 2, 3}[:from]...)).Draw(r, "component")
			components |= uint32(choose[k] << (4 * k))
		}
		const dst = 200_000 // more than a scratch buffer's half
		before := make([]byte, 2*dst)
		for i := range before {
			before[i] = byte(i*7 + i>>8)
		}
		c.store(testData, before)
		c.bind(4, 0xc5b5)
		c.method(4, copyConstA, 0x44332211, 0x88776655, components)
		c.copyMethods(testData, testData+dst, 0, 0, uint32(n), 1, pitchLayouts|launchRemap)
		c.submit()
		b.pass(1_000_000)
		want := bytes.Clone(before[dst:])
		constant := [8]byte{0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88}
		for e := range n {
			for k := range to {
				cell := want[(e*to+k)*size:][:size]
				switch ch := choose[k]; {
				case ch < 4:
					copy(cell, before[(e*from+ch)*size:])
				case ch < 6:
					copy(cell, constant[(ch-4)*4:])
				}
			}
		}
		if got := c.load(testData+dst, len(want)); !bytes.Equal(got, want) {
			r.Fatalf("wrong data; fault %v", c.channel.fault)
		}
	})
}

func TestClearingBigMemoryTakesNone(t *testing.T) {
	b, c := one(t, nil)
	big := shared(t, 40<<30)
	const at = 0x70_0000_0000
	if err := c.space.Map(at, big.Size(), big, 0); err != nil {
		t.Fatal(err)
	}
	c.store(at+12<<30, []byte("something"))
	c.bind(4, 0xc5b5)
	c.method(4, copyConstA, 0, 0, 4|3<<16)
	for i := range uint64(10) {
		c.copyMethods(0, at+i<<32, 0, 0, 1<<30, 1, pitchLayouts|launchRemap)
	}
	c.semRelease(testData, 1)
	c.submit()
	b.pass(200_000_000)
	if c.word(testData) != 1 {
		t.Fatalf("not done; fault %v", c.channel.fault)
	}
	if got := c.load(at+12<<30, 9); !bytes.Equal(got, make([]byte, 9)) {
		t.Errorf("left %q", got)
	}
	if blocks := fileBlocks(t, big); blocks > 64 {
		t.Errorf("%d blocks are backed, want next to none", blocks)
	}
}

func TestBuiltinKernels(t *testing.T) {
	const dst, src = testData + 0x1000, testData + 0x8000
	one := [3]uint32{1, 1, 1}
	before := bytes.Repeat([]byte("0123456789abcdefg"), 1000)
	tests := []struct {
		name   string
		kernel builtin
		grid   [3]uint32
		p      parameters
		want   []byte // what lies at dst then
	}{
		{"fill words", fillWords, [3]uint32{1, 2, 1}, parameters{dst, 0x01020304, 3, 16}, []byte{
			4, 3, 2, 1, 4, 3, 2, 1, 4, 3, 2, 1, 0, 0, 0, 0, 4, 3, 2, 1, 4, 3, 2, 1, 4, 3, 2, 1, 0, 0,
		}},
		{"fill bytes", fillBytes, one, parameters{dst + 1, 0xa5a5a5a5, 5}, []byte{0, 0xa5, 0xa5, 0xa5, 0xa5, 0xa5, 0}},
		{"fill bytes in pairs", fillBytes, one, parameters{dst, 0x12341234, 6}, []byte{0x34, 0x12, 0x34, 0x12, 0x34, 0x12, 0}},
		{"copy rows", copyRows, one, parameters{dst, src, 2, 2, 3, 4}, []byte("01\x0045\x00")},
		{"copy uneven rows", copyUnevenRows, one, parameters{dst, 3, 2, src, 4, 2<<32 | 7}, []byte("01\x0045\x00")},
		{"copy words", copyWords, one, parameters{dst, src, 2}, []byte("01234567\x00")},
		{"copy bytes", copyBytes, one, parameters{dst + 1, src, 5}, []byte("\x0001234\x00")},
		{"copy uneven", copyUneven, one, parameters{dst + 4, src + 4, 3, 2, 1}, []byte("\x00123456789abc\x00")},
		{"copy blocks", copyBlocks, [3]uint32{2, 1, 1}, parameters{dst, src}, append(before[:8192:8192], 0)},
		{"copy edges", copyEdges, one, parameters{dst, src, 3, 4, 5}, []byte("012\x00\x00\x00\x0078\x00")},
		{"copy one edge", copyEdges, one, parameters{dst, src, 3, 4, 2}, []byte("01\x00\x00")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b, c := withKernel(t, tt.kernel)
			c.store(src, before)
			for i, p := range tt.p {
				c.setWord(testData+parametersAt+8*uint64(i), uint32(p))
				c.setWord(testData+parametersAt+8*uint64(i)+4, uint32(p>>32))
			}
			c.bind(1, 0xc5c0)
			c.launch(qmdOf(2, tt.grid, [3]uint32{256, 1, 1}, 0))
			c.semRelease(testData, 1)
			c.submit()
			b.pass(1_000_000)
			if c.word(testData) != 1 {
				t.Fatalf("not done; fault %v", c.channel.fault)
			}
			if got := c.load(dst, len(tt.want)); !bytes.Equal(got, tt.want) {
				t.Errorf("left %q, want %q", got[:min(64, len(got))], tt.want[:min(64, len(tt.want))])
			}
		})
	}
}

// withKernel is a card with one channel, whose code is that of the given kernel.
func withKernel(t *testing.T, f builtin) (*bench, *client) {
	b, c := one(t, nil)
	hash, ok := c.channel.codeHash(testCode)
	if !ok {
		t.Fatal("there is no code")
	}
	b.card.builtins = map[uint32]builtin{hash: f}
	return b, c
}
