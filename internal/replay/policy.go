package replay

import (
	"fmt"
	"maps"
	"math"
	"math/rand"
	"slices"
	"strconv"
	"strings"

	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/placement/frag"
	"github.com/qgpu-project/qgpu/internal/share"
)

// rater is a policy in a run: it rates nodes that have room.
type rater interface {
	// rate is what p on node i is worth, and the card for p's part, if it has one.
	rate(c *cluster, i int, p *pod) (score int64, card int)
}

// learner is a rater that changes with what it sees.
type learner interface {
	// see is called once for each pod, before it is placed. It reports whether rates
	// of before no longer hold.
	see(p *pod) bool
}

// keeper is a rater that keeps room from some pods.
type keeper interface{ kept() frag.Kept }

// setting is what a policy is made from.
type setting struct {
	target  frag.Target // the pods of the trace, for policies that are told
	cluster *cluster
	rng     *rand.Rand
	weights string // of frag, where they are not the usual ones
}

// policies are the policies by name; those of the published table come first.
var policies = []struct {
	name string
	make func(setting) rater
}{
	{"random", func(s setting) rater { return &random{rng: s.rng} }},
	{"dot-product", func(setting) rater { return dotProduct{} }},
	{"clustering", func(setting) rater { return clustering{} }},
	{"packing", func(setting) rater { return packing{} }},
	{"best-fit", func(setting) rater { return bestFit{} }},
	{"fgd", func(s setting) rater { return &scored{scorer: frag.NewFGD(s.target, s.cluster.models)} }},
	{"frag", newLearning},
}

// Policies are the names of all policies.
func Policies() []string {
	var names []string
	for _, p := range policies {
		names = append(names, p.name)
	}
	return names
}

// ValidatePolicy reports a name that is none.
func ValidatePolicy(name string) error {
	base, weights, given := strings.Cut(name, ":")
	if names := Policies(); !slices.Contains(names, base) {
		return fmt.Errorf("policy %q is unknown; the policies are %s", name, strings.Join(names, ", "))
	}
	if given && base != "frag" {
		return fmt.Errorf("policy %q: only frag has weights", name)
	}
	_, err := parseWeights(weights)
	return err
}

// parseWeights reads weights other than the tuned ones: "cpu=0.2:whole=0".
func parseWeights(text string) (frag.Weights, error) {
	w := frag.Tuned()
	fields := map[string]*float64{
		"stranded": &w.Stranded, "exact": &w.Exact, "coarse": &w.Coarse, "cpu": &w.CPU,
		"scarce": &w.Scarce, "whole": &w.Whole, "draining": &w.Draining, "reserve": &w.Reserve, "kept": &w.Kept,
	}
	if text == "" {
		return w, nil
	}
	for pair := range strings.SplitSeq(text, ":") {
		name, value, _ := strings.Cut(pair, "=")
		v, err := strconv.ParseFloat(value, 64)
		if fields[name] == nil || err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
			return w, fmt.Errorf("weight %q is none; write for example cpu=0.2; the weights are %s",
				pair, strings.Join(slices.Sorted(maps.Keys(fields)), ", "))
		}
		*fields[name] = v
	}
	return w, nil
}

func newRater(name string, s setting) rater {
	base, weights, _ := strings.Cut(name, ":")
	for _, p := range policies {
		if p.name == base {
			s.weights = weights
			return p.make(s)
		}
	}
	return nil
}

// picker is a scorer that finds the best card of a node itself.
type picker interface {
	placement.Scorer
	Pick(n *placement.Node, r *placement.Request) (card int, score int64, ok bool)
}

// scored is a scorer of package placement as a policy.
type scored struct {
	scorer  placement.Scorer
	scratch placement.Node
}

func (s *scored) rate(c *cluster, i int, p *pod) (int64, int) {
	n := &c.nodes[i]
	if pick, ok := s.scorer.(picker); ok {
		if card, score, ok := pick.Pick(n, &p.request); ok {
			return score, card
		}
	}
	best, at := int64(math.MinInt64), -1
	if p.cards == 1 && p.core < share.Whole {
		for j := range n.Cards {
			if c.roomOn(&n.Cards[j], p) {
				if v := s.score(c, i, p, j); v > best {
					best, at = v, j
				}
			}
		}
		return best, at
	}
	return s.score(c, i, p, -1), -1
}

func (s *scored) score(c *cluster, i int, p *pod, card int) int64 {
	n := &c.nodes[i]
	cards := append(s.scratch.Cards[:0], n.Cards...)
	s.scratch = *n
	s.scratch.Cards = cards
	s.scratch.FreeCPU -= p.cpu
	if p.cards > 0 {
		part := p.request.Containers[0].Share.PerCard()
		if p.kind == 0 && p.cards == 1 {
			cards[card].Take(cards[card].Quota(part))
		} else {
			left := p.cards
			for j := range cards {
				ok := cards[j].Tenants == 0
				if p.core < share.Whole {
					ok = c.roomOn(&cards[j], p)
				}
				if ok && left > 0 {
					cards[j].Take(cards[j].Quota(part))
					left--
				}
			}
		}
	}
	return s.scorer.Score(n, &s.scratch, &p.request)
}

// learning is frag, which learns from the pods it sees and follows the cluster.
type learning struct {
	scored
	market     *frag.Market
	generation uint64
}

func newLearning(s setting) rater {
	w, err := parseWeights(s.weights)
	if err != nil {
		w = frag.Tuned() // names were validated before
	}
	l := &learning{market: frag.NewMarket(w)}
	c := s.cluster
	for i := range c.nodes {
		l.market.Update(nil, &c.nodes[i])
	}
	var was placement.Node
	c.before = func(n *placement.Node) {
		cards := append(was.Cards[:0], n.Cards...)
		was = *n
		was.Cards = cards
	}
	c.after = func(n *placement.Node) { l.market.Update(&was, n) }
	return l
}

func (l *learning) kept() frag.Kept { return l.market.Kept() }

func (l *learning) see(p *pod) bool {
	l.market.Observe(&p.request)
	scorer, generation := l.market.Scorer()
	if generation == l.generation {
		return false
	}
	l.scorer, l.generation = scorer, generation
	return true
}
