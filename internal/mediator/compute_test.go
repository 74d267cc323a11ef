package mediator

import (
	"testing"

	"github.com/qgpu-project/qgpu/internal/nvclient"
)

func at(time uint64, busy, pid uint32) nvclient.Sample {
	return nvclient.Sample{Time: time, Busy: busy, PID: pid}
}

func TestLately(t *testing.T) {
	const self, other = 7, 8
	for _, tc := range []struct {
		name    string
		samples []nvclient.Sample
		want    Compute
		unknown bool
	}{
		{name: "no samples", unknown: true},
		{name: "idle", samples: []nvclient.Sample{{Time: 5, PID: nvclient.NoPID}}, want: Compute{Own: true}},
		{
			name:    "the mean of the last second, and nothing older",
			samples: []nvclient.Sample{at(1_000_000, 10000, other), at(1_500_000, 2500, self), at(2_000_000, 7500, self)},
			want:    Compute{Busy: 50, Own: true},
		},
		{
			name:    "somebody else's work",
			samples: []nvclient.Sample{at(1_500_000, 10000, self), at(2_000_000, 10000, other)},
			want:    Compute{Busy: 100},
		},
		{
			name:    "somebody else, who did nothing",
			samples: []nvclient.Sample{at(1_500_000, 10000, self), at(2_000_000, 0, other)},
			want:    Compute{Busy: 50, Own: true},
		},
	} {
		got, ok := lately(tc.samples, self)
		if got != tc.want || ok == tc.unknown {
			t.Errorf("%s: %+v, %v; want %+v", tc.name, got, ok, tc.want)
		}
	}
}

func TestComputeAsksTheDriver(t *testing.T) {
	m, d, _ := setUp(t, gib)
	if _, ok, err := m.Compute(0); ok || err == nil {
		t.Errorf("a driver that refuses: %v, %v", ok, err)
	}
	d.samples = func(p message) {
		l := m.abi.Layout.UtilSample
		p.setU64(samplesFirst, 1)
		p.setU32(samplesFirst+l.GR, 4200)
		p.setU32(samplesFirst+l.GR+engineProcess, mediators)
	}
	if got, ok, err := m.Compute(0); err != nil || !ok || got != (Compute{Busy: 42, Own: true}) {
		t.Errorf("%+v, %v, %v", got, ok, err)
	}
}
