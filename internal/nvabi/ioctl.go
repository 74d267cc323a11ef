package nvabi

import (
	"cmp"
	"slices"
)

// IoctlMask are the bits of an ioctl number that the driver looks at: the number
// and the size. It ignores type and direction (kernel-open/nvidia/nv.c).
const IoctlMask = 0x3fff00ff

// MaxArray is the largest number of elements of an array call worth making: the
// driver knows at most 32 cards (NV_MAX_DEVICES).
const MaxArray = 32

// FrontendCall returns the frontend ioctl that the driver would act on for the
// ioctl number cmd, by its number and size alone.
func (a *ABI) FrontendCall(cmd uint32) (*Frontend, bool) {
	calls := a.Frontend[uint8(cmd)]
	size := IoctlSize(cmd)
	for i := range calls {
		if calls[i].takes(size) {
			return &calls[i], true
		}
	}
	return nil, false
}

func (f *Frontend) takes(size uint32) bool {
	if f.Array {
		return size != 0 && size%f.Size == 0
	}
	return size == f.Size
}

// IoctlSize is the size of the argument that an ioctl number states, in bytes.
func IoctlSize(cmd uint32) uint32 { return cmd >> 16 & 0x3fff }

// IoctlNumbers returns, sorted, the values of an ioctl number under IoctlMask
// of the calls worth making: every frontend call, and each array call with up to
// MaxArray elements. A filter that guards a real driver needs IoctlMatches.
func (a *ABI) IoctlNumbers() []uint32 {
	var numbers []uint32
	for nr, calls := range a.Frontend {
		for _, call := range calls {
			most := uint32(1)
			if call.Array {
				most = MaxArray
			}
			for n := uint32(1); n <= most; n++ {
				numbers = append(numbers, n*call.Size<<16|uint32(nr))
			}
		}
	}
	slices.Sort(numbers)
	return numbers
}

// IoctlMatch matches an ioctl number whose bits under Mask are Value.
type IoctlMatch struct {
	Value, Mask uint32
}

// IoctlMatches returns, sorted, what a filter must match to miss no call that the
// driver acts on. Array calls match at any size: the driver takes arrays longer
// than MaxArray, and before branch 595 sizes that are no multiple of an element.
func (a *ABI) IoctlMatches() []IoctlMatch {
	var matches []IoctlMatch
	for nr, calls := range a.Frontend {
		for _, call := range calls {
			match := IoctlMatch{Value: call.Size<<16 | uint32(nr), Mask: IoctlMask}
			if call.Array {
				match = IoctlMatch{Value: uint32(nr), Mask: 0xff}
			}
			matches = append(matches, match)
		}
	}
	slices.SortFunc(matches, func(a, b IoctlMatch) int { return cmp.Compare(a.Value, b.Value) })
	return matches
}

// UVMNumbers returns, sorted, the commands of /dev/nvidia-uvm.
func (a *ABI) UVMNumbers() []uint32 {
	numbers := make([]uint32, 0, len(a.UVM))
	for cmd := range a.UVM {
		numbers = append(numbers, cmd)
	}
	slices.Sort(numbers)
	return numbers
}

// ObjectMatches returns, sorted, what a filter must match so that who is behind it neither
// makes nor uses objects of the driver, by whatever file and with whatever version that
// this package knows: RM's own ioctls, the ioctl that wraps others, and export of memory.
// Those of the operating-system layer that only tell or connect something are not among
// them: some of their numbers are other drivers', such as tun's.
func ObjectMatches() []IoctlMatch {
	var matches []IoctlMatch
	for _, row := range frontendCalls {
		if row.nr >= EscCardInfo && row.nr != EscXferCmd && row.nr != EscExportToDMABufFD {
			continue
		}
		for _, size := range row.size {
			if size != gone {
				matches = append(matches, IoctlMatch{Value: size<<16 | uint32(row.nr), Mask: IoctlMask})
			}
		}
	}
	slices.SortFunc(matches, func(a, b IoctlMatch) int { return cmp.Compare(a.Value, b.Value) })
	return slices.Compact(matches)
}

// AllUVMNumbers returns, sorted, the commands of /dev/nvidia-uvm in any version that this
// package knows.
func AllUVMNumbers() []uint32 {
	var numbers []uint32
	for _, row := range uvmCalls {
		numbers = append(numbers, row.cmd)
	}
	slices.Sort(numbers)
	return numbers
}
