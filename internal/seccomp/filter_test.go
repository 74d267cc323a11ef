package seccomp

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// interpret runs a classic BPF program as the kernel would, for the
// instructions that filters here consist of.
func interpret(code []unix.SockFilter, d callData) (Action, error) {
	var acc uint32
	for pc := 0; pc < len(code); pc++ {
		switch in := code[pc]; in.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			word, err := loadWord(d, in.K)
			if err != nil {
				return 0, err
			}
			acc = word
		case unix.BPF_ALU | unix.BPF_AND | unix.BPF_K:
			acc &= in.K
		case unix.BPF_JMP | unix.BPF_JA:
			pc += int(in.K)
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			pc += branch(acc == in.K, in)
		case unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K:
			pc += branch(acc > in.K, in)
		case unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K:
			pc += branch(acc >= in.K, in)
		case unix.BPF_RET | unix.BPF_K:
			return Action(in.K), nil
		default:
			return 0, fmt.Errorf("instruction %d has unknown code %#x", pc, in.Code)
		}
	}
	return 0, fmt.Errorf("ran past the end")
}

func branch(taken bool, in unix.SockFilter) int {
	if taken {
		return int(in.Jt)
	}
	return int(in.Jf)
}

func loadWord(d callData, offset uint32) (uint32, error) {
	switch {
	case offset == 0:
		return uint32(d.nr), nil
	case offset == 4:
		return d.arch, nil
	case offset >= 16 && offset < 64 && offset%4 == 0:
		return uint32(d.args[(offset-16)/8] >> (offset % 8 * 8)), nil
	default:
		return 0, fmt.Errorf("load of offset %d", offset)
	}
}

// meaning is what a description says about a call, straight from its words.
func meaning(f Filter, d callData) Action {
	rules := f.Rules
	switch {
	case d.arch == unix.AUDIT_ARCH_X86_64 && uint32(d.nr)&x32Bit == 0 && d.nr >= 0:
	case d.arch == unix.AUDIT_ARCH_I386 && len(f.I386) > 0:
		rules = f.I386
	case f.Foreign == 0:
		return Errno(unix.ENOSYS)
	default:
		return f.Foreign
	}
	for _, r := range rules {
		if r.Nr == int(d.nr) && !slices.ContainsFunc(r.When, func(c Condition) bool { return !holds(c, d) }) {
			return r.Action
		}
	}
	if f.Default == 0 {
		return Allow
	}
	return f.Default
}

func holds(c Condition, d callData) bool {
	if c.op == opAtLeast {
		return d.args[c.arg] >= c.min
	}
	return slices.Contains(c.values, uint32(d.args[c.arg])&c.mask)
}

var (
	genNr     = rapid.SampledFrom([]int{0, unix.SYS_IOCTL, unix.SYS_OPENAT, unix.SYS_MMAP, 500, x32Bit - 1})
	genAction = rapid.OneOf(rapid.SampledFrom([]Action{Allow, Notify}),
		rapid.Map(rapid.IntRange(1, maxErrno), func(e int) Action { return Errno(unix.Errno(e)) }))
	genMask = rapid.SampledFrom([]uint32{^uint32(0), sizeAndNr, unix.O_ACCMODE | unix.O_CREAT, 1 << 31, 0})
	// Small numbers make neighbours, and so intervals.
	genValue = rapid.OneOf(rapid.Uint32(), rapid.Uint32Range(0, 120), rapid.Uint32Range(1<<32-10, 1<<32-1))
	genMin   = rapid.OneOf(rapid.Uint64(), rapid.Uint64Range(0, 1<<16), rapid.Just(uint64(1)<<32), rapid.Just(uint64(0)))
)

func genCondition(t *rapid.T) Condition {
	a := rapid.IntRange(0, 5).Draw(t, "arg")
	if rapid.Bool().Draw(t, "atLeast") {
		return AtLeast(a, genMin.Draw(t, "min"))
	}
	mask := genMask.Draw(t, "mask")
	values := rapid.SliceOfN(genValue, 1, 300).Draw(t, "values")
	for i := range values {
		values[i] &= mask
	}
	return MaskedIn(a, mask, values...)
}

func genFilter(t *rapid.T) Filter {
	rule := rapid.Custom(func(t *rapid.T) Rule {
		return Rule{
			Nr:     genNr.Draw(t, "nr"),
			When:   rapid.SliceOfN(rapid.Custom(genCondition), 0, 3).Draw(t, "when"),
			Action: genAction.Draw(t, "action"),
		}
	})
	deny := rapid.Map(rule, func(r Rule) Rule {
		if r.Action == Notify {
			r.Action = Errno(1)
		}
		return r
	})
	return Filter{
		Rules:   rapid.SliceOfN(rule, 0, 5).Draw(t, "rules"),
		I386:    rapid.SliceOfN(deny, 0, 3).Draw(t, "i386"),
		Default: rapid.SampledFrom([]Action{0, Allow, Errno(1)}).Draw(t, "default"),
		Foreign: rapid.SampledFrom([]Action{0, Allow, Errno(2)}).Draw(t, "foreign"),
	}
}

// genCall draws a call that often touches the filter's boundaries.
func genCall(t *rapid.T, f Filter) callData {
	d := callData{
		nr:   int32(genNr.Draw(t, "nr")),
		arch: rapid.SampledFrom([]uint32{unix.AUDIT_ARCH_X86_64, unix.AUDIT_ARCH_X86_64, unix.AUDIT_ARCH_X86_64, unix.AUDIT_ARCH_I386}).Draw(t, "arch"),
	}
	d.nr |= rapid.SampledFrom([]int32{0, 0, 0, x32Bit, -1 << 31, -1}).Draw(t, "nr bits")
	for i := range d.args {
		d.args[i] = rapid.Uint64().Draw(t, "arg")
	}
	for _, r := range slices.Concat(f.Rules, f.I386) {
		if !rapid.Bool().Draw(t, "aim") {
			continue
		}
		if rapid.Bool().Draw(t, "aim at number") {
			d.nr = int32(r.Nr)
		}
		for _, c := range r.When {
			near := c.min
			if c.op == opIn {
				near = uint64(rapid.SampledFrom(c.values).Draw(t, "value"))
				near |= uint64(rapid.Uint32().Draw(t, "unmasked") &^ c.mask)
				near |= uint64(rapid.Uint32().Draw(t, "high")) << 32
			}
			d.args[c.arg] = near + uint64(rapid.IntRange(-1, 1).Draw(t, "off by"))
		}
	}
	return d
}

func TestAssembledFilterMeansItsDescription(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := genFilter(t)
		code, err := f.Assemble()
		if err != nil {
			if strings.Contains(err.Error(), "instructions") {
				t.Skip("too long for the kernel")
			}
			t.Fatal(err)
		}
		for range 20 {
			d := genCall(t, f)
			got, err := interpret(code, d)
			if err != nil {
				t.Fatal(err)
			}
			if want := meaning(f, d); got != want {
				t.Fatalf("%+v: got action %#x, want %#x", d, got, want)
			}
		}
	})
}

// FuzzFilter checks membership in a set for arbitrary sets and masks.
func FuzzFilter(f *testing.F) {
	f.Add([]byte{1, 2, 3, 9, 200, 201}, uint32(0xff), uint64(9))
	f.Add([]byte{}, ^uint32(0), uint64(0))
	f.Fuzz(func(t *testing.T, raw []byte, mask uint32, value uint64) {
		var values []uint32
		for i, b := range raw[:min(len(raw), 1000)] {
			values = append(values, (uint32(b)|uint32(i%4)<<(8*(i%4)))&mask)
		}
		filter := Filter{Rules: []Rule{{Nr: 1, When: []Condition{MaskedIn(2, mask, values...)}, Action: Notify}}}
		code, err := filter.Assemble()
		if len(values) == 0 {
			if err == nil {
				t.Fatal("an empty set was accepted")
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		d := callData{nr: 1, arch: unix.AUDIT_ARCH_X86_64, args: [6]uint64{2: value}}
		got, err := interpret(code, d)
		if want := meaning(filter, d); err != nil || got != want {
			t.Fatalf("got %#x, %v; want %#x", got, err, want)
		}
	})
}

// TestSetsOfAllSizes has programs in which targets are out of a jump's reach.
func TestSetsOfAllSizes(t *testing.T) {
	for n := range uint32(500) {
		if n > 10 && n%17 != 0 {
			continue
		}
		values := []uint32{7, 8, 9}
		for i := range n {
			values = append(values, 100+3*i)
		}
		f := Filter{Rules: []Rule{
			{Nr: 1, When: []Condition{In(0, values...), MaskedIn(1, 0xffff, values...)}, Action: Errno(1)},
			{Nr: 1, When: []Condition{In(2, values...)}, Action: Notify},
			{Nr: 2, When: []Condition{In(0, values...)}, Action: Notify},
		}}
		code, err := f.Assemble()
		if err != nil {
			t.Fatal(err)
		}
		for v := range uint64(3*n + 110) {
			for _, d := range []callData{
				{nr: 1, args: [6]uint64{v, v, v}},
				{nr: 1, args: [6]uint64{7, v, 1}},
				{nr: 1, args: [6]uint64{1, 7, v}},
				{nr: 2, args: [6]uint64{v}},
			} {
				d.arch = unix.AUDIT_ARCH_X86_64
				if got, err := interpret(code, d); err != nil || got != meaning(f, d) {
					t.Fatalf("set of %d, %+v: got %#x, %v; want %#x", n, d, got, err, meaning(f, d))
				}
			}
		}
	}
}

func TestLargeSetIsSearchedQuickly(t *testing.T) {
	var values []uint32
	for i := range uint32(150) {
		values = append(values, i*65536+i*3%256)
	}
	f := Filter{Rules: []Rule{{Nr: unix.SYS_IOCTL, When: []Condition{MaskedIn(1, sizeAndNr, values...)}, Action: Notify}}}
	code, err := f.Assemble()
	if err != nil {
		t.Fatal(err)
	}
	longest := longestPath(code)
	// Prologue and rule take 8; a search among 150 ends in log2(150/3) ≈ 6 + 3.
	if longest > 18 {
		t.Errorf("a call may execute %d instructions of %d, want at most 18", longest, len(code))
	}
}

// longestPath is the largest number of instructions a call may execute.
func longestPath(code []unix.SockFilter) int {
	longest := make([]int, len(code))
	for i := len(code) - 1; i >= 0; i-- {
		switch in := code[i]; {
		case in.Code == unix.BPF_RET|unix.BPF_K:
			longest[i] = 1
		case in.Code == unix.BPF_JMP|unix.BPF_JA:
			longest[i] = 1 + longest[i+1+int(in.K)]
		default: // for others than jumps both offsets are 0
			longest[i] = 1 + max(longest[i+1+int(in.Jt)], longest[i+1+int(in.Jf)])
		}
	}
	return longest[0]
}

func TestFilterErrors(t *testing.T) {
	rule := func(when ...Condition) Filter {
		return Filter{Rules: []Rule{{Nr: 16, When: when, Action: Notify}}}
	}
	var scattered []uint32
	for i := range uint32(5000) {
		scattered = append(scattered, 2*i)
	}
	tests := []struct {
		name   string
		filter Filter
		want   string
	}{
		{"no action", Filter{Rules: []Rule{{Nr: 16}}}, "none of Allow"},
		{"errno 0", Filter{Rules: []Rule{{Nr: 16, Action: Errno(0)}}}, "none of Allow"},
		{"kill", Filter{Default: unix.SECCOMP_RET_KILL_PROCESS}, "default action"},
		{"notify foreign", Filter{Foreign: Notify}, "foreign"},
		{"negative number", Filter{Rules: []Rule{{Nr: -1, Action: Allow}}}, "not a system call"},
		{"x32 number", Filter{Rules: []Rule{{Nr: x32Bit | 16, Action: Allow}}}, "not a system call"},
		{"notify i386", Filter{I386: []Rule{{Nr: 54, Action: Notify}}}, "i386 rule 0 (system call 54) of the filter: it cannot notify"},
		{"notify i386 by default", Filter{I386: []Rule{{Nr: 54, Action: Errno(1)}}, Default: Notify}, "cannot notify by default"},
		{"seventh argument", rule(In(6, 1)), "argument 6 does not exist"},
		{"negative argument", rule(AtLeast(-1, 1)), "argument -1 does not exist"},
		{"empty set", rule(In(1)), "empty"},
		{"empty condition", rule(Condition{}), "empty condition"},
		{"value outside mask", rule(MaskedIn(1, 0xff, 0x100)), "never match"},
		{"too long", rule(In(1, scattered...)), "the kernel takes 4096"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := tt.filter.Assemble()
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error with %q", err, tt.want)
			}
		})
	}
}
