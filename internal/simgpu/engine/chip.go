package engine

import (
	"math"
	"math/bits"
	"time"

	"github.com/qgpu-project/qgpu/internal/simgpu/gpumem"
)

// Chip holds the facts of a card that decide how long its work takes. A field that is
// zero takes the value that it has in [TeslaT4].
type Chip struct {
	Name            string
	SMs             int    // streaming multiprocessors
	ThreadsPerSM    int    // resident at once
	BlocksPerSM     int    // resident at once
	RegistersPerSM  int    // of 32 bits
	SharedPerSM     int    // bytes of shared memory
	ClockMHz        int    // of the SMs
	MemoryBandwidth uint64 // of video memory, bytes/s
	BusBandwidth    uint64 // of the link to the host, bytes/s, each way
	CopyEngines     int
	// SwitchTime is lost when the runlist turns to another group, PreemptTime in addition when
	// that interrupts a kernel. The defaults are estimates; no measurement of them is public.
	SwitchTime, PreemptTime time.Duration
}

// TeslaT4 returns the facts of the Tesla T4 (NVIDIA's T4 product brief; Turing
// whitepaper, table 1).
func TeslaT4() Chip {
	return Chip{
		Name:            "Tesla T4",
		SMs:             40,
		ThreadsPerSM:    1024,
		BlocksPerSM:     16,
		RegistersPerSM:  65536,
		SharedPerSM:     65536,
		ClockMHz:        1590,
		MemoryBandwidth: 320e9,
		BusBandwidth:    12e9,
		CopyEngines:     3,
		SwitchTime:      5 * time.Microsecond,
		PreemptTime:     5 * time.Microsecond,
	}
}

// orElse fills in what c leaves open.
func (c Chip) orElse(d Chip) Chip {
	fill(&c.Name, d.Name)
	fill(&c.SMs, d.SMs)
	fill(&c.ThreadsPerSM, d.ThreadsPerSM)
	fill(&c.BlocksPerSM, d.BlocksPerSM)
	fill(&c.RegistersPerSM, d.RegistersPerSM)
	fill(&c.SharedPerSM, d.SharedPerSM)
	fill(&c.ClockMHz, d.ClockMHz)
	fill(&c.MemoryBandwidth, d.MemoryBandwidth)
	fill(&c.BusBandwidth, d.BusBandwidth)
	fill(&c.CopyEngines, d.CopyEngines)
	fill(&c.SwitchTime, d.SwitchTime)
	fill(&c.PreemptTime, d.PreemptTime)
	return c
}

func fill[T comparable](v *T, other T) {
	var zero T
	if *v == zero {
		*v = other
	}
}

// The model of how long work takes, in ns.
//
// A kernel takes launchTime plus waveCycles SM clocks for each wave of its blocks: as
// many blocks run at once as the SMs have room for, by threads, blocks, registers and
// shared memory. A kernel by which libcuda moves data takes launchTime plus the time
// that video memory needs to read and write it. A copy takes copyLatency plus its bytes
// over the bandwidth of the link, if one end is in host memory, or else of video
// memory, twice.
const (
	launchTime  = 2_000
	copyLatency = 1_500
	waveCycles  = 2_000
	maxTime     = uint64(24 * time.Hour)
)

// gridTime is the time of an ordinary kernel.
func (c *Chip) gridTime(k kernel) uint64 {
	blocks := mul(mul(uint64(k.grid[0]), uint64(k.grid[1])), uint64(k.grid[2]))
	resident := uint64(c.SMs) * c.residentBlocks(k)
	waves := blocks / resident
	if blocks%resident != 0 {
		waves++
	}
	return launchTime + scale(waves, waveCycles*1000, uint64(c.ClockMHz))
}

// residentBlocks is how many of the kernel's blocks one SM runs at once, at least one.
func (c *Chip) residentBlocks(k kernel) uint64 {
	threads := mul(mul(uint64(k.block[0]), uint64(k.block[1])), uint64(k.block[2]))
	threads = max((min(threads, 1<<20)+31)&^31, 32)
	n := min(uint64(c.BlocksPerSM), uint64(c.ThreadsPerSM)/threads)
	if k.registers > 0 {
		n = min(n, uint64(c.RegistersPerSM)/(threads*uint64(k.registers)))
	}
	if k.shared > 0 {
		n = min(n, uint64(c.SharedPerSM)/uint64(k.shared))
	}
	return max(n, 1)
}

// memoryTime is the time of a kernel that moves t within video memory.
func (c *Chip) memoryTime(t *transfer) uint64 {
	length := uint64(launchTime)
	for ; t != nil; t = t.next {
		touched := t.bytes()
		if len(t.shape.pattern) == 0 {
			touched = mul(touched, 2)
		}
		length += scale(touched, 1e9, c.MemoryBandwidth)
	}
	return length
}

// copyTime is the time of a transfer by a copy engine, without its latency.
func (e *Engine) copyTime(s *gpumem.Space, t *transfer) uint64 {
	if s.OnHost(t.dst) || len(t.shape.pattern) == 0 && s.OnHost(t.src) {
		return scale(t.bytes(), 1e9, e.chip.BusBandwidth)
	}
	return e.chip.memoryTime(t) - launchTime
}

// mul multiplies, saturated.
func mul(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	if hi != 0 {
		return math.MaxUint64
	}
	return lo
}

// scale is n*num/den, at most maxTime.
func scale(n, num, den uint64) uint64 {
	hi, lo := bits.Mul64(n, num)
	if hi >= den {
		return maxTime
	}
	q, _ := bits.Div64(hi, lo, den)
	return min(q, maxTime)
}
