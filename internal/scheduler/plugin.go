// Package scheduler is a plugin of Kubernetes' scheduler that places pods' shares on
// cards: it finds the nodes whose cards have room, rates them, decides for the cards and
// writes the decision with the binding. It owns how a cluster's state becomes placement's
// plain structs, and what of it is remembered between pods; which cards suit is package
// placement's. It asks no API server while a pod is being placed.
//
// What cards hold is derived, node by node, from the scheduler's own snapshot: from the
// placements that its pods carry. So there is no second account that could differ from
// the first, a pod's room is free in the instant in which the scheduler forgets the pod,
// and after a restart the account is the same. Between Reserve and the pod's return from
// the API server the placement is in a ledger by the pod's UID.
package scheduler

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/placement/frag"
	"github.com/qgpu-project/qgpu/internal/placement/strategy"
	"github.com/qgpu-project/qgpu/internal/podshare"
)

// Name is the plugin's name in scheduler configurations.
const Name = "QGPU"

// Plugin places pods' shares on cards.
type Plugin struct {
	handle      fwk.Handle
	args        Args
	reader      podshare.Reader
	ledger      *ledger
	inventories *inventories
	book        *strategy.Book
	view        *view
	learned     *learned // nil: nothing is kept
	shapes      shapes
	last        atomic.Pointer[lastCycle]
	wide        pods // to try on all nodes next time
	unlearned   pods // that no node would do for when they came
}

var (
	_ fwk.PreFilterPlugin   = (*Plugin)(nil)
	_ fwk.FilterPlugin      = (*Plugin)(nil)
	_ fwk.PostFilterPlugin  = (*Plugin)(nil)
	_ fwk.PreScorePlugin    = (*Plugin)(nil)
	_ fwk.ScorePlugin       = (*Plugin)(nil)
	_ fwk.ScoreExtensions   = (*Plugin)(nil)
	_ fwk.ReservePlugin     = (*Plugin)(nil)
	_ fwk.BindPlugin        = (*Plugin)(nil)
	_ fwk.EnqueueExtensions = (*Plugin)(nil)
)

func newPlugin(handle fwk.Handle, args Args, l *ledger, inv *inventories) *Plugin {
	reader, book := podshare.Reader{Nano: args.NanoNames}, strategy.NewBook()
	if expected, err := args.target(); err == nil && len(expected) > 0 { // readArgs saw to the error
		book.Declare(expected)
	}
	return &Plugin{
		handle: handle, args: args, reader: reader, ledger: l, inventories: inv, book: book,
		view: newView(&observer{args: args, reader: reader, ledger: l, book: book}, inv),
	}
}

// Name implements framework.Plugin.
func (p *Plugin) Name() string { return Name }

// cycleKey is where a cycle is kept in the framework's CycleState.
const cycleKey fwk.StateKey = "qgpu.io/" + Name

// cycle is what the plugin knows of the pod that is being placed.
type cycle struct {
	// request is the pod's own: its shape's may have other names for containers.
	request *placement.Request
	shape   *shape
	sync    uint64    // of the view, that the shape has judged
	models  []string  // on the nodes that will do; none: any
	nowhere bool      // no node with cards will do
	kept    frag.Kept // from the pod
	began   time.Time
	// narrowed: only the best nodes are looked at.
	narrowed bool
}

// lastCycle remembers the cycle of the last PreFilter: to ask CycleState for it, once
// for each node, takes longer than all else.
type lastCycle struct {
	state fwk.CycleState
	cycle *cycle
}

// Clone implements framework.StateData. A cycle does not change.
func (c *cycle) Clone() fwk.StateData { return c }

// cycleOf is what PreFilter knew of the pod that state is for; nil: nothing.
func (p *Plugin) cycleOf(state fwk.CycleState) *cycle {
	if last := p.last.Load(); last != nil && last.state == state {
		return last.cycle
	}
	data, err := state.Read(cycleKey)
	if err != nil {
		return nil
	}
	c, _ := data.(*cycle)
	return c
}

// PreFilter reads what the pod asks for, judges the nodes that have changed, and picks
// those to look at. A pod that asks for no share is none of the plugin's business.
func (p *Plugin) PreFilter(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	request, err := p.reader.Request(pod)
	if err != nil {
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, err.Error())
	}
	if request == nil {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	if p.view.syncs == 0 && p.learned != nil {
		p.view.experienced = p.learned.restore(klog.FromContext(ctx))
	}
	p.view.sync(nodes)
	models, some := p.view.modelsOf(pod)
	if first := len(pod.Status.Conditions) == 0; p.unlearned.take(pod.UID) || first {
		if some {
			p.view.learn(request, models)
		} else { // it would teach that pods like it take cards that they cannot have
			p.unlearned.put(pod.UID)
		}
	}
	choice, err := p.args.choose(p.book, pod, request.Containers[0].Share.Class)
	if err != nil {
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, err.Error())
	}
	shape := p.shapes.of(request, choice)
	shape.update(p.view)
	c := &cycle{request: request, shape: shape, sync: p.view.syncs, models: models, nowhere: !some}
	if c.kept = p.kept(pod, request.Containers[0].Share.Class); c.kept.Any() {
		c.began = p.view.now()
	}
	result := p.narrow(ctx, pod, c, nodes)
	state.Write(cycleKey, c)
	p.last.Store(&lastCycle{state: state, cycle: c})
	return result, nil
}

// PreFilterExtensions is nil: Filter sees from the node itself which pods another plugin
// tries to add or to do without.
func (p *Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// Filter tells whether the node's cards have room for the pod.
func (p *Plugin) Filter(_ context.Context, state fwk.CycleState, _ *corev1.Pod, info fwk.NodeInfo) *fwk.Status {
	c := p.cycleOf(state)
	if c == nil {
		return fwk.AsStatus(errNoCycle)
	}
	if c.kept.Any() && p.keeps(c, p.view.byName[info.Node().Name]) {
		return keptStatus()
	}
	if e := p.entry(c, info); e != nil {
		return e.status
	}
	verdict := c.shape.judge(p.view.fresh(info))
	return verdict.status()
}

var errNoCycle = errors.New("plugin " + Name + " is enabled for filter without preFilter; enable it at multiPoint")

// entry is the shape's verdict on the node at the very moment that info shows, if there is one.
func (p *Plugin) entry(c *cycle, info fwk.NodeInfo) *entry {
	id, ok := p.view.moments.get(info.GetGeneration())
	if !ok || c.sync != p.view.syncs || id >= len(c.shape.byID) {
		return nil
	}
	if e := &c.shape.byID[id]; e.judged {
		return e
	}
	return nil
}

// Reserve decides for the pod's cards, on the state of its node at this moment.
func (p *Plugin) Reserve(_ context.Context, state fwk.CycleState, pod *corev1.Pod, node string) *fwk.Status {
	c := p.cycleOf(state)
	if c == nil {
		return nil
	}
	info, err := p.handle.SnapshotSharedLister().NodeInfos().Get(node)
	if err != nil {
		return fwk.AsStatus(fmt.Errorf("look at node %s again: %w", node, err))
	}
	now := p.view.fresh(info)
	if now.problem != "" {
		return fwk.NewStatus(fwk.Unschedulable, "node(s) where "+now.problem)
	}
	now.leaveCPU(c.request)
	var placer placement.Placer
	if !placer.Place(&now.Node, c.request, c.shape.choice.card.Card) {
		return fwk.NewStatus(fwk.Unschedulable, "node(s) where "+now.Explain(c.request))
	}
	p.ledger.put(pod.UID, &holding{request: c.request, placement: &podshare.Placement{
		Node: node, Policy: now.Policy, Containers: placer.Assignment(),
	}})
	return nil
}

// Unreserve takes Reserve back.
func (p *Plugin) Unreserve(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, _ string) {
	p.ledger.drop(pod.UID)
}
