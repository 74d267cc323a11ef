package replay

import (
	"cmp"
	"container/heap"
	"math"
	"math/rand"
	"slices"
)

// History plays a trace as it was: pods come and go at their recorded times. A pod
// that does not fit at once waits, and is tried again, in the order of arrival,
// whenever a pod has left. The seed only decides the order of nodes.
type History struct{}

// mostWaiting bounds how many waiting pods are tried at a departure.
const mostWaiting = 1000

// Run plays t under a policy. Lost are the pods that had to wait, Waited is for how
// long; pods that never fitted count to the trace's end.
func (History) Run(t *Trace, policy string, seed int64) *Run {
	rng := rand.New(rand.NewSource(seed))
	pods := slices.Clone(t.Pods)
	slices.SortStableFunc(pods, func(a, b Pod) int {
		return cmp.Or(cmp.Compare(a.Created, b.Created), cmp.Compare(a.Name, b.Name))
	})
	ready, shapes := prepare(pods)
	c := newCluster(t.Nodes, rng.Perm(len(t.Nodes)))
	h := &history{system: system{
		cluster: c,
		chooser: newChooser(c, newRater(policy, setting{target: declared(t.Pods), cluster: c, rng: rng}), shapes),
		run:     &Run{Trace: t.Name, Policy: policy, Seed: seed},
		measure: true,
	}}
	end := 0.0
	for i := range pods {
		end = max(end, float64(max(pods[i].Created, pods[i].Deleted)))
	}
	if len(pods) > 0 {
		h.now = float64(pods[0].Created)
	}
	for i := range pods {
		p := &pods[i]
		h.until(float64(p.Created))
		v := visit{pod: &ready[i], came: float64(p.Created), stay: stay(p, end)}
		ok := h.enter(v)
		h.run.count(v.pod, ok)
		if !ok {
			h.waiting = append(h.waiting, v)
		}
	}
	h.until(end)
	for _, v := range h.waiting {
		h.run.Waited += end - v.came
	}
	h.run.Steady = h.area / h.span / float64(c.capacity) * 100
	return h.run
}

// stay is how long p ran: to the end, if it was not seen to leave.
func stay(p *Pod, end float64) float64 {
	from := max(p.Created, p.Scheduled)
	if p.Deleted <= from {
		return max(1, end-float64(from))
	}
	return float64(p.Deleted - from)
}

type history struct {
	system
	waiting []visit
}

type visit struct {
	pod        *pod
	came, stay float64
}

// until lets time pass: pods leave, and waiting ones enter.
func (h *history) until(then float64) {
	for len(h.leaving) > 0 && h.leaving[0].at <= then {
		d := heap.Pop(&h.leaving).(departure)
		h.pass(d.at)
		h.cluster.remove(d.placed)
		if len(h.leaving) == 0 || h.leaving[0].at > d.at {
			h.retry()
		}
	}
	h.pass(math.Max(then, h.now))
}

func (h *history) retry() {
	still := h.waiting[:0]
	for i, v := range h.waiting {
		if i >= mostWaiting || !h.enter(v) {
			still = append(still, v)
			continue
		}
		h.run.Waited += h.now - v.came
	}
	h.waiting = still
}

func (h *history) enter(v visit) bool {
	node, card, ok := h.chooser.find(v.pod, h.now == v.came)
	if ok {
		heap.Push(&h.leaving, departure{h.now + v.stay, h.cluster.put(node, card, v.pod)})
	}
	return ok
}
