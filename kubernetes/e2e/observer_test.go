package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/podshare"
	"github.com/qgpu-project/qgpu/internal/share"
	"github.com/qgpu-project/qgpu/internal/tenant"
)

// observer watches throughout all tests that no card is ever given away twice: by the
// placements that the API server has, at each of its revisions, and by the tenants that
// the nodes have, whose use is read as well.
type observer struct {
	cards  map[string][]placement.Card // by node, nothing taken
	cancel context.CancelFunc
	parts  sync.WaitGroup

	mu         sync.Mutex
	violations []string
	revisions  int // of pods, looked at
	samples    int // of nodes' tenants
	states     int // of tenants whose use was read
}

func observe(ctx context.Context, s *site) (*observer, error) {
	ctx, cancel := context.WithCancel(ctx)
	o := &observer{cards: map[string][]placement.Card{}, cancel: cancel}
	for _, node := range s.Nodes {
		inv, err := s.inventories.Get(ctx, node.Name)
		if err != nil {
			cancel()
			return nil, err
		}
		for _, card := range inv.Cards {
			o.cards[node.Name] = append(o.cards[node.Name], placement.Card{Index: card.Index, UUID: card.UUID, Memory: share.Memory(card.MemoryMiB) << 20})
		}
		o.parts.Go(func() { o.watchTenants(ctx, node.Name, s.Path(node.Name, "state")) })
	}
	o.parts.Go(func() {
		for ctx.Err() == nil { // the API server may be restarted
			o.watchPods(ctx, s)
			time.Sleep(50 * time.Millisecond)
		}
	})
	return o, nil
}

// stop ends the observation and returns what was wrong.
func (o *observer) stop() []string {
	o.cancel()
	o.parts.Wait()
	if o.revisions == 0 || o.samples == 0 || o.states == 0 {
		o.report("it looked at %d revisions of pods, %d samples of nodes and %d tenants", o.revisions, o.samples, o.states)
	}
	fmt.Printf("observer: %d revisions of pods, %d samples of nodes, %d of tenants' use: %d violations\n", o.revisions, o.samples, o.states, len(o.violations))
	return o.violations
}

func (o *observer) report(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.violations) < 20 {
		o.violations = append(o.violations, fmt.Sprintf(format, args...))
	}
}

func (o *observer) count(what *int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	*what++
}

func (o *observer) watchPods(ctx context.Context, s *site) {
	list, err := s.Client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	pods := map[types.UID]*corev1.Pod{}
	for i := range list.Items {
		pods[list.Items[i].UID] = &list.Items[i]
	}
	o.checkPods(pods)
	events, err := s.Client.CoreV1().Pods("").Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		return
	}
	defer events.Stop()
	for event := range events.ResultChan() {
		pod, ok := event.Object.(*corev1.Pod)
		if !ok {
			return
		}
		if event.Type == watch.Deleted {
			delete(pods, pod.UID)
		} else {
			pods[pod.UID] = pod
		}
		o.checkPods(pods)
	}
}

// checkPods adds up the placements at one revision.
func (o *observer) checkPods(pods map[types.UID]*corev1.Pod) {
	o.count(&o.revisions)
	nodes := map[string]*placement.Node{}
	for name, cards := range o.cards {
		nodes[name] = &placement.Node{Name: name, Cards: append([]placement.Card(nil), cards...)}
	}
	for _, pod := range pods {
		if pod.Spec.NodeName == "" || podshare.Terminal(pod) || nodes[pod.Spec.NodeName] == nil {
			continue
		}
		request, err := podshare.Reader{Nano: true}.Request(pod)
		if err != nil || request == nil {
			continue
		}
		if p, err := podshare.Of(pod); err == nil && p.Node == pod.Spec.NodeName {
			nodes[p.Node].Take(request, p.Containers)
		}
	}
	for name, node := range nodes {
		for _, card := range node.Cards {
			o.checkCard("placements on "+name, card)
		}
	}
}

func (o *observer) checkCard(where string, card placement.Card) {
	switch {
	case card.Taken > card.Memory:
		o.report("%s: %v of %v of card %d is given away", where, card.Taken, card.Memory, card.Index)
	case card.Core > share.Whole:
		o.report("%s: %d %% of card %d is given away", where, card.Core, card.Index)
	case card.Tenants > placement.MaxTenants:
		o.report("%s: card %d has %d tenants", where, card.Index, card.Tenants)
	case card.Whole && card.Tenants > 1:
		o.report("%s: card %d is given away as a whole and has %d tenants", where, card.Index, card.Tenants)
	}
}

// watchTenants samples the tenants of a node, whose state folder is dir.
func (o *observer) watchTenants(ctx context.Context, node, dir string) {
	for ; ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
		if err := o.sampleTenants(ctx, node, dir); err != nil {
			o.report("tenants on %s cannot be listed: %v", node, err)
		}
	}
}

func (o *observer) sampleTenants(ctx context.Context, node, dir string) error {
	// By way of the descriptor the names of tenants' sockets are short enough.
	folder, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the node boots
	}
	if err != nil {
		return err
	}
	defer folder.Close()
	registry := tenant.At(fmt.Sprintf("/proc/self/fd/%d", folder.Fd()))
	tenants, err := registry.List()
	if err != nil {
		return err
	}
	o.count(&o.samples)
	for _, card := range tenant.WithTenants(append([]placement.Card(nil), o.cards[node]...), tenants) {
		o.checkCard("tenants on "+node, card)
	}
	for _, t := range tenants {
		state, err := registry.State(ctx, t.ID)
		if err != nil {
			continue // it has just ended, or has not begun
		}
		o.count(&o.states)
		for _, card := range state.Cards {
			if card.Used > card.Quota || card.Counted > card.Quota {
				o.report("tenant %s on %s uses %v (the driver counts %v) of its %v", t.ID, node, card.Used, card.Counted, card.Quota)
			}
		}
	}
	return nil
}
