package nvabi

import (
	"slices"
	"testing"
)

// rowsAt counts the rows of a table that exist at a branch, by their number.
func rowsAt[R any](rows []R, major int, number func(R) uint32, size func(R) sizes) map[uint32]int {
	counts := make(map[uint32]int)
	for _, row := range rows {
		if _, ok := size(row).at(major); ok {
			counts[number(row)]++
		}
	}
	return counts
}

func TestRowsAreUnique(t *testing.T) {
	controls := slices.Concat(clientControls, deviceControls, subdeviceControls, channelControls, objectControls)
	classes := slices.Concat(objectClasses, engineClasses)
	for _, b := range branches {
		tables := map[string]map[uint32]int{
			"control": rowsAt(controls, b.major, func(r controlRow) uint32 { return r.cmd }, func(r controlRow) sizes { return r.size }),
			"class":   rowsAt(classes, b.major, func(r classRow) uint32 { return r.id }, func(r classRow) sizes { return r.size }),
			"UVM":     rowsAt(uvmCalls, b.major, func(r uvmRow) uint32 { return r.cmd }, func(r uvmRow) sizes { return r.size }),
		}
		for table, counts := range tables {
			for number, n := range counts {
				if n != 1 {
					t.Errorf("%d: %s %#x has %d rows", b.major, table, number, n)
				}
			}
		}
	}
}

func TestEveryRowExistsSomewhere(t *testing.T) {
	exists := func(s sizes) bool {
		return slices.ContainsFunc(branches, func(b branch) bool { _, ok := s.at(b.major); return ok })
	}
	known := func(s sizes) bool {
		for from := range s {
			if !slices.ContainsFunc(branches, func(b branch) bool { return b.major == from }) {
				return false
			}
		}
		return true
	}
	for _, row := range slices.Concat(clientControls, deviceControls, subdeviceControls, channelControls, objectControls) {
		if !exists(row.size) || !known(row.size) {
			t.Errorf("%s has sizes %v", row.name, row.size)
		}
	}
	for _, row := range slices.Concat(objectClasses, engineClasses) {
		if !exists(row.size) || !known(row.size) {
			t.Errorf("%s has sizes %v", row.name, row.size)
		}
	}
}

func TestFieldsLieInside(t *testing.T) {
	inside := func(off, width int, size uint32) bool {
		return off == None || off >= 0 && off+width <= int(size)
	}
	for _, abi := range allABIs(t) {
		for nr, calls := range abi.Frontend {
			for _, c := range calls {
				if c.NR != nr || c.Size == 0 || c.On == 0 || !inside(c.Status, 4, c.Size) || !inside(c.FD, 4, c.Size) {
					t.Errorf("%s: %+v", abi.Version, c)
				}
			}
		}
		for cmd, c := range abi.Controls {
			if c.Cmd != cmd || !inside(c.FD, 4, c.Size) {
				t.Errorf("%s: %+v", abi.Version, c)
			}
			for _, p := range c.Pointers {
				if !inside(p.Offset, 8, c.Size) || p.Offset%8 != 0 || !inside(p.Count, 4, c.Size) {
					t.Errorf("%s: %s has pointer %+v outside its %d bytes", abi.Version, c.Name, p, c.Size)
				}
				if p.Elem != 0 && !p.In && !p.Out {
					t.Errorf("%s: nobody reads or writes the buffer of %s at %d", abi.Version, c.Name, p.Offset)
				}
				if p.Elem != 0 && uint64(p.Elem)*uint64(p.Max) > maxEmbedded {
					t.Errorf("%s: buffer of %s at %d may have %d×%d bytes", abi.Version, c.Name, p.Offset, p.Max, p.Elem)
				}
			}
		}
		for id, c := range abi.Classes {
			if c.ID != id || !inside(c.FD, 8, c.Size) {
				t.Errorf("%s: %+v", abi.Version, c)
			}
		}
		for cmd, c := range abi.UVM {
			if c.Cmd != cmd || !inside(c.Status, 4, c.Size) || !inside(c.FD, 4, c.Size) {
				t.Errorf("%s: %+v", abi.Version, c)
			}
		}
	}
}

func TestPointersAndDescriptorsBelongToControls(t *testing.T) {
	newest := allABIs(t)[len(branches)-1]
	for _, row := range pointers {
		if _, ok := newest.Controls[row.cmd]; !ok {
			t.Errorf("a pointer row names %#x, which is no control", row.cmd)
		}
	}
	for cmd := range controlFDs {
		if _, ok := newest.Controls[cmd]; !ok {
			t.Errorf("a descriptor row names %#x, which is no control", cmd)
		}
	}
	for id := range classFDs {
		if _, ok := newest.Classes[id]; !ok {
			t.Errorf("a descriptor row names %#x, which is no class", id)
		}
	}
}

func TestClosedControls(t *testing.T) {
	for _, abi := range allABIs(t) {
		for cmd, c := range abi.Controls {
			if closed := cmd&GSSLegacy != 0; closed != c.Opaque {
				t.Errorf("%s: %s: number %#x but Opaque is %v", abi.Version, c.Name, cmd, c.Opaque)
			}
			if c.Opaque && cmd&GSSLegacyRoot == GSSLegacyRoot {
				t.Errorf("%s: %s is for root only", abi.Version, c.Name)
			}
		}
	}
}

// TestStableSizes has the sizes that are the same in every branch and that the
// rest of the program leans on.
func TestStableSizes(t *testing.T) {
	frontend := map[uint8]uint32{
		EscRMFree: 16, EscRMAllocMemory: 56, EscRMIdleChannels: 56, EscRMVidHeapControl: 184, EscRMMapMemory: 56,
		EscRMUnmapMemory: 32, EscRMAllocContextDMA2: 56, EscRMControl: 32, EscRMDupObject: 28,
		EscRMUpdateDeviceMappingInfo: 40, EscRMShare: 24, EscCardInfo: 72, EscAttachGPUsToFD: 4, EscXferCmd: 16,
		EscCheckVersionStr: 72, EscSysParams: 8, EscNUMAInfo: 560, EscRegisterFD: 4,
	}
	classes := map[uint32]uint32{0x80: 56, 0x2080: 4, 0xa06c: 20, 0x9067: 12, 0xc461: 0, 0x79: 24, 0x70: 24, 0x71: 40, 0xf8: 48}
	controls := map[uint32]uint32{
		0xa06c0103: 8, 0xa06c0105: 8, 0xa06c0107: 4, 0xa06f0111: 2, 0x2080110b: 536, 0x2080018d: 3812, 0x2080018e: 14408,
	}
	for _, abi := range allABIs(t) {
		for nr, size := range frontend {
			if calls := abi.Frontend[nr]; len(calls) != 1 || calls[0].Size != size {
				t.Errorf("%s: ioctl %#x: %+v, want size %d", abi.Version, nr, calls, size)
			}
		}
		for id, size := range classes {
			if c, ok := abi.Classes[id]; !ok || c.Size != size {
				t.Errorf("%s: class %#x: %+v, want size %d", abi.Version, id, c, size)
			}
		}
		for cmd, size := range controls {
			if c, ok := abi.Controls[cmd]; !ok || c.Size != size {
				t.Errorf("%s: control %#x: %+v, want size %d", abi.Version, cmd, c, size)
			}
		}
	}
}

func TestPrivileges(t *testing.T) {
	want := map[uint32]Privilege{
		0xa06c0101: Anyone, 0xa06c0103: Anyone, 0xa06c0105: Anyone, 0xa06f0111: Nice, 0xa06c0107: Nice,
		0x2080110b: Anyone, 0x20801117: KernelOnly, 0x20801119: Root, 0x00801711: Root, 0x90670102: KernelOnly,
		0x00000b01: Root,
	}
	for _, abi := range allABIs(t) {
		for cmd, who := range want {
			if got := abi.Controls[cmd].Privilege; got != who {
				t.Errorf("%s: %s is for %v, want %v", abi.Version, abi.Controls[cmd].Name, got, who)
			}
		}
		for _, id := range []uint32{0xc2, 0x81, 0x82, 0x83} {
			if got := abi.Classes[id].Privilege; got != Root {
				t.Errorf("%s: %s is for %v, want root", abi.Version, abi.Classes[id].Name, got)
			}
		}
	}
}
