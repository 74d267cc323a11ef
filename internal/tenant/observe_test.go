package tenant

import (
	"testing"

	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/share"
)

// on is a tenant on card GPU-a.
func on(id string, groups int, c *Compute) Observation {
	return Observation{
		Tenant: Tenant{ID: id, Policy: share.BurstShare, Share: share.Share{Core: 25, Memory: 4 * share.GiB},
			Placement: []placement.Slice{{UUID: "GPU-a", Core: 25, Memory: 4 * share.GiB}}},
		State: &State{Cards: []CardState{{UUID: "GPU-a", Quota: 4 * share.GiB, Used: share.GiB, Groups: groups, Compute: c}}},
	}
}

func p(v float64) *float64 { return &v }

func deref(v *float64) any {
	if v == nil {
		return "not known"
	}
	return *v
}

func TestComputeIsToldOnlyWhereItIsKnown(t *testing.T) {
	mine, others, idle := &Compute{Busy: 60, Own: true}, &Compute{Busy: 60}, &Compute{Own: true}
	silent := on("silent", 1, mine)
	silent.State = nil
	whole := on("whole", 0, mine)
	whole.Share = share.Share{Core: share.Whole}
	for _, tc := range []struct {
		name string
		own  Observation
		with []Observation
		want *float64
	}{
		{"alone", on("t", 2, mine), nil, p(60)},
		{"alone, on a whole card", whole, nil, p(60)},
		{"beside one that has no work on the card", on("t", 2, mine), []Observation{on("u", 0, others)}, p(60)},
		{"beside one that may work", on("t", 2, mine), []Observation{on("u", 1, others)}, nil},
		{"beside one that does not answer", on("t", 2, mine), []Observation{silent}, nil},
		{"beside a stranger's process", on("t", 2, others), nil, nil},
		{"without work on a busy card", on("t", 0, others), []Observation{on("u", 1, mine)}, p(0)},
		{"on an idle card", on("t", 1, idle), []Observation{on("u", 1, idle)}, p(0)},
		{"the driver does not tell", on("t", 1, nil), nil, nil},
		{"its mediator does not answer", silent, nil, nil},
	} {
		got := tc.own.ComputeOn("GPU-a", append(tc.with, tc.own))
		if (got == nil) != (tc.want == nil) || got != nil && *got != *tc.want {
			t.Errorf("%s: %v, want %v", tc.name, deref(got), deref(tc.want))
		}
	}
}

func TestBusy(t *testing.T) {
	silent := on("silent", 0, nil)
	silent.State = nil
	if got := Busy("GPU-a", []Observation{silent, on("t", 1, &Compute{Busy: 12.5})}); got == nil || *got != 12.5 {
		t.Errorf("busy %v, want 12.5", deref(got))
	}
	if got := Busy("GPU-b", []Observation{on("t", 1, &Compute{Busy: 12.5})}); got != nil {
		t.Errorf("of another card: %v", *got)
	}
}
