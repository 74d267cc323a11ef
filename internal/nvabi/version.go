package nvabi

import (
	"fmt"
	"strconv"
	"strings"
)

// Version is a driver version such as 535.309.01, or 580.142 with Patch 0.
// Versions compare with ==.
type Version struct {
	Major, Minor, Patch int
}

// ParseVersion reads a version as the driver writes it: two or three decimal
// numbers of at most four digits, joined by dots.
func ParseVersion(s string) (Version, error) {
	parts := strings.Split(s, ".")
	if len(parts) != 2 && len(parts) != 3 {
		return Version{}, fmt.Errorf("driver version %.40q is not of the form 535.309.01 or 580.142", s)
	}
	var n [3]int
	for i, p := range parts {
		v, err := parseNumber(p)
		if err != nil {
			return Version{}, fmt.Errorf("driver version %.40q is not of the form 535.309.01 or 580.142: %w", s, err)
		}
		n[i] = v
	}
	return Version{Major: n[0], Minor: n[1], Patch: n[2]}, nil
}

// ParseProcVersion finds the version in the text of /proc/driver/nvidia/version,
// whose first line names the kernel module, proprietary or open.
func ParseProcVersion(text string) (Version, error) {
	line, _, _ := strings.Cut(text, "\n")
	module, ok := strings.CutPrefix(line, "NVRM version:")
	if !ok {
		return Version{}, fmt.Errorf("the driver's version file begins with %.40q, not with an NVRM version", line)
	}
	for _, word := range strings.Fields(module) {
		if v, err := ParseVersion(word); err == nil {
			return v, nil
		}
	}
	return Version{}, fmt.Errorf("no version in %.120q of the driver's version file", line)
}

func parseNumber(s string) (int, error) {
	if len(s) == 0 || len(s) > 4 {
		return 0, fmt.Errorf("%.40q is not a number of one to four digits", s)
	}
	v, err := strconv.ParseUint(s, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("%.40q is not a number: %w", s, err)
	}
	return int(v), nil
}

// String writes the version as NVIDIA does: the second and third numbers have at
// least two digits, and there is no third where it is 0.
func (v Version) String() string {
	if v.Patch == 0 {
		return fmt.Sprintf("%d.%02d", v.Major, v.Minor)
	}
	return fmt.Sprintf("%d.%02d.%02d", v.Major, v.Minor, v.Patch)
}

// Less reports whether v is older than w.
func (v Version) Less(w Version) bool {
	if v.Major != w.Major {
		return v.Major < w.Major
	}
	if v.Minor != w.Minor {
		return v.Minor < w.Minor
	}
	return v.Patch < w.Patch
}
