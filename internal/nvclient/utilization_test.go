package nvclient

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"gvisor.dev/gvisor/pkg/abi/nvgpu"

	"github.com/qgpu-project/qgpu/internal/nvabi"
)

// putSample writes sample n of an answer of driver 535 or 550, whose parts for engines
// are alike but for the size of the whole.
func putSample(p message, n, size int, s Sample) {
	e := p[16+n*size:]
	binary.LittleEndian.PutUint64(e, s.Time)
	e.setU32(8, 1234) // the memory controller's
	e.setU32(124, s.Busy)
	e.setU32(132, s.PID)
}

func TestSamplesOldestFirst(t *testing.T) {
	for version, size := range map[string]int{"535.309.01": 472, "550.163.01": 704} {
		r := newRM()
		r.version = version
		r.samples = func(p message) {
			if p[0] != utilSampleType || p.u32(4) != uint32(72*size) {
				t.Errorf("%s: asked for type %d, %d bytes", version, p[0], p.u32(4))
			}
			// A ring whose oldest sample stands third, and one place is unused.
			putSample(p, 0, size, Sample{3000, 900, 7})
			putSample(p, 1, size, Sample{4000, 10000, 8})
			putSample(p, 71, size, Sample{2000, 0, NoPID})
		}
		c, err := Open(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		got, err := c.Samples(1)
		want := []Sample{{2000, 0, NoPID}, {3000, 900, 7}, {4000, 10000, 8}}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v; want %v", version, got, err, want)
		}
	}
}

func TestSamplesRefused(t *testing.T) {
	r := newRM()
	r.refuse[nvgpu.NV2080_CTRL_CMD_PERF_GET_GPUMON_PERFMON_UTIL_SAMPLES_V2] = 0x56
	c, err := Open(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = c.Samples(0)
	var s Status
	if !errors.As(err, &s) || s != 0x56 {
		t.Errorf("%v, want status 0x56", err)
	}
	if c.abi.Layout.UtilSample.Size*nvabi.UtilMax > int(c.abi.Controls[nvgpu.NV2080_CTRL_CMD_PERF_GET_GPUMON_PERFMON_UTIL_SAMPLES_V2].Size) {
		t.Error("the samples do not fit their structure")
	}
}
