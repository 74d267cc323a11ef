package timeshare

import (
	"fmt"
	"math"
	"time"

	"github.com/qgpu-project/qgpu/internal/share"
)

// A Plan divides one card among its tenants.
type Plan struct {
	Policy   share.Policy
	Settings []Setting // one for each tenant, in the order in which they were given

	limits  Limits
	units   [ranks]float64 // microseconds of turn per weight
	weights [ranks]int     // sums
}

// A Setting is a tenant's part of a plan.
type Setting struct {
	ID    string
	Rank  Rank
	Slice uint64 // of each of its groups, in microseconds
	// Turn is the time that its groups have together in a rotation.
	Turn time.Duration
	// Share is the tenant's part of the card, 0…1, while all tenants of its rank have
	// work and no earlier rank has: at least what it is guaranteed.
	Share float64
	// Cap is the most that the tenant may have, 0…1; 1 if there is no cap.
	Cap float64
}

// New plans a card. The order of the tenants and their names make no difference to what
// each gets.
func New(p share.Policy, l Limits, tenants []Tenant) (Plan, error) {
	if _, err := share.ParsePolicy(string(p)); err != nil {
		return Plan{}, err
	}
	if err := l.validate(); err != nil {
		return Plan{}, err
	}
	plan := Plan{Policy: p, limits: l}
	seen := make(map[string]bool, len(tenants))
	for _, t := range tenants {
		if err := t.validate(); err != nil {
			return Plan{}, err
		}
		if seen[t.ID] {
			return Plan{}, fmt.Errorf("tenant %s is on the card twice", t.ID)
		}
		if t.Whole && len(tenants) > 1 {
			return Plan{}, fmt.Errorf("tenant %s has the card as a whole and is one of %d", t.ID, len(tenants))
		}
		seen[t.ID] = true
		r := rankOf(t, p)
		plan.weights[r] += weight(p, t)
	}
	for r := range ranks {
		plan.units[r] = plan.unit(r, tenants)
	}
	for _, t := range tenants {
		plan.Settings = append(plan.Settings, plan.setting(t))
	}
	return plan, nil
}

// weight is t's part in its rank, in relation to others'.
func weight(p share.Policy, t Tenant) int {
	if rankOf(t, p) == Middle && p != share.BestEffort {
		return t.Core
	}
	return 1
}

// part is the part of the card that t has if all of its rank r have work. Under
// fixed-share what nobody asked for is nobody's.
func (p *Plan) part(r Rank, t Tenant) float64 {
	sum := p.weights[r]
	if r == Middle && p.Policy == share.FixedShare {
		sum = max(sum, share.Whole)
	}
	return float64(weight(p.Policy, t)) / float64(sum)
}

// few is the number of groups of a tenant that slices can hold to its turn, in any company.
const few = 4

// unit is the turn of a tenant of weight 1 in rank r, in microseconds.
func (p *Plan) unit(r Rank, tenants []Tenant) float64 {
	l := p.limits
	least, enough, most := 0.0, 0.0, math.Inf(1)
	for _, t := range tenants {
		if rankOf(t, p.Policy) != r {
			continue
		}
		w, n := float64(weight(p.Policy, t)), t.divisor()
		least = max(least, float64(l.MinSlice)*min(n, few)/w)
		enough = max(enough, float64(l.Shortest)*n/w)
		most = min(most, float64(l.MaxSlice)*n/w)
		if rest := 1 - p.part(r, t); rest > 0 {
			most = min(most, float64(l.Deviation.Microseconds())/(w*rest))
		}
	}
	for earlier := range r {
		if p.weights[earlier] > 0 {
			most = min(most, float64(l.Wait[r])/float64(p.weights[r]))
		}
	}
	most = max(most, least)
	// Turns are as long as they may be where nobody should interrupt the tenant, or where
	// windows seldom leave others to wait for it.
	if r == First || r == Middle && p.Policy == share.FixedShare {
		return most
	}
	return min(max(enough, least), most)
}

// Unit is the turn per weight in t's rank, in microseconds. It means nothing while
// nobody has that rank.
func (p *Plan) Unit(t Tenant) float64 { return p.units[rankOf(t, p.Policy)] }

// Slice is the slice in microseconds of each group of t, which is on the card already or
// comes now. A change of its number of groups may change the unit, by a new plan.
func (p *Plan) Slice(t Tenant) uint64 { return p.limits.Slice(p.Policy, p.Unit(t), t) }

// Slice is the slice in microseconds of each group of t where the turn per weight in its
// rank is unit: all that whoever looks after t alone needs to know of the others.
func (l Limits) Slice(p share.Policy, unit float64, t Tenant) uint64 {
	if t.Whole {
		return DefaultSlice
	}
	us := unit * float64(weight(p, t)) / t.divisor()
	if us >= float64(l.MaxSlice) {
		return l.MaxSlice
	}
	return max(uint64(us), l.MinSlice)
}

func (p *Plan) setting(t Tenant) Setting {
	s := Setting{ID: t.ID, Rank: rankOf(t, p.Policy), Slice: p.Slice(t), Share: 1, Cap: 1}
	s.Turn = time.Duration(float64(s.Slice) * t.divisor() * float64(time.Microsecond))
	if t.Whole {
		return s
	}
	s.Share = p.part(s.Rank, t)
	if (s.Rank == Last || s.Rank == Middle && p.Policy == share.FixedShare) && t.Core > 0 {
		s.Cap = float64(t.Core) / share.Whole
	}
	// A tenant of more groups than even the shortest slices can hold to its turn is held
	// by a window.
	if fair := p.units[s.Rank] * float64(weight(p.Policy, t)); float64(p.limits.MinSlice)*t.divisor() > fair {
		s.Cap = min(s.Cap, s.Share)
		s.Turn = time.Duration(max(fair, float64(p.limits.MinSlice)) * float64(time.Microsecond))
	}
	return s
}
