package replay

import (
	"container/heap"
	"fmt"
	"math/rand"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Speed is what choosing a node costs in the steady state, in processor time of the
// choosing thread: what other programs do meanwhile does not count.
type Speed struct {
	Nodes, Cards              int // in all
	Pods                      int // measured
	Median, P99, Most, Mean   time.Duration
	AllocsPerPod, BytesPerPod float64
}

// MeasureSpeed plays churn with t's pods on so many nodes of eight cards and 128
// cores, at a load of 0.95, and times the choice of a node for
// each pod, learning included.
func MeasureSpeed(t *Trace, policy string, nodes, pods int, seed int64) (*Speed, error) {
	if err := ValidatePolicy(policy); err != nil {
		return nil, err
	}
	const cards, cpu, host, load = 8, 8 * 16_000, 1 << 20, 0.95
	cluster := make([]Node, nodes)
	for i := range cluster {
		cluster[i] = Node{Name: fmt.Sprint(i), Model: "G2", CPU: cpu, HostMemoryMiB: host, Cards: cards}
	}
	ready, shapes := prepare(anyModel(t.Pods))
	rng := rand.New(rand.NewSource(seed))
	c := newCluster(cluster, nil)
	own := rand.New(rand.NewSource(rng.Int63()))
	chooser := newChooser(c, newRater(policy, setting{target: declared(anyModel(t.Pods)), cluster: c, rng: own}), shapes)
	var demand int64
	for i := range ready {
		demand += ready[i].milli()
	}
	rate := load * float64(c.capacity) * float64(len(ready)) / float64(max(1, demand))
	s := &system{cluster: c, chooser: chooser, run: &Run{}}
	fill, next := int(rate), 0.0
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	times := make([]time.Duration, 0, pods)
	var allocs, bytes uint64
	for n := 0; len(times) < pods; n++ {
		s.advance(next)
		p := &ready[rng.Intn(len(ready))]
		leave := next + rng.ExpFloat64()
		if n >= fill {
			next += rng.ExpFloat64() / rate
		}
		measure := n >= fill+pods // the first are to warm up
		var before, after runtime.MemStats
		sampled := measure && len(times)%100 == 0 // reading costs much
		if sampled {
			runtime.ReadMemStats(&before)
		}
		began := threadTime()
		node, card, ok := chooser.choose(p)
		took := threadTime() - began
		if sampled {
			runtime.ReadMemStats(&after)
			allocs, bytes = allocs+after.Mallocs-before.Mallocs, bytes+after.TotalAlloc-before.TotalAlloc
		}
		if measure {
			times = append(times, took)
		}
		if ok {
			heap.Push(&s.leaving, departure{leave, c.put(node, card, p)})
		}
	}
	return summary(times, nodes, cards, allocs, bytes), nil
}

func summary(times []time.Duration, nodes, cards int, allocs, bytes uint64) *Speed {
	var sum time.Duration
	for _, t := range times {
		sum += t
	}
	samples := float64((len(times) + 99) / 100)
	slices.Sort(times)
	return &Speed{
		Nodes: nodes, Cards: nodes * cards, Pods: len(times),
		Median: times[len(times)/2], P99: times[len(times)*99/100], Most: times[len(times)-1], Mean: sum / time.Duration(len(times)),
		AllocsPerPod: float64(allocs) / samples, BytesPerPod: float64(bytes) / samples,
	}
}

// anyModel is pods without their wishes for models.
func anyModel(pods []Pod) []Pod {
	out := slices.Clone(pods)
	for i := range out {
		out[i].Models = nil
	}
	return out
}

// threadTime is the processor time of the calling thread.
func threadTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}
