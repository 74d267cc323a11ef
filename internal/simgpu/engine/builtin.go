package engine

import (
	"bytes"
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
// with its version and the architecture it compiles for. To add those of another: run
// a large cuMemset and a device-to-device copy with debug logging, and take the hashes
// that are logged as unknown kernels.
var builtins = map[uint32]builtin{
	// libcuda 535.309.01, sm_75
	0x6c8f5f80: fillWords,
	0x37df0f3a: copyWords,
	0x71835146: copyBytes,
	0x1a69abb9: copyBlocks,
}

// fillWords stores a 32-bit value: parameters address, value, words of a row, pitch in
// bytes; a row for each of the grid's y.
func fillWords(k kernel, p parameters) *transfer {
	value := binary.LittleEndian.AppendUint32(nil, uint32(p[1]))
	return &transfer{
		dst: p[0], dstPitch: int64(p[3]), dstLine: min(p[2], 1<<40) * 4, lines: uint64(k.grid[1]),
		shape: shape{pattern: value},
	}
}

// copyWords copies p[2] words, copyBytes p[2] bytes, from p[1] to p[0].
func copyWords(_ kernel, p parameters) *transfer { return copyRun(p, uint64(uint32(p[2]))*4) }
func copyBytes(_ kernel, p parameters) *transfer { return copyRun(p, uint64(uint32(p[2]))) }

// copyBlocks copies 4096 bytes for each of the grid's x.
func copyBlocks(k kernel, p parameters) *transfer { return copyRun(p, uint64(k.grid[0])*4096) }

func copyRun(p parameters, n uint64) *transfer {
	return &transfer{dst: p[0], src: p[1], srcLine: n, dstLine: n, lines: 1}
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
	var b [64]byte
	if c.space.ReadAt(b[:], k.constants+parametersAt) != nil {
		return nil
	}
	var p parameters
	if err := binary.Read(bytes.NewReader(b[:]), binary.LittleEndian, &p); err != nil {
		return nil
	}
	return f(k, p)
}

// kernelSeen logs each kernel whose code is not known, once.
func (e *Engine) kernelSeen(code uint32, k kernel) {
	if _, seen := e.seen[code]; seen || len(e.seen) >= maxSeen {
		return
	}
	e.seen[code] = struct{}{}
	e.log.Debug("an ordinary kernel: it takes time and computes nothing", "hash", fmt.Sprintf("%08x", code),
		"grid", k.grid, "block", k.block, "registers", k.registers, "shared", k.shared)
}
