package timeshare

import (
	"math"
	"time"
)

const (
	// fullCard is the part of a period for which the card must have worked for its use to tell
	// anything of slices; changes of groups take the rest.
	fullCard = 0.85
	// deadBand is the relative error of a share that is left as it is.
	deadBand = 0.02
	// content is the part of what is fair from which on a tenant of one group, which always
	// has its whole slice if it has work, is taken to have had all its slices.
	content = 0.9
	// growth is by how much a tenant may want more in the next period than it had.
	growth = 2
)

// Infer returns, for each tenant, how many of its groups have work at a time, for the
// next plan, from the engine time in nanoseconds that each used in a period under this
// plan. The period should be some rotations long. The tenants are those that the plan was
// made of.
//
// Hardware does not tell which groups have work. A tenant of six groups of which one works
// has a sixth of a turn as long as its turn is divided by six, and one of forty of which
// all work has forty turns if it is not divided. Both show in what is used. Each tenant of
// several groups is compared with its fair part of what all used, and its number changed
// by the ratio, relative to tenants of a single group, whose number is known. If there are
// such tenants and none has its part, because it has little work or because others have
// too much, the doubt is in their favour: who has more than its part is taken to work with
// all of its groups. On a card that was not full nothing is learnt, and nobody missed
// anything.
func (p *Plan) Infer(tenants []Tenant, used []uint64, period time.Duration) []float64 {
	out := make([]float64, len(tenants))
	total := 0.0
	for i, t := range tenants {
		out[i] = t.active()
		total += float64(used[i])
	}
	if total < fullCard*float64(period) {
		return out
	}
	for r := range ranks {
		p.inferRank(r, tenants, used, period, out)
	}
	return out
}

func (p *Plan) inferRank(r Rank, tenants []Tenant, used []uint64, period time.Duration, out []float64) {
	var members []claim
	for i, t := range tenants {
		if s := p.Settings[i]; s.Rank == r && !t.Whole {
			c := claim{tenant: i, weight: float64(weight(p.Policy, t)), used: float64(used[i]), most: s.Cap * float64(period)}
			if t.active() == 1 {
				c.most = min(c.most, growth*c.used)
			}
			members = append(members, c)
		}
	}
	divide(members)
	singles, n := 0.0, 0.0 // what content tenants of one group had, relative to what is fair
	doubt := false
	for _, c := range members {
		if tenants[c.tenant].Groups > 1 {
			continue
		}
		if f := c.used / c.fair; f >= content {
			singles += f
			n++
		} else {
			doubt = true
		}
	}
	for _, c := range members {
		groups := float64(tenants[c.tenant].Groups)
		ratio := c.used / c.fair
		switch {
		case groups <= 1 || math.IsNaN(ratio):
			continue
		case n > 0:
			ratio /= singles / n
		case doubt && ratio > 1+deadBand:
			ratio = math.Inf(1)
		}
		if math.Abs(ratio-1) > deadBand {
			out[c.tenant] = min(max(out[c.tenant]*max(ratio, 0.25), 1), groups)
		}
	}
}

// A claim is a tenant's part in the time that its rank used.
type claim struct {
	tenant     int
	weight     float64
	used, most float64 // ns had, and the most it may or would have
	fair       float64 // ns
}

// divide sets what is fair: all that was used in proportion to weights, and to nobody more
// than the most.
func divide(claims []claim) {
	left, weights := 0.0, 0.0
	for _, c := range claims {
		left += c.used
		weights += c.weight
	}
	settled := make([]bool, len(claims))
	for again := true; again; {
		again = false
		level := left / weights
		for i := range claims {
			c := &claims[i]
			if settled[i] {
				continue
			}
			c.fair = level * c.weight
			if c.fair > c.most {
				c.fair = c.most
				left -= c.most
				weights -= c.weight
				settled[i], again = true, true
			}
		}
	}
}
