package nvclient

import (
	"cmp"
	"fmt"
	"slices"

	"gvisor.dev/gvisor/pkg/abi/nvgpu"

	"github.com/qgpu-project/qgpu/internal/nvabi"
)

// Sample is the use of a card's graphics and compute engine in one of the driver's sampling
// periods, of about a sixth of a second.
type Sample struct {
	Time uint64 // µs, on a clock that all samples of a card share
	Busy uint32 // 1/100 percent of the period in which the engine worked, for anybody
	PID  uint32 // of the process that was on the engine when the sample was taken, or NoPID
}

// NoPID is the PID of a sample that names no process (NV2080_GPUMON_PID_INVALID).
const NoPID = ^uint32(0)

// utilSampleType is NV2080_CTRL_GPUMON_SAMPLE_TYPE_PERFMON_UTIL (ctrl2080gpumon.h).
const utilSampleType = 2

// Samples are the driver's last samples of the i-th of Cards, oldest first; the driver
// keeps some ten seconds of them. There may be none.
//
// Only Busy is measured over a period. PID is a look at one moment (ctrl2080perf.h), so
// that Busy of a card that several processes use cannot be divided among them.
func (c *Client) Samples(i int) ([]Sample, error) {
	l := c.abi.Layout.UtilSample
	p, err := c.params(nvgpu.NV2080_CTRL_CMD_PERF_GET_GPUMON_PERFMON_UTIL_SAMPLES_V2, nvabi.UtilSamples+nvabi.UtilMax*l.Size)
	if err != nil {
		return nil, err
	}
	p[nvabi.UtilType] = utilSampleType
	p.setU32(nvabi.UtilBufSize, uint32(nvabi.UtilMax*l.Size))
	if err := c.control(subdeviceHandle+uint32(i), nvgpu.NV2080_CTRL_CMD_PERF_GET_GPUMON_PERFMON_UTIL_SAMPLES_V2, p); err != nil {
		return nil, fmt.Errorf("ask card %d for its utilisation: %w", c.cards[i].Minor, err)
	}
	var samples []Sample
	for n := range nvabi.UtilMax {
		e := p[nvabi.UtilSamples+n*l.Size:][:l.Size]
		s := Sample{Time: e.u64(l.Time), Busy: e.u32(l.GR + nvabi.EngineUtilPercent), PID: e.u32(l.GR + nvabi.EngineUtilPid)}
		if s.Time != 0 { // else the ring is not full
			samples = append(samples, s)
		}
	}
	// It is a ring, and the oldest may stand anywhere.
	slices.SortFunc(samples, func(a, b Sample) int { return cmp.Compare(a.Time, b.Time) })
	return samples, nil
}
