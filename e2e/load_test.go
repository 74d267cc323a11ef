package e2e

import (
	"strings"
	"testing"
)

// TestLoadPatterns runs cudaload's patterns on NVIDIA's libcuda: every one gets done what it
// says, by the times that the card itself gave to its kernels.
func TestLoadPatterns(t *testing.T) {
	for _, c := range variants {
		t.Run(c.String(), func(t *testing.T) {
			m := newMachine(t, c)
			for _, flags := range []string{"--pattern constant", "--pattern bursty", "--pattern graphs", "--streams 3", "--processes 2", "--kernel 5ms"} {
				// There libcuda has a kernel of its own write the graph's launch descriptors, and
				// simulated kernels compute nothing.
				if c == (config{model: "a100", driver: "550"}) && flags == "--pattern graphs" {
					continue
				}
				out := decode[struct {
					Kernels int
					Elapsed int64                              `json:"elapsed_ns"`
					Kernel  int64                              `json:"kernel_ns"`
					GPUTime int64                              `json:"gpu_time_ns"`
					Part    float64                            `json:"part"`
					Latency struct{ P50, P90, P99, Max int64 } `json:"latency_ns"`
				}](t, m.mustTenant("2Gi", append([]string{m.program("cudaload"), "load", "--seconds", "0.2", "--json"}, strings.Fields(flags)...)...))
				l := out.Latency
				switch {
				case out.Kernels == 0 || out.GPUTime != int64(out.Kernels)*out.Kernel && flags != "--processes 2":
					t.Errorf("%s: %d kernels of %d ns took %d ns", flags, out.Kernels, out.Kernel, out.GPUTime)
				case out.Part <= 0 || out.Part > 1.02:
					t.Errorf("%s: %.3f of the card", flags, out.Part)
				case l.P50 < out.Kernel || l.P90 < l.P50 || l.P99 < l.P90 || l.Max < l.P99:
					t.Errorf("%s: latencies %+v of kernels of %d ns", flags, l, out.Kernel)
				case flags == "--kernel 5ms" && (out.Kernel < 4e6 || out.Kernel > 6e6):
					t.Errorf("%s: a kernel takes %d ns", flags, out.Kernel)
				}
			}
		})
	}
}
