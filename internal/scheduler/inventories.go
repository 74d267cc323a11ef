package scheduler

import (
	"slices"
	"sync"

	"k8s.io/client-go/tools/cache"

	"github.com/qgpu-project/qgpu/internal/inventory"
)

// inventories is what cards there are, by node, as their agents say.
type inventories struct {
	mu     sync.RWMutex
	byNode map[string]*inventory.CardInventory
	epoch  uint64 // counts changes
	// changed, if not nil, is called after each change.
	changed func()
}

// get is the cards of a node, or nil, and at which change.
func (s *inventories) get(node string) *inventory.CardInventory {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.byNode[node]
}

func (s *inventories) now() uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.epoch
}

// set makes inv the cards of node; nil: its agent says nothing any more.
func (s *inventories) set(node string, inv *inventory.CardInventory) {
	s.mu.Lock()
	old := s.byNode[node]
	same := old == inv || old != nil && inv != nil && slices.Equal(old.Cards, inv.Cards)
	switch {
	case same:
	case inv == nil:
		delete(s.byNode, node)
	case s.byNode == nil:
		s.byNode = map[string]*inventory.CardInventory{node: inv}
	default:
		s.byNode[node] = inv
	}
	if !same {
		s.epoch++
	}
	s.mu.Unlock()
	if !same && s.changed != nil {
		s.changed()
	}
}

// handler keeps s as an informer of inventories tells.
func (s *inventories) handler() cache.ResourceEventHandler {
	put := func(obj any) {
		if inv, ok := obj.(*inventory.CardInventory); ok {
			s.set(inv.Name, inv)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    put,
		UpdateFunc: func(_, obj any) { put(obj) },
		DeleteFunc: func(obj any) {
			if name, err := cache.DeletionHandlingObjectToName(obj); err == nil {
				s.set(name.Name, nil)
			}
		},
	}
}
