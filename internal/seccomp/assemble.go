package seccomp

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// Offsets in struct seccomp_data (linux/seccomp.h), on a little-endian machine.
const (
	offsetNr   = 0
	offsetArch = 4
	offsetArgs = 16 // six 64-bit arguments
)

// x32Bit marks calls of the x32 ABI, which share x86-64's architecture number.
const x32Bit = 0x40000000

// maxInstructions is the kernel's limit for one filter (BPF_MAXINSNS).
const maxInstructions = 4096

// Assemble compiles the filter to classic BPF. It fails when the description is
// contradictory or the program would exceed the kernel's 4096 instructions.
func (f Filter) Assemble() ([]unix.SockFilter, error) {
	f, err := f.resolved()
	if err != nil {
		return nil, err
	}
	p := program{nearest: make(map[label]label)}
	foreign := p.ret(f.Foreign)
	if len(f.I386) > 0 {
		i386 := p.load(offsetNr, p.calls(f.I386, f.Default))
		foreign = p.jump(unix.BPF_JEQ, unix.AUDIT_ARCH_I386, i386, p.ret(f.Foreign))
	}
	native := p.calls(f.Rules, f.Default)
	// x32 first: every number below is an x86-64 one.
	native = p.jump(unix.BPF_JGE, x32Bit, p.ret(f.Foreign), native)
	native = p.load(offsetNr, native)
	native = p.jump(unix.BPF_JEQ, unix.AUDIT_ARCH_X86_64, native, foreign)
	p.load(offsetArch, native)
	if len(p.reversed) > maxInstructions {
		return nil, fmt.Errorf("seccomp: the filter needs %d instructions, the kernel takes %d: use fewer rules or values", len(p.reversed), maxInstructions)
	}
	slices.Reverse(p.reversed)
	return p.reversed, nil
}

// byCall groups rules by call number, in order of first appearance.
func byCall(rules []Rule) (calls []int, of map[int][]Rule) {
	of = make(map[int][]Rule)
	for _, r := range rules {
		if _, ok := of[r.Nr]; !ok {
			calls = append(calls, r.Nr)
		}
		of[r.Nr] = append(of[r.Nr], r)
	}
	return calls, of
}

// A program is written from its end to its beginning, since BPF only jumps
// forward: every jump's target is known when the jump is written.
type program struct {
	reversed []unix.SockFilter
	// nearest is the last instruction written to stand for one out of reach.
	nearest map[label]label
}

// label is the place of an instruction already written: its index in reversed.
type label int

// reach is how far a conditional jump may go: its offsets have 8 bits, and two
// instructions may yet be put between.
const reach = 253

func (p *program) emit(code uint16, k uint32) label {
	p.reversed = append(p.reversed, unix.SockFilter{Code: code, K: k})
	return label(len(p.reversed) - 1)
}

// offset is the jump offset to l of the instruction to be written next.
func (p *program) offset(l label) int { return len(p.reversed) - 1 - int(l) }

func (p *program) ret(a Action) label { return p.emit(unix.BPF_RET|unix.BPF_K, uint32(a)) }

// near returns a place at most within instructions away that does what l does.
func (p *program) near(l label, within int) label {
	if p.offset(l) <= within {
		return l
	}
	if n, ok := p.nearest[l]; ok && p.offset(n) <= within {
		return n
	}
	target := p.reversed[l]
	if target.Code != unix.BPF_RET|unix.BPF_K {
		target = unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JA, K: uint32(p.offset(l))}
	}
	p.nearest[l] = p.emit(target.Code, target.K)
	return p.nearest[l]
}

// jump compares the accumulator with k.
func (p *program) jump(op uint16, k uint32, yes, no label) label {
	yes = p.near(yes, reach)
	no = p.near(no, reach)
	jt, jf := p.offset(yes), p.offset(no)
	l := p.emit(unix.BPF_JMP|op|unix.BPF_K, k)
	p.reversed[l].Jt, p.reversed[l].Jf = uint8(jt), uint8(jf)
	return l
}

// load fetches 32 bits of seccomp_data and goes on at next.
func (p *program) load(offset uint32, next label) label {
	p.near(next, 0)
	return p.emit(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, offset)
}

// calls writes one convention's rules, for who has loaded the call's number.
func (p *program) calls(rules []Rule, fallback Action) label {
	next := p.ret(fallback)
	calls, of := byCall(rules)
	for _, nr := range slices.Backward(calls) {
		body := p.rules(of[nr], fallback)
		next = p.jump(unix.BPF_JEQ, uint32(nr), body, next)
	}
	return next
}

// rules writes one call's rules; when none matches, fallback applies.
func (p *program) rules(rules []Rule, fallback Action) label {
	next := p.ret(fallback)
	for _, r := range slices.Backward(rules) {
		body := p.ret(r.Action)
		for _, c := range slices.Backward(r.When) {
			body = p.condition(c, body, next)
		}
		next = body
	}
	return next
}

func (p *program) condition(c Condition, yes, no label) label {
	low := uint32(offsetArgs + 8*c.arg)
	if c.op == opAtLeast {
		l := p.load(low, p.jump(unix.BPF_JGE, uint32(c.min), yes, no))
		l = p.jump(unix.BPF_JEQ, uint32(c.min>>32), l, no)
		return p.load(low+4, p.jump(unix.BPF_JGT, uint32(c.min>>32), yes, l))
	}
	l := p.search(intervals(c.values), yes, no)
	if c.mask != ^uint32(0) {
		p.near(l, 0)
		l = p.emit(unix.BPF_ALU|unix.BPF_AND|unix.BPF_K, c.mask)
	}
	return p.load(low, l)
}

// leaf is how many intervals are compared one after the other at the leaves of
// a search tree.
const leaf = 3

// search writes a binary search: every call pays for it, the unmatched too.
func (p *program) search(set []interval, yes, no label) label {
	if len(set) > leaf {
		mid := len(set) / 2
		right := p.search(set[mid:], yes, no)
		left := p.search(set[:mid], yes, no)
		return p.jump(unix.BPF_JGE, set[mid].low, right, left)
	}
	next := no
	for _, in := range slices.Backward(set) {
		if in.low == in.high {
			next = p.jump(unix.BPF_JEQ, in.low, yes, next)
			continue
		}
		l := p.jump(unix.BPF_JGT, in.high, next, yes)
		next = p.jump(unix.BPF_JGE, in.low, l, no)
	}
	return next
}

// interval is a run of consecutive values, both ends included.
type interval struct{ low, high uint32 }

// intervals are the runs of a set of values, in ascending order.
func intervals(values []uint32) []interval {
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	var runs []interval
	for _, v := range sorted {
		if n := len(runs); n > 0 && v-runs[n-1].high <= 1 {
			runs[n-1].high = v
			continue
		}
		runs = append(runs, interval{v, v})
	}
	return runs
}
