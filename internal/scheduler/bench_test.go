package scheduler

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/qgpu-project/qgpu/internal/placement/strategy"
)

// BenchmarkCycle places pods of three containers on 5,000 nodes with 8 cards each, about
// two thirds of which is taken, while others leave. One operation is all that the plugin
// does for a pod from PreFilter to NormalizeScore, one node after the other: on the nodes
// that it picks, or on all, as for a pod that these have refused; and once where some pods
// must have a model that some nodes have.
// The percentiles are of the thread's CPU time, so that other work on the machine does
// not count; cold is the longest that a shape took when it was seen for the first time.
func BenchmarkCycle(b *testing.B) {
	for _, name := range strategy.Names() {
		for _, all := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/all=%v", name, all), func(b *testing.B) {
				benchmarkCycle(b, Args{NodePlacement: name, CardPlacement: name}, all, false)
			})
		}
	}
	b.Run(strategy.Frag+"/models", func(b *testing.B) {
		benchmarkCycle(b, Args{NodePlacement: strategy.Frag, CardPlacement: strategy.Frag}, false, true)
	})
}

const (
	benchNodes  = 5000
	benchCards  = 8
	benchShapes = 12
)

func benchmarkCycle(b *testing.B, args Args, all, models bool) {
	c := newCluster(b, args)
	for i := range benchNodes {
		model := common
		if models && i%4 == 0 {
			model = scarce
		}
		c.join(fmt.Sprintf("node-%04d", i), model, benchCards)
	}
	random := rand.New(rand.NewPCG(1, 2))
	s := &stream{cluster: c, random: random, infos: c.snapshot()}
	for i, info := range s.infos {
		s.at(info.Node().Name, i)
	}
	s.fill()
	s.models = models
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cold := s.warm()
	var took []time.Duration
	for b.Loop() {
		pod := s.pod()
		if all {
			s.plugin.wide.put(pod.UID)
		}
		begin := threadTime()
		node := s.cycle(pod)
		took = append(took, threadTime()-begin)
		s.settle(pod, node)
	}
	slices.Sort(took)
	b.ReportMetric(float64(cold.Microseconds()), "cold-µs")
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}

// warm places one pod of each shape, and returns the longest time that one took.
func (s *stream) warm() (longest time.Duration) {
	for shape := range benchShapes {
		pod := s.shaped(shape)
		begin := threadTime()
		node := s.cycle(pod)
		longest = max(longest, threadTime()-begin)
		s.settle(pod, node)
	}
	return longest
}

func threadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic(err)
	}
	return time.Duration(t.Nano())
}

// stream is pods that come and go.
type stream struct {
	*cluster
	random *rand.Rand
	infos  []fwk.NodeInfo
	index  map[string]int
	state  *cycleState
	looked []fwk.NodeInfo
	fit    []fwk.NodeInfo
	scores fwk.NodeScoreList
	placed []placedPod
	models bool // pods of some shapes must have the scarce model
}

type placedPod struct {
	node string
	uid  types.UID
}

func (s *stream) at(name string, i int) {
	if s.index == nil {
		s.index = make(map[string]int)
	}
	s.index[name] = i
}

// pod is one of a few shapes, as the replicas of some workloads are.
func (s *stream) pod() *corev1.Pod {
	return s.shaped(s.random.IntN(benchShapes))
}

func (s *stream) shaped(shape int) *corev1.Pod {
	pod := s.cluster.pod([2]int{5 + 5*(shape%6), 1 + shape%4}, [2]int{10, 1 + shape/4}, [2]int{20 + 5*(shape/6), 2})
	if s.models && shape%3 == 0 {
		onModels(pod, scarce)
	}
	return pod
}

// cycle is what the scheduler asks of the plugin for one pod.
func (s *stream) cycle(pod *corev1.Pod) (node string) {
	ctx := context.Background()
	s.state = &cycleState{}
	picked, status := s.plugin.PreFilter(ctx, s.state, pod, s.infos)
	if !status.IsSuccess() {
		panic(status.Message())
	}
	s.fit, s.scores, s.looked = s.fit[:0], s.scores[:0], s.looked[:0]
	if picked.AllNodes() {
		s.looked = append(s.looked, s.infos...)
	} else {
		for name := range picked.NodeNames {
			s.looked = append(s.looked, s.nodes[name])
		}
	}
	for _, info := range s.looked {
		if s.plugin.Filter(ctx, s.state, pod, info).IsSuccess() {
			s.fit = append(s.fit, info)
		}
	}
	for _, info := range s.fit {
		score, _ := s.plugin.Score(ctx, s.state, pod, info)
		s.scores = append(s.scores, fwk.NodeScore{Name: info.Node().Name, Score: score})
	}
	s.plugin.NormalizeScore(ctx, s.state, pod, s.scores)
	for _, score := range s.scores {
		if score.Score == fwk.MaxScore {
			return score.Name
		}
	}
	panic("no node fits")
}

// settle puts pod on node, and lets another leave.
func (s *stream) settle(pod *corev1.Pod, node string) {
	s.take(pod, node)
	i := s.random.IntN(len(s.placed))
	gone := s.placed[i]
	s.placed[i] = s.placed[len(s.placed)-1]
	s.placed = s.placed[:len(s.placed)-1]
	s.plugin.ledger.drop(gone.uid)
	s.remove(gone.node, gone.uid)
	s.refresh(gone.node)
}

func (s *stream) take(pod *corev1.Pod, node string) {
	if status := s.plugin.Reserve(context.Background(), s.state, pod, node); !status.IsSuccess() {
		panic(status.Message())
	}
	assumed := pod.DeepCopy()
	assumed.Spec.NodeName = node
	s.put(node, assumed)
	s.refresh(node)
	s.placed = append(s.placed, placedPod{node, pod.UID})
}

func (s *stream) refresh(node string) { s.infos[s.index[node]] = s.nodes[node] }

// fill gives each node tenants until about two thirds of its core are taken.
func (s *stream) fill() {
	for _, info := range slices.Clone(s.infos) {
		for range 8 {
			pod := s.pod()
			all := s.infos
			s.infos = []fwk.NodeInfo{s.nodes[info.Node().Name]}
			s.state = &cycleState{}
			_, status := s.plugin.PreFilter(context.Background(), s.state, pod, s.infos)
			fits := status.IsSuccess() && s.plugin.Filter(context.Background(), s.state, pod, s.infos[0]).IsSuccess()
			s.infos = all
			if fits {
				s.take(pod, info.Node().Name)
			}
		}
	}
}
