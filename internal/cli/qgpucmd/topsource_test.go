package qgpucmd

import (
	"testing"

	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/share"
	"github.com/qgpu-project/qgpu/internal/tenant"
)

// on is a tenant on card GPU-a.
func on(id string, groups int, c *tenant.Compute) listed {
	return listed{
		Tenant: tenant.Tenant{ID: id, Policy: share.BurstShare, Share: share.Share{Core: 25, Memory: 4 * share.GiB},
			Placement: []placement.Slice{{UUID: "GPU-a", Core: 25, Memory: 4 * share.GiB}}},
		State: &tenant.State{Cards: []tenant.CardState{{UUID: "GPU-a", Quota: 4 * share.GiB, Used: share.GiB, Groups: groups, Compute: c}}},
	}
}

func TestComputeIsToldOnlyWhereItIsKnown(t *testing.T) {
	mine, others, idle := &tenant.Compute{Busy: 60, Own: true}, &tenant.Compute{Busy: 60}, &tenant.Compute{Own: true}
	silent := on("silent", 1, mine)
	silent.State = nil
	whole := on("whole", 0, mine)
	whole.Share = share.Share{Core: share.Whole}
	for _, tc := range []struct {
		name string
		own  listed
		with []listed
		want *float64
	}{
		{"alone", on("t", 2, mine), nil, p(60)},
		{"alone, on a whole card", whole, nil, p(60)},
		{"beside one that has no work on the card", on("t", 2, mine), []listed{on("u", 0, others)}, p(60)},
		{"beside one that may work", on("t", 2, mine), []listed{on("u", 1, others)}, nil},
		{"beside one that does not answer", on("t", 2, mine), []listed{silent}, nil},
		{"beside a stranger's process", on("t", 2, others), nil, nil},
		{"without work on a busy card", on("t", 0, others), []listed{on("u", 1, mine)}, p(0)},
		{"on an idle card", on("t", 1, idle), []listed{on("u", 1, idle)}, p(0)},
		{"the driver does not tell", on("t", 1, nil), nil, nil},
		{"its mediator does not answer", silent, nil, nil},
	} {
		got := computeOf(tc.own, "GPU-a", append(tc.with, tc.own))
		if (got == nil) != (tc.want == nil) || got != nil && *got != *tc.want {
			t.Errorf("%s: %s, want %s", tc.name, percent(got), percent(tc.want))
		}
	}
}

func TestArrange(t *testing.T) {
	silent := on("silent", 0, nil)
	silent.State, silent.Error = nil, "no answer"
	cards := arrange([]cardView{{uuid: "GPU-a", total: 16 * share.GiB}, {uuid: "GPU-b"}},
		[]listed{silent, on("t", 1, &tenant.Compute{Busy: 12.5, Own: true})})
	a, b := cards[0], cards[1]
	if len(a.tenants) != 2 || len(b.tenants) != 0 || b.policy != "" || b.busy != nil {
		t.Fatalf("%+v", cards)
	}
	if a.policy != share.BurstShare || a.busy == nil || *a.busy != 12.5 {
		t.Errorf("policy %q, busy %s", a.policy, percent(a.busy))
	}
	if used, allotted := a.used(); used != share.GiB || allotted != 8*share.GiB {
		t.Errorf("%v used, %v allotted", used, allotted)
	}
	if got := a.tenants[0]; got.failure != "no answer" || got.quota != 4*share.GiB || got.core != 25 {
		t.Errorf("one that does not answer: %+v", got)
	}
}
