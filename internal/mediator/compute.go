package mediator

import (
	"time"

	"github.com/qgpu-project/qgpu/internal/nvclient"
)

// Compute is the use of one card's compute engine over the last second.
type Compute struct {
	Busy float64 // percent of the time, for anybody
	Own  bool    // the driver saw no process but the tenant's on the engine
}

// computeWindow is how far back Compute looks.
const computeWindow = time.Second

// Compute asks the driver for the use of the i-th card. It is false if the driver has no
// samples of it.
func (m *Mediator) Compute(i int) (Compute, bool, error) {
	m.clientMu.Lock()
	defer m.clientMu.Unlock()
	for j, c := range m.client.Cards() {
		if c.Minor != m.cards[i].Minor {
			continue
		}
		samples, err := m.client.Samples(j)
		if err != nil {
			return Compute{}, false, err
		}
		u, ok := lately(samples, uint32(m.self))
		return u, ok, nil
	}
	return Compute{}, false, nil
}

// lately sums up the samples of the window that ends with the last of them. self is the
// process that the tenant's work runs as, to the driver.
func lately(samples []nvclient.Sample, self uint32) (Compute, bool) {
	if len(samples) == 0 {
		return Compute{}, false
	}
	end := samples[len(samples)-1].Time
	busy, n, own := uint64(0), 0, true
	for _, s := range samples {
		if end-s.Time >= uint64(computeWindow.Microseconds()) {
			continue
		}
		busy += uint64(s.Busy)
		n++
		own = own && (s.PID == self || s.PID == nvclient.NoPID || s.Busy == 0)
	}
	const hundredths = 100
	return Compute{Busy: float64(busy) / float64(n) / hundredths, Own: own}, true
}
