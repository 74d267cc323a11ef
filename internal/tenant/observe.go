package tenant

import (
	"context"
	"sync"

	"github.com/qgpu-project/qgpu/internal/placement"
)

// Observation is a tenant with what its mediator tells of it.
type Observation struct {
	Tenant
	State *State `json:"state,omitempty"`
	Error string `json:"error,omitempty"` // why State is missing
}

// Observe asks the mediator of t.
func (r *Registry) Observe(ctx context.Context, t Tenant) Observation {
	o := Observation{Tenant: t}
	state, err := r.State(ctx, t.ID)
	if err != nil {
		o.Error = err.Error()
		return o
	}
	o.State = &state
	return o
}

// ObserveAll asks the mediators of all living tenants, which it returns oldest first.
func (r *Registry) ObserveAll(ctx context.Context) ([]Observation, error) {
	living, err := r.List()
	if err != nil {
		return nil, err
	}
	all := make([]Observation, len(living))
	var asked sync.WaitGroup
	for i, t := range living {
		asked.Go(func() { all[i] = r.Observe(ctx, t) })
	}
	asked.Wait()
	return all, nil
}

// SliceOn is the tenant's part of the card uuid, or nil.
func (o Observation) SliceOn(uuid string) *placement.Slice {
	for i, s := range o.Placement {
		if s.UUID == uuid {
			return &o.Placement[i]
		}
	}
	return nil
}

// StateOn is what the mediator tells of the card uuid, or nil.
func (o Observation) StateOn(uuid string) *CardState {
	if o.State == nil {
		return nil
	}
	for i, c := range o.State.Cards {
		if c.UUID == uuid {
			return &o.State.Cards[i]
		}
	}
	return nil
}

// Busy is the use of the card uuid's compute by anybody, in percent, as any of its tenants
// is told. It is nil where none is.
func Busy(uuid string, tenants []Observation) *float64 {
	for _, o := range tenants {
		if s := o.StateOn(uuid); s != nil && s.Compute != nil {
			return &s.Compute.Busy
		}
	}
	return nil
}

// ComputeOn is the tenant's use of a card's compute in percent, or nil where it does not
// follow from the use of the whole card. here are the card's tenants.
func (o Observation) ComputeOn(uuid string, here []Observation) *float64 {
	own, none := o.StateOn(uuid), 0.0
	switch {
	case own == nil:
		return nil
	case own.Groups == 0 && !o.Share.WholeCards():
		return &none
	case own.Compute == nil:
		return nil
	case own.Compute.Busy == 0:
		return &none
	case !own.Compute.Own:
		return nil
	}
	for _, other := range here {
		if other.ID == o.ID || other.SliceOn(uuid) == nil {
			continue
		}
		if s := other.StateOn(uuid); s == nil || s.Groups > 0 {
			return nil // it may have had a part of that
		}
	}
	return &own.Compute.Busy
}
