package inventory

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
)

// Client reads and writes inventories as typed objects.
type Client struct {
	dynamic dynamic.Interface
}

// NewClient makes a client over d.
func NewClient(d dynamic.Interface) *Client { return &Client{dynamic: d} }

func (c *Client) inventories() dynamic.ResourceInterface { return c.dynamic.Resource(Resource) }

// Get returns the inventory of a node. The error is the API server's: apierrors.IsNotFound
// tells whether there is none.
func (c *Client) Get(ctx context.Context, node string) (*CardInventory, error) {
	u, err := c.inventories().Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return FromUnstructured(u)
}

// List returns the inventories that options select.
func (c *Client) List(ctx context.Context, options metav1.ListOptions) (*CardInventoryList, error) {
	list, err := c.inventories().List(ctx, options)
	if err != nil {
		return nil, err
	}
	out := &CardInventoryList{ListMeta: metav1.ListMeta{
		ResourceVersion: list.GetResourceVersion(), Continue: list.GetContinue(), RemainingItemCount: list.GetRemainingItemCount(),
	}}
	for i := range list.Items {
		item, err := FromUnstructured(&list.Items[i])
		if err != nil {
			return nil, err
		}
		out.Items = append(out.Items, *item)
	}
	return out, nil
}

// Watch reports changes of the inventories that options select, as *CardInventory. An
// object that cannot be read is left out: its schema was checked when it was written.
func (c *Client) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	w, err := c.inventories().Watch(ctx, options)
	if err != nil {
		return nil, err
	}
	return watch.Filter(w, typed), nil
}

func typed(e watch.Event) (watch.Event, bool) {
	u, ok := e.Object.(*unstructured.Unstructured)
	if !ok {
		return e, true // an error's status
	}
	if e.Type == watch.Bookmark {
		e.Object = &CardInventory{ObjectMeta: metav1.ObjectMeta{
			ResourceVersion: u.GetResourceVersion(), Annotations: u.GetAnnotations(),
		}}
		return e, true
	}
	item, err := FromUnstructured(u)
	if err != nil {
		return e, false
	}
	e.Object = item
	return e, true
}

// Apply writes inv by server-side apply: manager owns what it says, whoever wrote before.
func (c *Client) Apply(ctx context.Context, inv *CardInventory, manager string) (*CardInventory, error) {
	u, err := inv.Unstructured()
	if err != nil {
		return nil, err
	}
	out, err := c.inventories().Apply(ctx, inv.Name, u, metav1.ApplyOptions{FieldManager: manager, Force: true})
	if err != nil {
		return nil, fmt.Errorf("write the inventory of node %s: %w", inv.Name, err)
	}
	return FromUnstructured(out)
}

// Informer keeps the inventories as *CardInventory: of one node, or of all if node is empty.
// The caller starts it.
func (c *Client) Informer(node string) cache.SharedIndexInformer {
	selected := func(o metav1.ListOptions) metav1.ListOptions {
		if node != "" {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, node).String()
		}
		return o
	}
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return c.List(ctx, selected(o))
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return c.Watch(ctx, selected(o))
		},
	}
	return cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(lw, c.dynamic), &CardInventory{}, 0, cache.Indexers{})
}

// Delete removes the inventory of a node.
func (c *Client) Delete(ctx context.Context, node string) error {
	return c.inventories().Delete(ctx, node, metav1.DeleteOptions{})
}
