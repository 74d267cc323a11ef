package scheduler

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/qgpu-project/qgpu/internal/inventory"
	"github.com/qgpu-project/qgpu/internal/podshare"
)

// Factory makes the plugin, once for each profile of a scheduler.
type Factory = func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error)

// NewFactory is the factory for one scheduler. Its plugins share what was decided and not
// yet written, since they share the cards.
func NewFactory() Factory {
	shared := newLedger()
	return func(ctx context.Context, obj runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		args, err := readArgs(obj)
		if err != nil {
			return nil, err
		}
		client, err := dynamic.NewForConfig(handle.KubeConfig())
		if err != nil {
			return nil, fmt.Errorf("make a client for inventories: %w", err)
		}
		pods := handle.SharedInformerFactory().Core().V1().Pods()
		p := newPlugin(handle, args, shared, &inventories{})
		w := &waker{wake: make(chan struct{}, 1), pods: pods.Lister(), activate: handle, reader: p.reader, profile: handle.ProfileName()}
		p.inventories.changed = w.signal

		// A pod that goes away before it came back from the API server leaves the ledger.
		_, err = pods.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(obj any) {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			if pod, ok := obj.(*corev1.Pod); ok {
				shared.drop(pod.UID)
				p.wide.take(pod.UID)
				p.unlearned.take(pod.UID)
			}
		}})
		if err != nil {
			return nil, fmt.Errorf("watch pods: %w", err)
		}
		informer := inventory.NewClient(client).Informer("")
		if _, err := informer.AddEventHandler(p.inventories.handler()); err != nil {
			return nil, fmt.Errorf("watch inventories: %w", err)
		}
		if args.Learned != "" {
			p.learned = newLearned(p.book, handle.ClientSet(), args.Learned, handle.ProfileName())
			if err := p.learned.follow(ctx); err != nil {
				return nil, err
			}
			go p.learned.keep(ctx)
		}
		go informer.RunWithContext(ctx)
		go w.run(ctx)
		return p, nil
	}
}

// waker tries pods again that wait for cards when inventories have changed.
type waker struct {
	wake     chan struct{}
	pods     corelisters.PodLister
	activate fwk.PodActivator
	reader   podshare.Reader
	profile  string
}

// pause is the least time between two wake-ups, so that a thousand agents that start at
// one time do not cause a thousand tries.
const pause = 200 * time.Millisecond

// signal says that cards have changed. It does not wait.
func (w *waker) signal() {
	select {
	case w.wake <- struct{}{}:
	default: // a wake-up is due already, and will see this change
	}
}

func (w *waker) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
		}
		w.once(klog.FromContext(ctx))
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

func (w *waker) once(logger klog.Logger) {
	pods, err := w.pods.List(labels.Everything())
	if err != nil {
		logger.Error(err, "List the pods that wait for cards")
		return
	}
	waiting := make(map[string]*corev1.Pod)
	for _, pod := range pods {
		if pod.Spec.NodeName == "" && pod.Spec.SchedulerName == w.profile && w.reader.Asks(pod) {
			waiting[pod.Namespace+"/"+pod.Name] = pod
		}
	}
	if len(waiting) > 0 {
		w.activate.Activate(logger, waiting)
	}
}
