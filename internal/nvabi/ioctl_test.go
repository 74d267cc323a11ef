package nvabi

import (
	"slices"
	"testing"
)

func TestFrontendCall(t *testing.T) {
	abi, err := For(Version{550, 163, 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		cmd    uint32
		name   string
		status int
	}{
		{0xc030462b, "NV_ESC_RM_ALLOC", 40},
		{0xc020462b, "NV_ESC_RM_ALLOC", 28},
		{0xc020462a, "NV_ESC_RM_CONTROL", 28},
		{0x0020002a, "NV_ESC_RM_CONTROL", 28}, // no type, no direction
		{0x4020ff2a, "NV_ESC_RM_CONTROL", 28}, // another type and direction
		{0xc0b8464a, "NV_ESC_RM_VID_HEAP_CONTROL", 20},
		{0xc04846c8, "NV_ESC_CARD_INFO", None},
		{0xc90046c8, "NV_ESC_CARD_INFO", None}, // 32 cards
		{0xc00846d4, "NV_ESC_ATTACH_GPUS_TO_FD", None},
		{0xc00846da, "NV_ESC_WAIT_OPEN_COMPLETE", None},
	} {
		call, ok := abi.FrontendCall(tt.cmd)
		if !ok || call.Name != tt.name || call.Status != tt.status {
			t.Errorf("FrontendCall(%#x) = %+v, %v; want %s with status at %d", tt.cmd, call, ok, tt.name, tt.status)
		}
	}
	for _, cmd := range []uint32{0, 0xc021462a, 0xc000462a, 0xc04946c8, 0xc00046c8, 0xc00246d4, 0xc0204626, 0x5401} {
		if call, ok := abi.FrontendCall(cmd); ok {
			t.Errorf("FrontendCall(%#x) = %+v, want none", cmd, call)
		}
	}
	old, err := For(Version{535, 309, 1})
	if err != nil {
		t.Fatal(err)
	}
	if call, ok := old.FrontendCall(0xc00846da); ok {
		t.Errorf("535 has %+v", call)
	}
}

func TestIoctlNumbersAreCalls(t *testing.T) {
	for _, abi := range allABIs(t) {
		numbers := abi.IoctlNumbers()
		if !slices.IsSorted(numbers) || len(slices.Compact(slices.Clone(numbers))) != len(numbers) {
			t.Errorf("%s: numbers are not sorted and unique", abi.Version)
		}
		for _, n := range numbers {
			if n&^IoctlMask != 0 {
				t.Errorf("%s: %#x has bits outside the mask", abi.Version, n)
			}
			if _, ok := abi.FrontendCall(n | 0xc0000000 | 'F'<<8); !ok {
				t.Errorf("%s: %#x is no call", abi.Version, n)
			}
		}
		for _, n := range []uint32{EscXferCmd | 16<<16, EscCardInfo | 72*MaxArray<<16, EscAttachGPUsToFD | 4<<16, EscRMAlloc | 32<<16, EscRMAlloc | 48<<16} {
			if !slices.Contains(numbers, n) {
				t.Errorf("%s: %#x is missing", abi.Version, n)
			}
		}
	}
}

// A filter built from IoctlMatches must let no number through that FrontendCall
// knows, whatever its type, direction and, for arrays, length.
func TestIoctlMatchesMissNothing(t *testing.T) {
	for _, abi := range allABIs(t) {
		matches := abi.IoctlMatches()
		for nr := range uint32(256) {
			for size := range uint32(1 << 14) {
				cmd := 0x80000000 | size<<16 | 0x5a00 | nr
				if _, ok := abi.FrontendCall(cmd); !ok {
					continue
				}
				if !slices.ContainsFunc(matches, func(m IoctlMatch) bool { return cmd&m.Mask == m.Value }) {
					t.Fatalf("%s: %#x is a call that no match covers", abi.Version, cmd)
				}
			}
		}
	}
}

func TestUVMNumbers(t *testing.T) {
	for _, abi := range allABIs(t) {
		numbers := abi.UVMNumbers()
		if len(numbers) != len(abi.UVM) || !slices.IsSorted(numbers) {
			t.Errorf("%s: %d numbers for %d commands", abi.Version, len(numbers), len(abi.UVM))
		}
		for _, n := range []uint32{0x30000001, 0x30000002, 33, 34, 37, 73, 75} {
			if !slices.Contains(numbers, n) {
				t.Errorf("%s: UVM command %d is missing", abi.Version, n)
			}
		}
	}
}
