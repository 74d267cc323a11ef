package simgpu

// framebuffer is a card's video memory as amounts, in bytes: what the driver
// keeps, what is taken, and the rest. At every moment reserved + used + free is
// the card's memory.
type framebuffer struct {
	total, reserved, used uint64
}

// heap is what clients and the driver's own objects may use together.
func (f *framebuffer) heap() uint64 { return f.total - f.reserved }

func (f *framebuffer) free() uint64 { return f.heap() - f.used }

// take reserves n bytes, or reports that they are not there.
func (f *framebuffer) take(n uint64) bool {
	if n > f.free() {
		return false
	}
	f.used += n
	return true
}

// give returns n bytes that take took.
func (f *framebuffer) give(n uint64) {
	if n > f.used {
		panic("simgpu: more video memory given back than was taken")
	}
	f.used -= n
}
