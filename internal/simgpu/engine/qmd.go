package engine

import "fmt"

// qmdWords is the size of a launch descriptor in words of 32 bits.
const qmdWords = 64

// qmd is a launch descriptor ("queue meta data"), the grid that a compute engine is
// asked to run. Fields are named by their bits (clc5c0qmd.h, clc6c0qmd.h).
type qmd [qmdWords]uint32

// bits returns the field of n ≤ 32 bits, within one word, that begins at bit first.
func (q *qmd) bits(first, n int) uint32 {
	return q[first/32] >> (first % 32) & uint32(1<<n-1)
}

// Fields that lie at the same place in all versions.
const (
	qmdIsQueue       = 136
	qmdNeedsPCAS     = 140 // REQUIRE_SCHEDULING_PCAS
	qmdGridX         = 384 // CTA_RASTER_WIDTH, 32 bits
	qmdGridY         = 416 // 16 bits
	qmdGridZ         = 448 // 16 bits
	qmdNext          = 480 // DEPENDENT_QMD_POINTER, 32 bits, in units of 256 bytes
	qmdSharedMemory  = 544 // 18 bits
	qmdVersion       = 576 // 4 bits
	qmdMajorVersion  = 580 // 4 bits
	qmdBlockX        = 592 // 16 bits each
	qmdBlockY        = 608
	qmdBlockZ        = 624
	qmdRegisterCount = 648 // 9 bits
	qmdConstant0     = 1024
	qmdProgram       = 1536
)

// releaseFields says where a descriptor keeps one of its semaphore releases.
type releaseFields struct {
	enable    int // 1 bit
	address   int // 40 bits; the next word's upper bits hold the rest:
	operation int // 3 bits
	format    int // 2 bits
	reduce    int // 1 bit
	interrupt int // 2 bits; 0 where there is none
	wide      int // 1 bit; 0 where there is none
	oneWord   int // 1 bit, or 2 of which 1 means one word
	payload   int // 32 bits, or 64 if wide
}

// qmdLayout is what differs between versions of the descriptor.
type qmdLayout struct {
	releases   []releaseFields
	nextEnable int // the descriptor at qmdNext follows
}

var qmdLayouts = map[uint32]*qmdLayout{
	2: { // V02_02 to V02_04
		releases: []releaseFields{
			{enable: 138, address: 736, operation: 788, format: 792, reduce: 794, oneWord: 799, payload: 800},
			{enable: 139, address: 832, operation: 884, format: 888, reduce: 890, oneWord: 895, payload: 896},
		},
		nextEnable: 141,
	},
	3: { // V03_00
		releases: []releaseFields{
			{enable: 823, address: 768, operation: 820, format: 824, reduce: 826, interrupt: 827, wide: 829, oneWord: 830, payload: 832},
			{enable: 951, address: 896, operation: 948, format: 952, reduce: 954, interrupt: 955, wide: 957, oneWord: 958, payload: 960},
			{enable: 1719, address: 1664, operation: 1716, format: 1720, reduce: 1722, interrupt: 1723, wide: 1725, oneWord: 1726, payload: 1728},
		},
		nextEnable: 512,
	},
}

func (q *qmd) layout() (*qmdLayout, error) {
	major := q.bits(qmdMajorVersion, 4)
	if l := qmdLayouts[major]; l != nil {
		return l, nil
	}
	return nil, fmt.Errorf("the launch descriptor has version %d.%d; versions 2 and 3 are known", major, q.bits(qmdVersion, 4))
}

// release is one of the releases at the grid's end, if it is enabled.
func (q *qmd) release(f releaseFields) (r release, interrupt, ok bool) {
	if q.bits(f.enable, 1) == 0 {
		return release{}, false, false
	}
	r = release{
		addr:    uint64(q.bits(f.address+32, 8))<<32 | uint64(q.bits(f.address, 32)),
		payload: uint64(q.bits(f.payload, 32)),
		stamp:   q.bits(f.oneWord, 1) == 0,
		signed:  q.bits(f.format, 2) == 1,
	}
	if q.bits(f.reduce, 1) == 1 {
		r.reduce = computeReductions[q.bits(f.operation, 3)]
	}
	if f.wide != 0 && q.bits(f.wide, 1) == 1 {
		r.wide = true
		r.payload |= uint64(q.bits(f.payload+32, 32)) << 32
	}
	return r, f.interrupt != 0 && q.bits(f.interrupt, 2) != 0, true
}

// dependent is the descriptor that follows this one, in units of 256 bytes.
func (q *qmd) dependent(l *qmdLayout) (shifted uint32, ok bool) {
	return q.bits(qmdNext, 32), q.bits(l.nextEnable, 1) == 1
}

// waitsForSchedule tells whether loading the descriptor does not start its grid.
func (q *qmd) waitsForSchedule() bool { return q.bits(qmdNeedsPCAS, 1) == 1 }

// queue tells whether the descriptor is a queue of the card's own, not a grid.
func (q *qmd) queue() bool { return q.bits(qmdIsQueue, 1) == 1 }

// kernel is the part of a descriptor that says what runs.
type kernel struct {
	grid, block [3]uint32
	registers   uint32 // per thread
	shared      uint32 // bytes of shared memory per block
	program     uint64 // address of the code
	constants   uint64 // address of constant bank 0
}

func (q *qmd) kernel() kernel {
	return kernel{
		grid:      [3]uint32{q.bits(qmdGridX, 32), q.bits(qmdGridY, 16), q.bits(qmdGridZ, 16)},
		block:     [3]uint32{q.bits(qmdBlockX, 16), q.bits(qmdBlockY, 16), q.bits(qmdBlockZ, 16)},
		registers: q.bits(qmdRegisterCount, 9),
		shared:    q.bits(qmdSharedMemory, 18),
		program:   uint64(q.bits(qmdProgram+32, 17))<<32 | uint64(q.bits(qmdProgram, 32)),
		constants: uint64(q.bits(qmdConstant0+32, 17))<<32 | uint64(q.bits(qmdConstant0, 32)),
	}
}
