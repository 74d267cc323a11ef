package share

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Memory is an amount of card memory in bytes.
type Memory int64

// Units of card memory.
const (
	KiB Memory = 1 << 10
	MiB Memory = 1 << 20
	GiB Memory = 1 << 30
)

var memoryUnits = []struct {
	suffix string
	unit   Memory
}{
	{"GiB", GiB}, {"MiB", MiB}, {"KiB", KiB},
	{"Gi", GiB}, {"Mi", MiB}, {"Ki", KiB},
	{"G", 1e9}, {"M", 1e6}, {"k", 1e3}, {"K", 1e3},
	{"", 1},
}

// ParseMemory reads an amount as Kubernetes writes it: 5Gi, 512Mi, 1.5Gi, or
// plain bytes.
func ParseMemory(s string) (Memory, error) {
	text := strings.TrimSpace(s)
	for _, u := range memoryUnits {
		number, ok := strings.CutSuffix(text, u.suffix)
		if !ok {
			continue
		}
		v, err := strconv.ParseFloat(number, 64)
		if err != nil || math.IsNaN(v) {
			break
		}
		bytes := v * float64(u.unit)
		if v < 0 || bytes >= math.MaxInt64 {
			return 0, fmt.Errorf("memory %q is out of range; ask for an amount such as 5Gi", s)
		}
		return Memory(bytes), nil
	}
	return 0, fmt.Errorf("memory %q is not an amount; write for example 5Gi or 512Mi", s)
}

// String writes m in the largest binary unit that divides it, or in MiB with
// one decimal.
func (m Memory) String() string {
	switch {
	case m == 0:
		return "0"
	case m%GiB == 0:
		return fmt.Sprintf("%dGi", m/GiB)
	case m%MiB == 0:
		return fmt.Sprintf("%dMi", m/MiB)
	}
	return fmt.Sprintf("%.1fMi", float64(m)/float64(MiB))
}

// Set makes a Memory a command-line flag.
func (m *Memory) Set(s string) error {
	v, err := ParseMemory(s)
	if err == nil {
		*m = v
	}
	return err
}

// Type names the flag's value in help texts.
func (*Memory) Type() string { return "amount" }

// GiBUp is m rounded up to whole GiB.
func (m Memory) GiBUp() Memory { return (m + GiB - 1) / GiB * GiB }
