package nvabi

import (
	"fmt"
	"math"
	"strings"
)

// branch is a release branch of the driver, with the oldest release whose ABI is
// the branch's table.
type branch struct {
	major int
	first Version
}

// branches are the branches with tables, oldest first. Within one, the sizes in
// the tables are the same in every release from first on, as NVIDIA's open kernel
// modules compile. A control that a branch gained later is in its table too: an
// earlier release answers it as unknown.
var branches = []branch{
	{535, Version{535, 86, 5}},  // before it, channels were allocated with less
	{550, Version{550, 54, 14}}, // 550.40.07 had UVM arguments for 32 cards, not 256
	{570, Version{570, 86, 15}},
	{580, Version{580, 65, 6}},
	{590, Version{590, 44, 1}},
	{595, Version{595, 44, 2}},
}

// For returns the ABI of a driver version. Every release of a known branch has
// its branch's tables; other branches, and releases before a branch's ABI
// settled, are an error that names the known ones.
func For(v Version) (*ABI, error) {
	for _, b := range branches {
		if b.major != v.Major {
			continue
		}
		if v.Less(b.first) {
			return nil, fmt.Errorf("driver %s is older than %s, the first release of its branch with a known ABI: use a newer release", v, b.first)
		}
		return newABI(v), nil
	}
	known := make([]string, len(branches))
	for i, b := range branches {
		known[i] = fmt.Sprint(b.major)
	}
	return nil, fmt.Errorf("the ABI of driver %s is not known: use a driver of branch %s", v, strings.Join(known, ", "))
}

// sizes gives the size of something by branch: an entry holds from its branch on
// until the next entry. A branch before the first entry does not have the thing.
type sizes map[int]uint32

// gone in sizes says that the thing was removed.
const gone = math.MaxUint32

// at returns the size at a branch, and whether the thing exists there.
func (s sizes) at(major int) (uint32, bool) {
	best := 0
	for from := range s {
		if from <= major && from > best {
			best = from
		}
	}
	size, ok := s[best]
	return size, ok && size != gone
}

// offsets gives the offset of a field by branch, as sizes gives sizes.
type offsets map[int]int

// offset returns the offset at a branch, or None.
func (o offsets) offset(major int) int {
	best, at := 0, None
	for from, offset := range o {
		if from <= major && from > best {
			best, at = from, offset
		}
	}
	return at
}

func newABI(v Version) *ABI {
	return &ABI{
		Version:  v,
		Frontend: resolveFrontend(v.Major),
		Controls: resolveControls(v.Major),
		Classes:  resolveClasses(v.Major),
		UVM:      resolveUVM(v.Major),
		Layout:   resolveLayout(v.Major),
	}
}
