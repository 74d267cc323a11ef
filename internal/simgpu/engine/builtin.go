package engine

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
)

// codeBytes is how much of a kernel's code its hash covers.
const codeBytes = 256

// parametersAt is where a kernel's parameters begin in constant bank 0, on Turing and
// Ampere.
const parametersAt = 0x160

// builtin is what a kernel does by which libcuda moves data itself.
type builtin func(k kernel, p parameters) *transfer

// parameters are the first 64 bytes of a kernel's parameters.
type parameters [8]uint64

// builtins are libcuda's own kernels by the FNV-1a hash of their code, which differs
// with its version and the architecture that it compiles for. To add those of another:
// fill and copy memory on the card, of many sizes and alignments, with debug logging;
// the kernels are logged with their hashes and parameters. Those that copy between an
// array and other memory are left out: they read the array through a texture header,
// which is not decoded, and do nothing.
var builtins = map[uint32]builtin{
	// libcuda 535, sm_75
	0x6c8f5f80: fillWords,
	0xa09f4a4f: fillBytes,
	0x71835146: copyBytes,
	0x37df0f3a: copyWords,
	0x677ac5d7: copyUneven,
	0x1a69abb9: copyBlocks,
	0x26209583: copyBlocks,
	0x275ce777: copyEdges,
	0x7636e9af: copyRows,
	0xfdca2c52: copyRows,
	0x0802f9e5: copyUnevenRows,
	// libcuda 535, sm_80
	0x0c7f79ac: fillWords,
	0x665fbb96: fillBytes,
	0x7b8b8afb: copyBytes,
	0x01f970e8: copyWords,
	0x9bc4067b: copyUneven,
	0x5ece8ef1: copyBlocks,
	0x63d40c96: copyBlocks,
	0x3432e3e2: copyEdges,
	0xf37fcb01: copyRows,
	0x99905b56: copyRows,
	0x06c7589d: copyUnevenRows,
	// libcuda 550, sm_75
	0x44e92220: fillWords,
	0x3d39a4ef: fillBytes,
	0xcac3a8e6: copyBytes,
	0xd4713a9a: copyWords,
	0x7a92054c: copyUneven,
	0x98ff5d19: copyBlocks,
	0x339d8a99: copyBlocks,
	0xcdd2a097: copyEdges,
	0x7f4f254f: copyRows,
	0xd77aca32: copyRows,
	0x939010c5: copyUnevenRows,
	// libcuda 550, sm_80
	0xa032f78c: fillWords,
	0x2cffedb6: fillBytes,
	0x3401091b: copyBytes,
	0x0f262548: copyWords,
	0x56efef10: copyUneven,
	0xb4d97f91: copyBlocks,
	0x76464ab6: copyBlocks,
	0xd33de6c2: copyEdges,
	0xb58a3121: copyRows,
	0x6bb45f76: copyRows,
	0xf14850bd: copyUnevenRows,
}

// blockBytes is what one block of copyBlocks copies.
const blockBytes = 4096

// fillWords stores a 32-bit value: parameters address, value, words of a row, pitch in
// bytes; a row for each of the grid's y. fillBytes counts bytes: its value has a byte
// or two of them, repeated.
func fillWords(k kernel, p parameters) *transfer { return fillRows(k, p, 4) }
func fillBytes(k kernel, p parameters) *transfer { return fillRows(k, p, 1) }

func fillRows(k kernel, p parameters, size uint64) *transfer {
	return &transfer{
		dst: p[0], dstPitch: int64(p[3]), dstLine: min(p[2], 1<<40) * size, lines: uint64(k.grid[1]),
		shape: shape{pattern: binary.LittleEndian.AppendUint32(nil, uint32(p[1]))},
	}
}

// copyWords copies p[2] words, copyBytes p[2] bytes, from p[1] to p[0].
func copyWords(_ kernel, p parameters) *transfer { return copyRun(p[0], p[1], uint64(uint32(p[2]))*4) }
func copyBytes(_ kernel, p parameters) *transfer { return copyRun(p[0], p[1], uint64(uint32(p[2]))) }

// copyUneven copies p[3] words from p[1] to p[0], both aligned, with the p[2] bytes
// before them and the p[4] bytes after.
func copyUneven(_ kernel, p parameters) *transfer {
	return copyRun(p[0]-p[2], p[1]-p[2], uint64(uint32(p[2]))+uint64(uint32(p[3]))*4+uint64(uint32(p[4])))
}

// copyBlocks copies a block of bytes for each of the grid's x.
func copyBlocks(k kernel, p parameters) *transfer {
	return copyRun(p[0], p[1], uint64(k.grid[0])*blockBytes)
}

// copyEdges copies p[4] bytes in all, p[2] of them at the beginning, the others after a
// gap of p[3] bytes, which copyBlocks fills.
func copyEdges(_ kernel, p parameters) *transfer {
	head, total := min(p[2], p[4], 1<<32), min(p[4], 1<<32)
	t := copyRun(p[0], p[1], head)
	gap := p[2] + p[3]
	t.next = copyRun(p[0]+gap, p[1]+gap, total-head)
	return t
}

// copyRows copies p[3] rows of p[2] bytes, copyUnevenRows p[2] rows of the width in the
// upper half of p[5].
func copyRows(_ kernel, p parameters) *transfer {
	return rows(p[0], p[4], p[1], p[5], uint64(uint32(p[2])), uint64(uint32(p[3])))
}

func copyUnevenRows(_ kernel, p parameters) *transfer {
	return rows(p[0], p[1], p[3], p[4], p[5]>>32, uint64(uint32(p[2])))
}

func rows(dst, dstPitch, src, srcPitch, width, n uint64) *transfer {
	return &transfer{
		dst: dst, dstPitch: int64(dstPitch), src: src, srcPitch: int64(srcPitch),
		srcLine: width, dstLine: width, lines: n,
	}
}

func copyRun(dst, src, n uint64) *transfer {
	return &transfer{dst: dst, src: src, srcLine: n, dstLine: n, lines: 1}
}

// codeHash is the hash of the code at an address.
func (c *Channel) codeHash(program uint64) (hash uint32, ok bool) {
	var code [codeBytes]byte
	if c.space.ReadAt(code[:], program) != nil {
		return 0, false
	}
	h := fnv.New32a()
	h.Write(code[:])
	return h.Sum32(), true
}

// builtin returns what the kernel moves, or nil if its parameters cannot be read.
func (c *Channel) builtin(f builtin, k kernel) *transfer {
	p, ok := c.parameters(k)
	if !ok {
		return nil
	}
	return f(k, p)
}

func (c *Channel) parameters(k kernel) (p parameters, ok bool) {
	var b [8 * len(p)]byte
	if c.space.ReadAt(b[:], k.constants+parametersAt) != nil {
		return p, false
	}
	for i := range p {
		p[i] = le64(b[8*i:])
	}
	return p, true
}

// kernelSeen logs each kernel whose code is not known, once.
func (c *Channel) kernelSeen(code uint32, k kernel) {
	e := c.engine
	if _, seen := e.seen[code]; seen || len(e.seen) >= maxSeen {
		return
	}
	e.seen[code] = struct{}{}
	p, _ := c.parameters(k)
	e.log.Debug("an ordinary kernel: it takes time and computes nothing", "hash", fmt.Sprintf("%08x", code),
		"grid", k.grid, "block", k.block, "registers", k.registers, "shared", k.shared, "parameters", fmt.Sprintf("%#x", p))
}
