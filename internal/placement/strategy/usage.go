package strategy

import (
	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/share"
)

// full is the rating of a card or a node of which nothing is left.
const full = 10_000

// usage rates a node by how full its cards are on average after the step: with
// sign 1 full ones are better, with -1 empty ones.
type usage struct{ sign int64 }

func (u usage) Score(_, after *placement.Node, _ *placement.Request) int64 {
	if len(after.Cards) == 0 {
		return 0
	}
	var sum int64
	for i := range after.Cards {
		sum += fullness(&after.Cards[i])
	}
	return u.sign * sum / int64(len(after.Cards))
}

// concentration rates a node by how unevenly its cards are filled after the step:
// with sign 1 one full card and an empty one are better than two half full, with -1
// they are worse.
type concentration struct{ sign int64 }

func (c concentration) Score(_, after *placement.Node, _ *placement.Request) int64 {
	var sum int64
	for i := range after.Cards {
		f := fullness(&after.Cards[i])
		sum += f * f / full
	}
	return c.sign * sum
}

// fullness is how much of c is taken, 0…full: of its memory or of its core,
// whichever is scarcer, and half of it by the other, so that both count.
func fullness(c *placement.Card) int64 {
	memory, core := int64(0), int64(c.Core)*full/share.Whole
	if c.Memory > 0 {
		memory = int64(c.Taken / share.MiB * full / max(1, c.Memory/share.MiB))
	}
	return (2*max(memory, core) + min(memory, core)) / 3
}
