package scheduler

import (
	"encoding/binary"
	"runtime"
	"sync"
	"sync/atomic"

	fwk "k8s.io/kube-scheduler/framework"

	"github.com/qgpu-project/qgpu/internal/placement"
)

// shape is what pods with equal requests need to know of nodes: whether one of them fits
// and how good the node is. A node is judged again when its state is another.
type shape struct {
	request *placement.Request
	choice  choice
	hostCPU bool
	used    uint64 // when last, counted in uses of any shape
	placers sync.Pool
	byID    []entry        // by the record's id
	asOf    uint64         // the last version of any node that is judged
	byState map[string]int // while many nodes are judged: places in states
	states  []state
}

// entry is the verdict on one node, in few bytes.
type entry struct {
	judged bool
	score  int64
	// status is nil for a yes, and else the framework's form of a no. The framework
	// writes into it, so that each node has its own.
	status *fwk.Status
}

// verdict is what a shape thinks of a state.
type verdict struct {
	fits   bool
	score  int64
	reason string
	code   fwk.Code
}

func (v *verdict) status() *fwk.Status {
	if v.fits {
		return nil
	}
	return fwk.NewStatus(v.code, "node(s) where "+v.reason)
}

// few is up to how many nodes are judged one by one. Of more, those in equal states are
// judged once.
const few = 4

// update judges the nodes of v that are in other states than when s judged them last.
func (s *shape) update(v *view) {
	if len(s.byID) < len(v.byID) {
		s.byID = append(s.byID, make([]entry, len(v.byID)-len(s.byID))...)
	}
	stale := v.since(s.asOf)
	s.asOf = v.versions
	if len(stale) > few {
		s.updateMany(v, stale)
		return
	}
	for _, r := range stale {
		if v.has(r) {
			s.enter(r, s.judge(&r.nodeState))
		}
	}
}

// updateMany judges each state once, on all processors.
func (s *shape) updateMany(v *view, stale []*record) {
	if s.byState == nil {
		s.byState = make(map[string]int)
	}
	s.states = s.states[:0]
	for _, r := range stale {
		if _, known := s.byState[s.key(r)]; !known && v.has(r) {
			s.byState[s.key(r)] = len(s.states)
			s.states = append(s.states, state{of: r})
		}
	}
	s.judgeAll()
	for _, r := range stale {
		if v.has(r) {
			s.enter(r, s.states[s.byState[s.key(r)]].verdict)
		}
	}
	clear(s.byState)
	clear(s.states)
}

// state is one that many nodes may be in.
type state struct {
	of *record // one of them
	verdict
}

func (s *shape) key(r *record) string {
	if s.hostCPU {
		return r.cpuKey
	}
	return r.key
}

// share of work for one processor: less is not worth the hand-over.
const batch = 16

func (s *shape) judgeAll() {
	var next atomic.Int64
	work := func() {
		for {
			end := int(next.Add(batch))
			from := end - batch
			if from >= len(s.states) {
				return
			}
			for i := from; i < min(end, len(s.states)); i++ {
				s.states[i].verdict = s.judge(&s.states[i].of.nodeState)
			}
		}
	}
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0)-1, len(s.states)/batch) {
		wg.Go(work)
	}
	work()
	wg.Wait()
}

func (s *shape) enter(r *record, v verdict) {
	s.byID[r.id] = entry{judged: true, score: v.score, status: v.status()}
}

// judge asks whether s fits on n. Several may ask at a time.
func (s *shape) judge(n *nodeState) verdict {
	if n.problem != "" {
		return verdict{reason: n.problem, code: fwk.UnschedulableAndUnresolvable}
	}
	p, _ := s.placers.Get().(*placement.Placer)
	if p == nil {
		p = new(placement.Placer)
	}
	defer s.placers.Put(p)
	node := nodeState{Node: n.Node}
	node.leaveCPU(s.request)
	if !p.Place(&node.Node, s.request, s.choice.card.Card) {
		reason := node.Explain(s.request)
		if p.Exhausted() {
			reason = "no room was found in the time that one pod may take"
		}
		return verdict{reason: reason, code: fwk.Unschedulable}
	}
	return verdict{fits: true, score: s.choice.node.Node.Score(&node.Node, p.After(), s.request)}
}

// shapes is the shapes in use.
type shapes struct {
	byKey map[string]*shape
	uses  uint64
	key   []byte
}

// maxShapes bounds what is remembered for shapes: some hundred kilobytes each with
// thousands of nodes. The one that was not used for longest goes.
const maxShapes = 128

// of is the shape of a request placed by c.
func (s *shapes) of(r *placement.Request, c choice) *shape {
	hostCPU := c.node.HostCPU || c.card.HostCPU
	if !hostCPU {
		r.CPU = 0
	}
	s.key = appendRequest(s.key[:0], r, c)
	s.uses++
	found := s.byKey[string(s.key)]
	if found == nil {
		if s.byKey == nil {
			s.byKey = make(map[string]*shape)
		}
		if len(s.byKey) >= maxShapes {
			s.evict()
		}
		found = &shape{request: r, choice: c, hostCPU: hostCPU}
		s.byKey[string(s.key)] = found
	}
	if c.node.Version != found.choice.node.Version || c.card.Version != found.choice.card.Version {
		found.choice, found.asOf = c, 0 // what was judged before is not to be compared
	}
	found.used = s.uses
	return found
}

func (s *shapes) evict() {
	var oldest string
	used := s.uses
	for key, shape := range s.byKey {
		if shape.used < used {
			oldest, used = key, shape.used
		}
	}
	delete(s.byKey, oldest)
}

// appendRequest appends all of a request that its place depends on.
func appendRequest(b []byte, r *placement.Request, c choice) []byte {
	for _, word := range append([]string{c.node.Name, c.card.Name}, r.Models...) {
		b = append(append(b, word...), 0)
	}
	b = append(b, 0, byte(r.Together))
	b = binary.AppendVarint(b, r.CPU)
	for i := range r.Containers {
		k := &r.Containers[i]
		proportional := byte(0)
		if k.Proportional {
			proportional = 1
		}
		b = append(b, byte(k.Stage), proportional)
		b = binary.AppendVarint(b, int64(k.Share.Core))
		b = binary.AppendVarint(b, int64(k.Share.Memory))
		b = append(append(b, k.Share.Class...), 0)
	}
	return b
}
