package strategy

import "github.com/qgpu-project/qgpu/internal/placement"

// apart is a scorer that keeps online tenants and offline ones on different cards
// where it can, and among the ways to do so rates as inner does. The ratings of
// inner must lie within ±meeting/2.
type apart struct{ inner placement.Scorer }

// meeting is what one online tenant beside one offline tenant costs.
const meeting = 1 << 40

func (a apart) Score(before, after *placement.Node, r *placement.Request) int64 {
	return a.inner.Score(before, after, r) - meeting*(meetings(after)-meetings(before))
}

// meetings is how many pairs of an online and an offline tenant share a card of n.
func meetings(n *placement.Node) int64 {
	var pairs int64
	for i := range n.Cards {
		pairs += int64(n.Cards[i].Online) * int64(n.Cards[i].Offline)
	}
	return pairs
}
