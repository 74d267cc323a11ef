package agent

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/qgpu-project/qgpu/internal/agentapi"
	"github.com/qgpu-project/qgpu/internal/tenant"
)

// useAge is how long what tenants use is told again without asking their mediators:
// whoever reaches the agent's port must not keep these at work.
const useAge = time.Second

// uses is what tenants used when they were last asked.
type uses struct {
	mu   sync.Mutex
	at   time.Time
	last agentapi.Use
}

// Use implements agentapi.User.
func (a *Agent) Use(ctx context.Context) (agentapi.Use, error) {
	a.uses.mu.Lock()
	defer a.uses.mu.Unlock()
	if time.Since(a.uses.at) < useAge {
		return a.uses.last, nil
	}
	tenants, err := a.registry.ObserveAll(ctx)
	if err == nil {
		err = ctx.Err() // who gave up must not leave half an answer to others
	}
	if err != nil {
		return agentapi.Use{}, fmt.Errorf("ask the node's tenants: %w", err)
	}
	a.uses.at, a.uses.last = time.Now(), useOf(tenants)
	return a.uses.last, nil
}

// useOf puts together what tenants use, in their order.
func useOf(tenants []tenant.Observation) agentapi.Use {
	use := agentapi.Use{Cards: []agentapi.CardUse{}, Containers: []agentapi.ContainerUse{}}
	for _, t := range tenants {
		for _, slice := range t.Placement {
			known := func(c agentapi.CardUse) bool { return c.UUID == slice.UUID }
			if !slices.ContainsFunc(use.Cards, known) {
				use.Cards = append(use.Cards, cardUse(slice.UUID, tenants))
			}
		}
		if t.Owner != nil {
			use.Containers = append(use.Containers, containerUse(t, tenants))
		}
	}
	return use
}

func cardUse(uuid string, tenants []tenant.Observation) agentapi.CardUse {
	card := agentapi.CardUse{UUID: uuid, Busy: tenant.Busy(uuid, tenants)}
	for _, t := range tenants {
		if s := t.StateOn(uuid); s != nil {
			card.Used += s.Used
		}
	}
	return card
}

func containerUse(t tenant.Observation, tenants []tenant.Observation) agentapi.ContainerUse {
	use := agentapi.ContainerUse{
		Container: agentapi.Container{PodUID: t.Owner.PodUID, PodNamespace: t.Owner.Namespace, PodName: t.Owner.Pod, Name: t.Owner.Container},
		Slices:    []agentapi.SliceUse{}, Error: t.Error,
	}
	for _, slice := range t.Placement {
		if s := t.StateOn(slice.UUID); s != nil {
			use.Slices = append(use.Slices, agentapi.SliceUse{UUID: s.UUID, Used: s.Used, Quota: s.Quota, Busy: t.ComputeOn(s.UUID, tenants)})
		}
	}
	return use
}
