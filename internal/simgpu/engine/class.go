package engine

import "slices"

// object is a class bound to a subchannel, with its registers.
type object struct {
	class *class
	id    uint32
	regs  [0x1000]uint32 // by address/4

	inline inlineState // of the inline-to-memory methods
}

// reg is the register at an address.
func (o *object) reg(address uint32) uint32 { return o.regs[address/4] }

// pair is the 49-bit address whose upper part is in the register at address and whose
// lower part is in the next.
func (o *object) pair(address uint32) uint64 {
	return uint64(o.reg(address)&0x1ffff)<<32 | uint64(o.reg(address+4))
}

// class says what the methods of an engine class do.
type class struct {
	name    string
	methods map[uint32]func(c *Channel, o *object, v uint32) error
	inert   []span // methods that only set a register, sorted
}

// span is a range of method addresses, both ends included.
type span struct{ first, last uint32 }

// known tells whether the class has a method at the address.
func (c *class) known(address uint32) bool {
	_, found := slices.BinarySearchFunc(c.inert, address, func(s span, a uint32) int {
		switch {
		case s.last < a:
			return -1
		case s.first > a:
			return 1
		}
		return 0
	})
	return found
}

// classes are the engine classes by number. Those of Turing and Ampere differ in
// nothing that matters here but the version of the launch descriptor, which it states
// itself.
var classes = map[uint32]*class{
	0xc5c0: &computeClass, // TURING_COMPUTE_A
	0xc6c0: &computeClass, // AMPERE_COMPUTE_A
	0xc7c0: &computeClass, // AMPERE_COMPUTE_B
	0xc5b5: &copyClass,    // TURING_DMA_COPY_A
	0xc6b5: &copyClass,    // AMPERE_DMA_COPY_A
	0xc7b5: &copyClass,    // AMPERE_DMA_COPY_B
	0xa140: &inlineClass,  // KEPLER_INLINE_TO_MEMORY_B
}

// otherClass stands for the classes that CUDA binds and never uses: 2D, 3D.
var otherClass = class{name: "other", inert: []span{{0, 0x3fff}}}

// bind executes SET_OBJECT.
func (c *Channel) bind(id uint32) error {
	k := classes[id]
	if k == nil {
		k = &otherClass
		c.engine.unknown("host", hostSetObject, id)
	}
	o := c.objects[c.header.sub]
	switch {
	case o == nil:
		c.objects[c.header.sub] = &object{class: k, id: id}
	case o.id != id:
		*o = object{class: k, id: id}
	}
	return nil
}
