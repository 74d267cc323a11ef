package nvabi

import (
	"strings"
	"testing"
)

func allABIs(t *testing.T) []*ABI {
	t.Helper()
	var abis []*ABI
	for _, b := range branches {
		abi, err := For(b.first)
		if err != nil {
			t.Fatal(err)
		}
		abis = append(abis, abi)
	}
	return abis
}

func TestForRefusesUnknownVersions(t *testing.T) {
	for _, tt := range []struct {
		version Version
		want    string
	}{
		{Version{470, 256, 2}, "branch 535, 550, 570, 580, 590, 595"},
		{Version{560, 35, 3}, "branch 535, 550, 570, 580, 590, 595"},
		{Version{610, 43, 2}, "branch 535, 550, 570, 580, 590, 595"},
		{Version{550, 40, 7}, "older than 550.54.14"},
		{Version{}, "not known"},
	} {
		abi, err := For(tt.version)
		if err == nil {
			t.Errorf("For(%s) = %v, want an error", tt.version, abi.Version)
			continue
		}
		if !strings.Contains(err.Error(), tt.want) {
			t.Errorf("For(%s): %q does not say %q", tt.version, err, tt.want)
		}
	}
}

func TestForTakesEveryReleaseOfABranch(t *testing.T) {
	for _, v := range []Version{
		{535, 104, 5}, {535, 288, 1}, {535, 309, 1}, {550, 54, 14}, {550, 163, 1}, {570, 86, 15},
		{570, 211, 1}, {580, 65, 6}, {580, 142, 0}, {590, 48, 1}, {595, 45, 4}, {595, 71, 5},
	} {
		abi, err := For(v)
		if err != nil {
			t.Errorf("For(%s): %v", v, err)
			continue
		}
		if abi.Version != v {
			t.Errorf("For(%s).Version = %s", v, abi.Version)
		}
	}
}

func TestSizesAt(t *testing.T) {
	s := sizes{550: 8, 580: 12, 590: gone}
	for _, tt := range []struct {
		major int
		size  uint32
		ok    bool
	}{{535, 0, false}, {550, 8, true}, {570, 8, true}, {580, 12, true}, {595, gone, false}} {
		size, ok := s.at(tt.major)
		if ok != tt.ok || ok && size != tt.size {
			t.Errorf("at(%d) = %d, %v; want %d, %v", tt.major, size, ok, tt.size, tt.ok)
		}
	}
	o := offsets{550: 16, 580: 24}
	for major, want := range map[int]int{535: None, 550: 16, 570: 16, 595: 24} {
		if got := o.offset(major); got != want {
			t.Errorf("offset(%d) = %d, want %d", major, got, want)
		}
	}
}
