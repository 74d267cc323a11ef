package scheduler

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// PreScore leaves out the scoring of pods that ask for no share.
func (p *Plugin) PreScore(_ context.Context, state fwk.CycleState, _ *corev1.Pod, _ []fwk.NodeInfo) *fwk.Status {
	if p.cycleOf(state) == nil {
		return fwk.NewStatus(fwk.Skip)
	}
	return nil
}

// Score is the strategy's rating of the node, in its own unit. Nodes whose cards are in
// equal states are rated equally.
func (p *Plugin) Score(_ context.Context, state fwk.CycleState, _ *corev1.Pod, info fwk.NodeInfo) (int64, *fwk.Status) {
	c := p.cycleOf(state)
	if c == nil {
		return 0, fwk.AsStatus(errNoCycle)
	}
	if e := p.entry(c, info); e != nil {
		return e.score, nil
	}
	verdict := c.shape.judge(p.view.fresh(info))
	return verdict.score, nil
}

// ScoreExtensions implements framework.ScorePlugin.
func (p *Plugin) ScoreExtensions() fwk.ScoreExtensions { return p }

// runnerUp is the best score but that of the winner.
const runnerUp = fwk.MaxScore - 1

// NormalizeScore brings ratings to 0…100. One node alone gets 100: the scheduler would
// draw lots among several, and a fixed order, drawn once by the seed, leaves the nodes
// that come late in it whole for pods that need them so. The others share 0…99 in
// proportion to their ratings, equal ratings equally.
func (p *Plugin) NormalizeScore(_ context.Context, _ fwk.CycleState, _ *corev1.Pod, scores fwk.NodeScoreList) *fwk.Status {
	if len(scores) == 0 {
		return nil
	}
	least, best := scores[0].Score, 0
	bestRank := p.args.Rank(scores[0].Name)
	for i := 1; i < len(scores); i++ {
		least = min(least, scores[i].Score)
		if scores[i].Score < scores[best].Score {
			continue
		}
		rank := p.args.Rank(scores[i].Name)
		if scores[i].Score > scores[best].Score || rank < bestRank {
			best, bestRank = i, rank
		}
	}
	most := scores[best].Score
	for i := range scores {
		scores[i].Score = proportion(scores[i].Score, least, most)
	}
	scores[best].Score = fwk.MaxScore
	return nil
}

// proportion is where v lies between least and most, 0…99. Ratings may be so far apart
// that their difference does not fit in 64 bits.
func proportion(v, least, most int64) int64 {
	if least == most {
		return runnerUp
	}
	return int64(float64(runnerUp) * (float64(v) - float64(least)) / (float64(most) - float64(least)))
}

// Rank is a node's place in the order that the seed gives: the lowest is taken first.
// It is the node's name hashed with FNV-1a, spread over all bits.
func (a Args) Rank(node string) uint64 {
	const offset, prime = 0xcbf29ce484222325, 0x100000001b3
	h := mix(offset ^ a.Seed)
	for i := range len(node) {
		h = (h ^ uint64(node[i])) * prime
	}
	return mix(h)
}

// mix spreads each bit over all (the finalizer of MurmurHash3).
func mix(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}
