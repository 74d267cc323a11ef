package timeshare_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/qgpu-project/qgpu/internal/share"
	"github.com/qgpu-project/qgpu/internal/timeshare"
)

var (
	policies = []share.Policy{share.BestEffort, share.BurstShare, share.FixedShare}
	classes  = []share.Class{share.Ordinary, share.Online, share.Offline}
)

// drawTenants draws up to 64 tenants; the cores of ordinary ones add up to 100 at most.
func drawTenants(t *rapid.T) []timeshare.Tenant {
	n := rapid.IntRange(1, 64).Draw(t, "tenants")
	left := share.Whole
	var out []timeshare.Tenant
	for i := range n {
		tenant := timeshare.Tenant{
			ID:     fmt.Sprint("t", i),
			Class:  rapid.SampledFrom(classes).Draw(t, "class"),
			Core:   5 * rapid.IntRange(0, left/5).Draw(t, "core"),
			Groups: rapid.IntRange(0, 200).Draw(t, "groups"),
		}
		switch tenant.Class {
		case share.Online:
			tenant.Core = 0
		case share.Ordinary:
			left -= tenant.Core
		}
		out = append(out, tenant)
	}
	return out
}

func drawPlan(t *rapid.T) (share.Policy, []timeshare.Tenant, timeshare.Plan) {
	p := rapid.SampledFrom(policies).Draw(t, "policy")
	tenants := drawTenants(t)
	return p, tenants, mustPlan(t, p, tenants)
}

func mustPlan(t *rapid.T, p share.Policy, tenants []timeshare.Tenant) timeshare.Plan {
	plan, err := timeshare.New(p, timeshare.DefaultLimits(), tenants)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// groupsOf is the number of groups that share a tenant's turn.
func groupsOf(t timeshare.Tenant) float64 { return float64(max(1, t.Groups)) }

// turns are the parts of the card that the members of a rank get by their slices alone,
// with windows for those that are held.
func turns(plan timeshare.Plan, tenants []timeshare.Tenant, r timeshare.Rank) map[string]float64 {
	sum := 0.0
	got := make(map[string]float64)
	for i, s := range plan.Settings {
		if s.Rank == r {
			us := float64(s.Slice) * groupsOf(tenants[i])
			got[s.ID] = us
			sum += us
		}
	}
	for _, s := range plan.Settings {
		if s.Rank == r {
			got[s.ID] = min(got[s.ID]/sum, s.Cap)
		}
	}
	return got
}

// yields tells whether somebody comes before the tenant of s.
func yields(plan timeshare.Plan, s timeshare.Setting) bool {
	return slices.ContainsFunc(plan.Settings, func(other timeshare.Setting) bool { return other.Rank < s.Rank })
}

func TestSlicesAreWithinBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		_, tenants, plan := drawPlan(t)
		l := timeshare.DefaultLimits()
		for i, s := range plan.Settings {
			if s.Slice < l.MinSlice || s.Slice > l.MaxSlice {
				t.Errorf("a slice is %d µs", s.Slice)
			}
			if s.Cap <= 0 || s.Cap > 1 || s.Share <= 0 || s.Share > 1 {
				t.Errorf("share %v, cap %v", s.Share, s.Cap)
			}
			if s.Rank == timeshare.Last && yields(plan, s) && s.Slice > l.Wait[timeshare.Last] {
				t.Errorf("an offline slice of %d µs holds up online work", s.Slice)
			}
			if got := plan.Slice(tenants[i]); got != s.Slice {
				t.Errorf("a late group gets %d µs, the others have %d", got, s.Slice)
			}
		}
	})
}

// TestSharesAddUp also has the guarantees: each rank divides all of the card, or what was
// asked for, and every ordinary tenant has its core at least.
func TestSharesAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, tenants, plan := drawPlan(t)
		var sum [3]float64
		var asked float64
		for i, s := range plan.Settings {
			sum[s.Rank] += s.Share
			if s.Rank != timeshare.Middle || p == share.BestEffort {
				continue
			}
			core := float64(tenants[i].Core) / 100
			asked += core
			if s.Share < core-1e-9 {
				t.Errorf("tenant %s is guaranteed %v and planned to have %v", s.ID, core, s.Share)
			}
			if p == share.FixedShare && (math.Abs(s.Share-core) > 1e-9 || s.Cap > core) {
				t.Errorf("tenant %s has share %v and cap %v, want %v", s.ID, s.Share, s.Cap, core)
			}
		}
		for r, got := range sum {
			want := 1.0
			if r == int(timeshare.Middle) && p == share.FixedShare {
				want = asked
			}
			if got != 0 && math.Abs(got-want) > 1e-9 {
				t.Errorf("shares of rank %d add up to %v, want %v", r, got, want)
			}
		}
	})
}

// TestSlicesGiveTheShares compares shares with groups × slice, in which rounding costs
// less than 1 µs a slice. A tenant whose groups have more than its turn is held by its cap.
func TestSlicesGiveTheShares(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		_, tenants, plan := drawPlan(t)
		var low [3]float64 // of the turn per share, in µs
		high := [3]float64{math.Inf(1), math.Inf(1), math.Inf(1)}
		for i, s := range plan.Settings {
			n := groupsOf(tenants[i])
			if float64(s.Turn) < float64(s.Slice)*n*us-2 {
				if s.Cap > s.Share {
					t.Errorf("tenant %s of %v groups has cap %v and share %v", s.ID, n, s.Cap, s.Share)
				}
				continue
			}
			low[s.Rank] = max(low[s.Rank], float64(s.Slice)*n/s.Share)
			high[s.Rank] = min(high[s.Rank], float64(s.Slice+1)*n/s.Share)
		}
		for r := range low {
			if low[r] > high[r]*(1+1e-9) {
				t.Errorf("tenants of rank %d have more than %v µs per share and less than %v", r, low[r], high[r])
			}
		}
	})
}

// TestMoreGroupsGiveNoMore lets one tenant multiply its groups.
func TestMoreGroupsGiveNoMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, tenants, before := drawPlan(t)
		i := rapid.IntRange(0, len(tenants)-1).Draw(t, "who")
		tenants[i].Groups += rapid.IntRange(1, 100_000).Draw(t, "more")
		after := mustPlan(t, p, tenants)
		s := after.Settings[i]
		if s.Share != before.Settings[i].Share || s.Cap > before.Settings[i].Cap {
			t.Errorf("share %v and cap %v became %v and %v", before.Settings[i].Share, before.Settings[i].Cap, s.Share, s.Cap)
		}
		// Under fixed-share what counts is the cap alone. Slices are 50 µs and more, of which
		// rounding takes less than 1 µs, in the others' favour or not.
		if got := turns(after, tenants, s.Rank)[s.ID]; p != share.FixedShare && got > s.Share*1.02+1e-9 {
			t.Errorf("%d groups get %v, want %v", tenants[i].Groups, got, s.Share)
		}
	})
}

func TestOrderAndNamesMakeNoDifference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, tenants, plan := drawPlan(t)
		order := rapid.Permutation(slices.Collect(func(yield func(int) bool) {
			for i := range tenants {
				if !yield(i) {
					return
				}
			}
		})).Draw(t, "order")
		var other []timeshare.Tenant
		for k, i := range order {
			tenant := tenants[i]
			tenant.ID = fmt.Sprint("other", k)
			other = append(other, tenant)
		}
		for k, s := range mustPlan(t, p, other).Settings {
			want := plan.Settings[order[k]]
			want.ID = s.ID
			if s != want {
				t.Errorf("got %+v in another order, %+v before", s, want)
			}
		}
	})
}

// TestIdleTimeFallsToTheOthers: whoever is idle, slices keep the others' proportions, and
// only a cap keeps anyone from what is left.
func TestIdleTimeFallsToTheOthers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, tenants, plan := drawPlan(t)
		for i, s := range plan.Settings {
			capped := s.Rank == timeshare.Last && tenants[i].Core > 0 && tenants[i].Core < 100 ||
				s.Rank == timeshare.Middle && p == share.FixedShare && tenants[i].Core < 100
			// Up to four groups have slices that can hold them, in any company.
			if s.Cap < 1 && !capped && groupsOf(tenants[i]) <= 4 {
				t.Errorf("tenant %s of rank %d with %d groups is capped to %v", s.ID, s.Rank, tenants[i].Groups, s.Cap)
			}
		}
	})
}

func TestWholeCardIsLeftAlone(t *testing.T) {
	for _, p := range policies {
		tenant := timeshare.Tenant{ID: "a", Core: 100, Whole: true, Groups: 12}
		plan, err := timeshare.New(p, timeshare.DefaultLimits(), []timeshare.Tenant{tenant})
		if err != nil {
			t.Fatal(err)
		}
		if s := plan.Settings[0]; s.Slice != timeshare.DefaultSlice || s.Cap < 1 {
			t.Errorf("under %s the tenant of a whole card has %+v", p, s)
		}
	}
}

func TestMistakesAreNamed(t *testing.T) {
	a := timeshare.Tenant{ID: "a", Core: 10}
	for name, tenants := range map[string][]timeshare.Tenant{
		"core":    {{ID: "a", Core: 101}},
		"class":   {{ID: "a", Class: "best"}},
		"groups":  {{ID: "a", Groups: -1}},
		"twice":   {a, a},
		"a whole": {a, {ID: "b", Whole: true}},
	} {
		if _, err := timeshare.New(share.BestEffort, timeshare.DefaultLimits(), tenants); err == nil {
			t.Errorf("no error for: %s", name)
		}
	}
	if _, err := timeshare.New("fair", timeshare.DefaultLimits(), nil); err == nil {
		t.Error("no error for an unknown policy")
	}
	if _, err := timeshare.New(share.BestEffort, timeshare.Limits{}, nil); err == nil {
		t.Error("no error for empty limits")
	}
}
