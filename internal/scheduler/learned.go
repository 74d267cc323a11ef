package scheduler

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/qgpu-project/qgpu/internal/placement/strategy"
)

// saveEvery is how long what was learned may be unsaved: a crash loses as much.
const saveEvery = 30 * time.Second

// learned keeps what the book knows of the pods to expect in a ConfigMap, so that the
// next leader need not begin anew. Only a scheduler that places pods writes; the others
// follow, to have the latest when they become the leader.
type learned struct {
	book            *strategy.Book
	client          kubernetes.Interface
	namespace, name string
	key             string // of the ConfigMap's data: the profile's

	mu     sync.Mutex
	stored string // what the ConfigMap has
	active bool   // the book is the one that counts
}

// newLearned keeps book in the ConfigMap at path, which is "namespace/name".
func newLearned(book *strategy.Book, client kubernetes.Interface, path, profile string) *learned {
	namespace, name, _ := strings.Cut(path, "/")
	return &learned{book: book, client: client, namespace: namespace, name: name, key: profile + ".json"}
}

// restore makes the book know what was stored, when the first pod is placed. It reports
// whether there was anything.
func (l *learned) restore(logger klog.Logger) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.active = true
	if l.stored == "" {
		return false
	}
	if err := json.Unmarshal([]byte(l.stored), l.book); err != nil {
		logger.Error(err, "What was learned of the pods to expect is lost", "configMap", klog.KRef(l.namespace, l.name), "key", l.key)
		return false
	}
	return true
}

// follow reads the ConfigMap and keeps up with it until ctx ends.
func (l *learned) follow(ctx context.Context) error {
	factory := informers.NewSharedInformerFactoryWithOptions(l.client, 0, informers.WithNamespace(l.namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, l.name).String()
		}))
	read := func(obj any) {
		if c, ok := obj.(*corev1.ConfigMap); ok {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.stored = c.Data[l.key]
		}
	}
	informer := factory.Core().V1().ConfigMaps().Informer()
	handle, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: read, UpdateFunc: func(_, obj any) { read(obj) }})
	if err != nil {
		return fmt.Errorf("watch what was learned: %w", err)
	}
	go informer.RunWithContext(ctx)
	// Without it one would place pods too, but not as well.
	wait, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if !cache.WaitForCacheSync(wait.Done(), handle.HasSynced) {
		klog.FromContext(ctx).Info("What was learned of the pods to expect cannot be read yet", "configMap", klog.KRef(l.namespace, l.name))
	}
	return nil
}

// keep saves what has changed now and then, until ctx ends: a scheduler that is told to
// stop does so at once.
func (l *learned) keep(ctx context.Context) {
	tick := time.NewTicker(saveEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if err := l.save(ctx); err != nil {
				klog.FromContext(ctx).Error(err, "Save what was learned of the pods to expect")
			}
		}
	}
}

// save writes what the book knows, if it is the one that counts and knows something new.
func (l *learned) save(ctx context.Context) error {
	l.mu.Lock()
	active, stored := l.active, l.stored
	l.mu.Unlock()
	if !active {
		return nil
	}
	data, err := json.Marshal(l.book)
	if err != nil {
		return fmt.Errorf("write what was learned: %w", err)
	}
	if string(data) == stored {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"data": map[string]string{l.key: string(data)}})
	if err != nil {
		return fmt.Errorf("write what was learned: %w", err)
	}
	if _, err := l.client.CoreV1().ConfigMaps(l.namespace).Patch(ctx, l.name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("save what was learned in ConfigMap %s/%s, which the chart makes: %w", l.namespace, l.name, err)
	}
	return nil
}
