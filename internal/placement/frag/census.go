package frag

import (
	"maps"
	"slices"

	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/share"
)

// census is what is free in a cluster, summed up and kept up node by node.
type census struct {
	models map[string]*modelStock
	// blocks[g] is how many groups of g idle cards, each on one node, there are.
	blocks [maxIdle + 1]int
	cards  int // in all
}

// modelStock is the cards of one model.
type modelStock struct {
	cards  int
	memory share.Memory // of the largest card
	// free counts cards by what is free of them: core in percent, then memory in
	// levels of the card's.
	free [share.Whole + 1][memoryLevels + 1]int
	// nodes counts nodes by how many cards they have, all of one model, and roomy those
	// of them with room.
	nodes [maxIdle + 1]int
	roomy [maxIdle + 1][roomy]int
}

// memoryLevels is in how many parts a card's memory is told apart by prices.
const memoryLevels = 16

// add counts n in, or with a sign of -1 out.
func (c *census) add(n *placement.Node, sign int) {
	if c.models == nil {
		c.models = map[string]*modelStock{}
	}
	idle := 0
	for i := range n.Cards {
		card := &n.Cards[i]
		s := c.models[card.Model]
		if s == nil {
			s = &modelStock{}
			c.models[card.Model] = s
		}
		c.cards += sign
		s.cards += sign
		s.memory = max(s.memory, card.Memory)
		if card.Unhealthy != "" {
			continue
		}
		s.free[freeCore(card)][memoryLevel(card)] += sign
		if isIdle(card) {
			idle++
		}
	}
	for g := 2; g <= maxIdle; g++ {
		c.blocks[g] += sign * (idle / g)
	}
	if size := len(n.Cards); size > 0 && size <= maxIdle {
		s := c.models[n.Cards[0].Model]
		s.nodes[size] += sign
		if room := roomOf(n); room != cramped {
			s.roomy[size][room] += sign
		}
	}
}

// memoryLevel is what is free of c's memory, in levels, rounded down. A card whose
// memory is not known has all of it.
func memoryLevel(c *placement.Card) int {
	switch {
	case c.Whole:
		return 0
	case c.Memory <= 0:
		return memoryLevels
	}
	return int(c.Free() * memoryLevels / c.Memory)
}

// levels is memory in levels of s's cards, rounded up.
func (s *modelStock) levels(memory share.Memory) int {
	if s.memory <= 0 {
		return 0
	}
	return int((memory*memoryLevels + s.memory - 1) / s.memory)
}

// names are the models of c, sorted.
func (c *census) names() []string { return slices.Sorted(maps.Keys(c.models)) }
