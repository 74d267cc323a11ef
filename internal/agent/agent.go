// Package agent is a node's part of qGPU in Kubernetes. It publishes the node's cards and
// their health, advertises what they add up to, and says for each container that is about
// to start whether it may have the slices that its pod was placed on. It knows the API
// server, the kubelet and the tenants' registry; what a driver's calls mean, and how a
// container is held to its slices, it does not know.
//
// It keeps nothing of its own: the cards are the driver's, the placements the API
// server's, and what runs is found in the tenants' folders. So it may end and begin at any
// moment, and no tenant notices.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/qgpu-project/qgpu/internal/agentapi"
	"github.com/qgpu-project/qgpu/internal/discovery"
	"github.com/qgpu-project/qgpu/internal/inventory"
	"github.com/qgpu-project/qgpu/internal/tenant"
)

// Name is the agent's field manager and the source of its events.
const Name = "qgpu-agent"

// Driver finds a node's cards.
type Driver interface {
	// Watch reports the cards, and again whenever they change, until ctx ends or the
	// driver cannot be asked any more, which is the error. driver is "kernel" or "simulated".
	Watch(ctx context.Context, report func(driver string, inv discovery.Inventory)) error
}

// Kubelet says which pods the node's kubelet has.
type Kubelet interface {
	// Pods counts them by namespace/name.
	Pods(ctx context.Context) (map[string]int, error)
}

// Config is what an agent works with.
type Config struct {
	Node        string
	Client      kubernetes.Interface
	Inventories *inventory.Client
	Driver      Driver
	Kubelet     Kubelet // nil: it is not asked
	StateDir    string
	NanoNames   bool   // advertise Nano GPU's resource names, too
	Listen      string // where it tells what tenants use, such as :5678; empty: nowhere
	Version     string // the agent's own
	Log         *slog.Logger
}

// Agent is one node's agent.
type Agent struct {
	Config
	registry *tenant.Registry
	cards    cards
	promises promises
	uses     uses
	recorder record.EventRecorder

	pods        cache.SharedIndexInformer
	node        cache.SharedIndexInformer
	inventories cache.SharedIndexInformer

	publish, advertise, audit trigger
	drift                     drift
}

// New makes an agent. Run starts it.
func New(c Config) (*Agent, error) {
	registry, err := tenant.OpenRegistry(c.StateDir)
	if err != nil {
		return nil, err
	}
	a := &Agent{
		Config: c, registry: registry,
		cards:   cards{seeded: make(chan struct{})},
		publish: newTrigger(), advertise: newTrigger(), audit: newTrigger(),
	}
	own := func(field, value string) informers.SharedInformerOption {
		return informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector(field, value).String()
		})
	}
	a.pods = informers.NewSharedInformerFactoryWithOptions(c.Client, 0, own("spec.nodeName", c.Node)).Core().V1().Pods().Informer()
	a.node = informers.NewSharedInformerFactoryWithOptions(c.Client, 0, own(metav1.ObjectNameField, c.Node)).Core().V1().Nodes().Informer()
	a.inventories = c.Inventories.Informer(c.Node)
	for _, on := range []struct {
		informer cache.SharedIndexInformer
		triggers []trigger
	}{
		{a.pods, []trigger{a.audit}},
		{a.node, []trigger{a.advertise, a.publish}},
		{a.inventories, []trigger{a.publish}},
	} {
		if _, err := on.informer.AddEventHandler(pulling(on.triggers)); err != nil {
			return nil, fmt.Errorf("watch the API server: %w", err)
		}
	}
	return a, nil
}

// pulling pulls triggers on every event.
func pulling(triggers []trigger) cache.ResourceEventHandler {
	pull := func() {
		for _, t := range triggers {
			t.pull()
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { pull() },
		UpdateFunc: func(_, _ any) { pull() },
		DeleteFunc: func(any) { pull() },
	}
}

// Run works until ctx ends. What it advertised stays, unless the node is no longer
// enabled for qGPU.
func (a *Agent) Run(ctx context.Context) error {
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&typedv1.EventSinkImpl{Interface: a.Client.CoreV1().Events("")})
	a.recorder = broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: Name, Host: a.Node})

	listener, err := a.listen(ctx)
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	defer all.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if a.Listen != "" {
		port, err := net.Listen("tcp", a.Listen)
		if err != nil {
			return errors.Join(fmt.Errorf("listen for who asks what tenants use: %w", err), listener.Close())
		}
		all.Go(func() {
			if err := agentapi.Serve(ctx, port, agentapi.UseHandler(a, a.Log)); err != nil {
				a.Log.Error("nobody can ask any more what tenants use", "err", err)
			}
		})
	}
	for _, informer := range []cache.SharedIndexInformer{a.pods, a.node, a.inventories} {
		all.Go(func() { informer.RunWithContext(ctx) })
	}
	all.Go(func() { a.watchCards(ctx) })
	all.Go(func() { a.keep(ctx, "publish the node's cards", a.publish, a.publishCards) })
	all.Go(func() { a.keep(ctx, "advertise the node's resources", a.advertise, a.advertiseResources) })
	all.Go(func() { a.keep(ctx, "compare tenants with placements", a.audit, a.auditTenants) })
	err = agentapi.Serve(ctx, listener, agentapi.Handler(a, a.Log))
	a.leave(context.WithoutCancel(ctx))
	return err
}

// listen makes the agent's socket. While an agent that is about to end has it, it waits.
func (a *Agent) listen(ctx context.Context) (net.Listener, error) {
	path := filepath.Join(a.StateDir, agentapi.DefaultSocket)
	for {
		l, err := agentapi.Listen(path)
		if err == nil {
			return l, nil
		}
		a.Log.Warn("the agent cannot answer the runtime yet", "err", err)
		select {
		case <-ctx.Done():
			return nil, errors.Join(err, ctx.Err())
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// Ready implements agentapi.Granter.
func (a *Agent) Ready() error {
	switch {
	case !a.node.HasSynced() || !a.pods.HasSynced():
		return errors.New("the agent has not heard from the API server yet")
	case !a.cards.ready():
		return fmt.Errorf("the agent does not know the node's cards yet: %w", a.cards.trouble())
	}
	return nil
}

// ownNode is the agent's Node as last seen, or nil. It must not be changed.
func (a *Agent) ownNode() *corev1.Node {
	object, exists, err := a.node.GetStore().GetByKey(a.Node)
	if err != nil || !exists {
		return nil
	}
	return object.(*corev1.Node)
}
