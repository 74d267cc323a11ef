package qgpucmd

import (
	"testing"

	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/share"
	"github.com/qgpu-project/qgpu/internal/tenant"
)

// on is a tenant on card GPU-a.
func on(id string, groups int, c *tenant.Compute) tenant.Observation {
	return tenant.Observation{
		Tenant: tenant.Tenant{ID: id, Policy: share.BurstShare, Share: share.Share{Core: 25, Memory: 4 * share.GiB},
			Placement: []placement.Slice{{UUID: "GPU-a", Core: 25, Memory: 4 * share.GiB}}},
		State: &tenant.State{Cards: []tenant.CardState{{UUID: "GPU-a", Quota: 4 * share.GiB, Used: share.GiB, Groups: groups, Compute: c}}},
	}
}

func TestArrange(t *testing.T) {
	silent := on("silent", 0, nil)
	silent.State, silent.Error = nil, "no answer"
	cards := arrange([]cardView{{uuid: "GPU-a", total: 16 * share.GiB}, {uuid: "GPU-b"}},
		[]tenant.Observation{silent, on("t", 1, &tenant.Compute{Busy: 12.5, Own: true})})
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
