package seccomp

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Action is what a filter does with a call. The zero Action is unset.
type Action uint32

const (
	// Allow lets the kernel execute the call.
	Allow Action = unix.SECCOMP_RET_ALLOW
	// Notify makes the call wait for the supervisor's answer.
	Notify Action = unix.SECCOMP_RET_USER_NOTIF
)

// Errno fails the call with e, without asking the supervisor.
func Errno(e unix.Errno) Action {
	return unix.SECCOMP_RET_ERRNO | Action(e)&unix.SECCOMP_RET_DATA
}

// maxErrno is the largest errno the kernel accepts from a filter (MAX_ERRNO).
const maxErrno = 4095

func (a Action) valid() bool {
	if a == Allow || a == Notify {
		return true
	}
	e := a & unix.SECCOMP_RET_DATA
	return a&unix.SECCOMP_RET_ACTION_FULL == unix.SECCOMP_RET_ERRNO && e >= 1 && e <= maxErrno
}

// A Filter describes what becomes of system calls. It concerns native x86-64
// calls first; the other two call conventions of the processor have an action of
// their own, and i386 may have rules.
type Filter struct {
	// Rules are tried in order; the first that matches decides. Calls named by
	// earlier rules are recognised sooner.
	Rules []Rule
	// I386 are rules for i386 calls, by that convention's numbers. They cannot
	// notify: the arguments have another layout. If there are none, Foreign decides.
	I386 []Rule
	// Default is the action when no rule matches; unset means Allow.
	Default Action
	// Foreign is the action for x32 calls, and for i386 calls where these have no rules;
	// unset means Errno(ENOSYS). It cannot be Notify.
	Foreign Action
}

// A Rule gives calls of one number, whose arguments satisfy all conditions, an
// action.
type Rule struct {
	Nr     int // system call number
	When   []Condition
	Action Action
}

// A Condition is a test of one argument. Use [In], [MaskedIn] or [AtLeast].
type Condition struct {
	arg    int
	op     operator
	mask   uint32   // of opIn
	values []uint32 // of opIn
	min    uint64   // of opAtLeast
}

type operator uint8

const (
	opIn operator = iota + 1
	opAtLeast
)

// In holds when the low 32 bits of argument arg (0…5) are one of values. The
// high bits are ignored, as the kernel ignores them in 32-bit arguments such as
// ioctl's command.
func In(arg int, values ...uint32) Condition { return MaskedIn(arg, ^uint32(0), values...) }

// MaskedIn holds when the low 32 bits of argument arg (0…5), masked, are one of
// values. A value with bits outside the mask is an error of the description.
func MaskedIn(arg int, mask uint32, values ...uint32) Condition {
	return Condition{arg: arg, op: opIn, mask: mask, values: values}
}

// AtLeast holds when argument arg (0…5), as an unsigned 64-bit number, is at
// least min.
func AtLeast(arg int, min uint64) Condition {
	return Condition{arg: arg, op: opAtLeast, min: min}
}

func (c Condition) validate() error {
	if c.arg < 0 || c.arg > 5 {
		return fmt.Errorf("argument %d does not exist: there are 0 to 5", c.arg)
	}
	switch c.op {
	case opAtLeast:
		return nil
	case opIn:
		if len(c.values) == 0 {
			return fmt.Errorf("the set of values for argument %d is empty", c.arg)
		}
		for _, v := range c.values {
			if v&^c.mask != 0 {
				return fmt.Errorf("value %#x of argument %d can never match under mask %#x", v, c.arg, c.mask)
			}
		}
		return nil
	default:
		return fmt.Errorf("empty condition: use In, MaskedIn or AtLeast")
	}
}

func (r Rule) validate() error {
	if r.Nr < 0 || r.Nr >= x32Bit {
		return fmt.Errorf("%d is not a system call number", r.Nr)
	}
	if !r.Action.valid() {
		return fmt.Errorf("action %#x is none of Allow, Notify and Errno(1…%d)", uint32(r.Action), maxErrno)
	}
	for _, c := range r.When {
		if err := c.validate(); err != nil {
			return err
		}
	}
	return nil
}

// resolved checks the filter and fills in its unset actions.
func (f Filter) resolved() (Filter, error) {
	if f.Default == 0 {
		f.Default = Allow
	}
	if f.Foreign == 0 {
		f.Foreign = Errno(unix.ENOSYS)
	}
	if !f.Default.valid() {
		return f, fmt.Errorf("seccomp: default action %#x of the filter is none of Allow, Notify and Errno", uint32(f.Default))
	}
	if !f.Foreign.valid() || f.Foreign == Notify {
		return f, fmt.Errorf("seccomp: action %#x for foreign calls is neither Allow nor Errno", uint32(f.Foreign))
	}
	for i, r := range f.Rules {
		if err := r.validate(); err != nil {
			return f, fmt.Errorf("seccomp: rule %d (system call %d) of the filter: %w", i, r.Nr, err)
		}
	}
	for i, r := range f.I386 {
		err := r.validate()
		if err == nil && r.Action == Notify {
			err = errors.New("it cannot notify")
		}
		if err != nil {
			return f, fmt.Errorf("seccomp: i386 rule %d (system call %d) of the filter: %w", i, r.Nr, err)
		}
	}
	if f.Default == Notify && len(f.I386) > 0 {
		return f, errors.New("seccomp: a filter with i386 rules cannot notify by default")
	}
	return f, nil
}
