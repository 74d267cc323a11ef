package scheduler

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/qgpu-project/qgpu/internal/inventory"
	"github.com/qgpu-project/qgpu/internal/placement/strategy"
	"github.com/qgpu-project/qgpu/internal/podshare"
)

// cluster stands for the API server, the scheduler's cache and its snapshot. Like the
// scheduler it gives a node a new generation whenever anything of it changes, and an
// assumed pod a node name before its annotations.
type cluster struct {
	nodes      map[string]*nodeInfo
	generation int64
	stored     map[types.UID]*corev1.Pod // as the API server has them
	bindErr    error                     // of the next binding
	lost       bool                      // the next binding is made and its answer lost
	plugin     *Plugin
	made       int
}

func newCluster(t testing.TB, args Args, nodes ...*corev1.Node) *cluster {
	t.Helper()
	if args.NodePlacement == "" {
		args.NodePlacement, args.CardPlacement = strategy.Binpack, strategy.Binpack
	}
	c := &cluster{nodes: make(map[string]*nodeInfo), stored: make(map[types.UID]*corev1.Pod)}
	c.plugin = newPlugin(&handle{cluster: c}, args, newLedger(), &inventories{})
	for _, n := range nodes {
		c.nodes[n.Name] = &nodeInfo{node: n}
		c.touch(n.Name)
	}
	return c
}

// restart replaces the plugin by a new one, as a new leader has.
func (c *cluster) restart() {
	inv := &inventories{}
	for name := range c.nodes {
		if cards := c.plugin.inventories.get(name); cards != nil {
			inv.set(name, cards)
		}
	}
	c.plugin = newPlugin(&handle{cluster: c}, c.plugin.args, newLedger(), inv)
}

func (c *cluster) touch(node string) {
	c.generation++
	old := c.nodes[node]
	c.nodes[node] = &nodeInfo{node: old.node, pods: slices.Clone(old.pods), generation: c.generation}
}

// snapshot lists the nodes in the order of their names.
func (c *cluster) snapshot() []fwk.NodeInfo {
	var infos []fwk.NodeInfo
	for _, name := range slices.Sorted(maps.Keys(c.nodes)) {
		infos = append(infos, c.nodes[name])
	}
	return infos
}

func (c *cluster) report(node string, cards ...inventory.Card) {
	c.plugin.inventories.set(node, &inventory.CardInventory{ObjectMeta: metav1.ObjectMeta{Name: node}, Cards: cards})
}

func (c *cluster) put(node string, pod *corev1.Pod) {
	info := c.nodes[node]
	info.pods = slices.DeleteFunc(slices.Clone(info.pods), func(p *corev1.Pod) bool { return p.UID == pod.UID })
	info.pods = append(info.pods, pod)
	c.touch(node)
}

func (c *cluster) remove(node string, uid types.UID) {
	info := c.nodes[node]
	info.pods = slices.DeleteFunc(slices.Clone(info.pods), func(p *corev1.Pod) bool { return p.UID == uid })
	c.touch(node)
}

// filter runs the plugin up to the nodes that fit.
func (c *cluster) filter(pod *corev1.Pod) (state *cycleState, fit []fwk.NodeInfo, why map[string]*fwk.Status) {
	ctx, infos := context.Background(), c.snapshot()
	state, why = &cycleState{}, make(map[string]*fwk.Status)
	result, status := c.plugin.PreFilter(ctx, state, pod, infos)
	for _, info := range infos {
		if !result.AllNodes() && !result.NodeNames.Has(info.Node().Name) {
			continue
		}
		if status.IsRejected() {
			why[info.Node().Name] = status
			continue
		}
		if s := c.plugin.Filter(ctx, state, pod, info); s.IsSuccess() {
			fit = append(fit, info)
		} else {
			why[info.Node().Name] = s
		}
	}
	return state, fit, why
}

// choose runs the plugin, and NodeAffinity beside it, up to the scores, and returns the
// node that wins.
func (c *cluster) choose(pod *corev1.Pod) (*cycleState, string, fwk.NodeScoreList) {
	ctx := context.Background()
	state, fit, _ := c.filter(pod)
	affinity := nodeaffinity.GetRequiredNodeAffinity(pod)
	fit = slices.DeleteFunc(fit, func(n fwk.NodeInfo) bool {
		match, err := affinity.Match(n.Node())
		return err != nil || !match
	})
	if len(fit) == 0 {
		return state, "", nil
	}
	scores := make(fwk.NodeScoreList, len(fit))
	for i, info := range fit {
		score, status := c.plugin.Score(ctx, state, pod, info)
		if !status.IsSuccess() {
			panic(status.Message())
		}
		scores[i] = fwk.NodeScore{Name: info.Node().Name, Score: score}
	}
	c.plugin.NormalizeScore(ctx, state, pod, scores)
	best := slices.MaxFunc(scores, func(a, b fwk.NodeScore) int { return int(a.Score - b.Score) })
	return state, best.Name, scores
}

// schedule takes pod all the way, as the scheduler would. It returns the node, or the
// status of the step that failed.
func (c *cluster) schedule(pod *corev1.Pod) (string, *fwk.Status) {
	ctx := context.Background()
	state, node, _ := c.choose(pod)
	if node == "" {
		return "", fwk.NewStatus(fwk.Unschedulable)
	}
	assumed := pod.DeepCopy()
	assumed.Spec.NodeName = node
	if s := c.plugin.Reserve(ctx, state, pod, node); !s.IsSuccess() {
		c.plugin.Unreserve(ctx, state, pod, node)
		return "", s
	}
	c.put(node, assumed)
	c.stored[pod.UID] = pod
	if s := c.plugin.Bind(ctx, state, pod, node); !s.IsSuccess() {
		c.plugin.Unreserve(ctx, state, pod, node)
		c.remove(node, pod.UID)
		delete(c.stored, pod.UID)
		return "", s
	}
	return node, nil
}

// confirm lets the pod come back from the API server.
func (c *cluster) confirm(uid types.UID) {
	pod := c.stored[uid]
	c.put(pod.Spec.NodeName, pod)
}

type nodeInfo struct {
	fwk.NodeInfo
	node       *corev1.Node
	pods       []*corev1.Pod
	infos      []fwk.PodInfo // of pods, once somebody has asked
	generation int64
}

func (n *nodeInfo) Node() *corev1.Node   { return n.node }
func (n *nodeInfo) GetGeneration() int64 { return n.generation }
func (n *nodeInfo) GetAllocatable() fwk.Resource {
	amounts := n.node.Status.Allocatable
	core := amounts[podshare.Core]
	return cpus{milli: amounts.Cpu().MilliValue(), memory: amounts.Memory().Value(), core: core.Value()}
}
func (n *nodeInfo) GetRequested() fwk.Resource { return milliCPU(0) }
func (n *nodeInfo) GetPods() []fwk.PodInfo {
	if len(n.infos) != len(n.pods) {
		n.infos = make([]fwk.PodInfo, len(n.pods))
		for i, p := range n.pods {
			n.infos[i] = podInfo{pod: p}
		}
	}
	return n.infos
}

// without is n as preemption tries it.
func (n *nodeInfo) without(generation int64, uid types.UID) *nodeInfo {
	return &nodeInfo{node: n.node, generation: generation,
		pods: slices.DeleteFunc(slices.Clone(n.pods), func(p *corev1.Pod) bool { return p.UID == uid })}
}

type podInfo struct {
	fwk.PodInfo
	pod *corev1.Pod
}

func (p podInfo) GetPod() *corev1.Pod { return p.pod }

type cpus struct {
	fwk.Resource
	milli, memory, core int64
}

func milliCPU(n int64) fwk.Resource { return cpus{milli: n} }
func (c cpus) GetScalarResources() map[corev1.ResourceName]int64 {
	return map[corev1.ResourceName]int64{podshare.Core: c.core}
}

func (c cpus) GetMilliCPU() int64       { return c.milli }
func (c cpus) GetMemory() int64         { return c.memory }
func (c cpus) GetAllowedPodNumber() int { return 110 }

type cycleState struct {
	fwk.CycleState
	data map[fwk.StateKey]fwk.StateData
}

func (s *cycleState) Read(key fwk.StateKey) (fwk.StateData, error) {
	if d, ok := s.data[key]; ok {
		return d, nil
	}
	return nil, fwk.ErrNotFound
}

func (s *cycleState) Write(key fwk.StateKey, d fwk.StateData) {
	if s.data == nil {
		s.data = make(map[fwk.StateKey]fwk.StateData)
	}
	s.data[key] = d
}

type handle struct {
	fwk.Handle
	cluster   *cluster
	activated []string
}

func (h *handle) Activate(_ klog.Logger, pods map[string]*corev1.Pod) {
	h.activated = append(h.activated, slices.Sorted(maps.Keys(pods))...)
}

func (h *handle) SnapshotSharedLister() fwk.SharedLister { return lister{cluster: h.cluster} }
func (h *handle) APICacher() fwk.APICacher               { return nil }
func (h *handle) ClientSet() kubernetes.Interface        { return clientSet{cluster: h.cluster} }

type lister struct {
	fwk.SharedLister
	fwk.NodeInfoLister
	cluster *cluster
}

func (l lister) NodeInfos() fwk.NodeInfoLister { return l }
func (l lister) Get(name string) (fwk.NodeInfo, error) {
	if n, ok := l.cluster.nodes[name]; ok {
		return n, nil
	}
	return nil, fmt.Errorf("no node %s", name)
}

type clientSet struct {
	kubernetes.Interface
	typedcorev1.CoreV1Interface
	typedcorev1.PodInterface
	cluster *cluster
}

func (c clientSet) CoreV1() typedcorev1.CoreV1Interface  { return c }
func (c clientSet) Pods(string) typedcorev1.PodInterface { return c }

var errBind = errors.New("the API server is away")

// Bind does what the API server's BindingREST does: one write of node and annotations.
func (c clientSet) Bind(_ context.Context, b *corev1.Binding, _ metav1.CreateOptions) error {
	if err := c.cluster.bindErr; err != nil {
		c.cluster.bindErr = nil
		return err
	}
	pod := c.cluster.stored[b.UID].DeepCopy()
	pod.Spec.NodeName = b.Target.Name
	if pod.Annotations == nil {
		pod.Annotations = make(map[string]string)
	}
	maps.Copy(pod.Annotations, b.Annotations)
	c.cluster.stored[b.UID] = pod
	if c.cluster.lost {
		c.cluster.lost = false
		return errBind
	}
	return nil
}

func (c clientSet) Get(_ context.Context, name string, _ metav1.GetOptions) (*corev1.Pod, error) {
	for _, pod := range c.cluster.stored {
		if pod.Name == name {
			return pod, nil
		}
	}
	return nil, errors.New("not found")
}

// gpuNode is a node that takes shares.
func gpuNode(name string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{podshare.EnableLabel: "enable"}},
		Status:     corev1.NodeStatus{Allocatable: corev1.ResourceList{podshare.Core: quantity(100)}},
	}
}

// t4s is n cards of 15 GiB.
func t4s(node string, n int) []inventory.Card {
	cards := make([]inventory.Card, n)
	for i := range cards {
		cards[i] = inventory.Card{Index: i, UUID: fmt.Sprintf("GPU-%s-%d", node, i), Model: "Tesla T4", MemoryMiB: 15 << 10}
	}
	return cards
}

// pod asks with one container for each pair of core and memory in GiB; zeros: it asks
// for nothing.
func (c *cluster) pod(asks ...[2]int) *corev1.Pod {
	c.made++
	name := fmt.Sprint("pod", c.made)
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}}
	for i, ask := range asks {
		p.Spec.Containers = append(p.Spec.Containers, container(fmt.Sprint("c", i), ask[0], ask[1]))
	}
	return p
}

func container(name string, core, memory int) corev1.Container {
	c := corev1.Container{Name: name}
	c.Resources.Limits = corev1.ResourceList{}
	for resourceName, n := range map[corev1.ResourceName]int{podshare.Core: core, podshare.Memory: memory} {
		if n > 0 {
			c.Resources.Limits[resourceName] = quantity(n)
		}
	}
	c.Resources.Requests = maps.Clone(c.Resources.Limits)
	return c
}

func quantity(n int) resource.Quantity { return *resource.NewQuantity(int64(n), resource.DecimalSI) }
