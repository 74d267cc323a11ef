package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"testing"

	"github.com/qgpu-project/qgpu/internal/agentapi"
	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/share"
	"github.com/qgpu-project/qgpu/internal/tenant"
)

// observed is a tenant with memory in use on card GPU-a.
func observed(id string, owner *tenant.Owner, used share.Memory, groups int) tenant.Observation {
	return tenant.Observation{
		Tenant: tenant.Tenant{ID: id, Owner: owner, Share: share.Share{Core: 20, Memory: 4 * share.GiB},
			Placement: []placement.Slice{{UUID: "GPU-a", Core: 20, Memory: 4 * share.GiB}}},
		State: &tenant.State{Cards: []tenant.CardState{{
			UUID: "GPU-a", Quota: 4 * share.GiB, Used: used, Groups: groups, Compute: &tenant.Compute{Busy: 40, Own: true},
		}}},
	}
}

// TestUseOf counts all tenants on cards, and tells of pods' containers each for itself.
func TestUseOf(t *testing.T) {
	owner := func(c string) *tenant.Owner {
		return &tenant.Owner{PodUID: "u", Namespace: "default", Pod: "p", Container: c}
	}
	silent := observed("silent", owner("silent"), 0, 0)
	silent.State, silent.Error = nil, "its mediator does not answer"
	use := useOf([]tenant.Observation{
		observed("a", owner("busy"), share.GiB, 2), observed("b", owner("idle"), 2*share.GiB, 0), observed("docker", nil, 3*share.GiB, 0),
	})
	if len(use.Cards) != 1 || use.Cards[0].UUID != "GPU-a" || use.Cards[0].Used != 6*share.GiB || *use.Cards[0].Busy != 40 {
		t.Errorf("cards %+v, want 6 GiB of GPU-a in use and 40 %%", use.Cards)
	}
	if len(use.Containers) != 2 {
		t.Fatalf("containers %+v, want those of pods", use.Containers)
	}
	for i, want := range []struct {
		name string
		used share.Memory
		busy float64
	}{{"busy", share.GiB, 40}, {"idle", 2 * share.GiB, 0}} {
		c := use.Containers[i]
		if c.Name != want.name || c.PodUID != "u" || c.Slices[0].Used != want.used || c.Slices[0].Quota != 4*share.GiB || *c.Slices[0].Busy != want.busy {
			t.Errorf("container %+v, want %+v", c, want)
		}
	}
	use = useOf([]tenant.Observation{observed("a", owner("busy"), share.GiB, 2), silent})
	if c := use.Containers[0]; c.Slices[0].Busy != nil {
		t.Errorf("beside a tenant that does not answer %+v is told", c.Slices[0])
	}
	if c := use.Containers[1]; len(c.Slices) != 0 || c.Error != silent.Error {
		t.Errorf("a tenant that does not answer: %+v", c)
	}
}

// TestUse asks an agent over HTTP. What it tells again at once is not read anew.
func TestUse(t *testing.T) {
	s := quietSite(t)
	registry, err := tenant.OpenRegistry(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	a := &Agent{registry: registry}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.Use(gone); !errors.Is(err, context.Canceled) || !a.uses.at.IsZero() {
		t.Errorf("for who gave up: %v, kept since %v", err, a.uses.at)
	}
	server := httptest.NewServer(agentapi.UseHandler(a, nil))
	defer server.Close()
	ask := func() agentapi.Use {
		t.Helper()
		res, err := server.Client().Get(server.URL + agentapi.UsePath)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		var use agentapi.Use
		if err := json.NewDecoder(res.Body).Decode(&use); err != nil || res.StatusCode != 200 {
			t.Fatalf("status %d: %v", res.StatusCode, err)
		}
		return use
	}
	if use := ask(); use.Cards == nil || len(use.Cards) != 0 || len(use.Containers) != 0 {
		t.Errorf("without tenants: %+v", use)
	}
	end := s.begin("a", pod("a", 0, 30, 5), []placement.Slice{{UUID: uuid(0), Core: 30, Memory: 5 * share.GiB}})
	defer end()
	if use := ask(); len(use.Cards) != 0 {
		t.Errorf("at once it was read anew: %+v", use)
	}
	a.uses.at = a.uses.at.Add(-useAge)
	if use := ask(); len(use.Cards) != 1 || len(use.Containers) != 1 || use.Containers[0].Error == "" {
		t.Errorf("with a tenant without a mediator: %+v", use)
	}
	if res, err := server.Client().Post(server.URL+agentapi.GrantPath, "", nil); err != nil || res.StatusCode != 404 {
		t.Errorf("a container is asked for on the port: %v", fmt.Sprint(res, err))
	}
}
