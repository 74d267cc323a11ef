package frag

import (
	"slices"

	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/share"
)

// unit is the sum of the weights of a target. Weights are whole numbers so that sums
// do not depend on their order: what is kept up step by step equals what is computed
// anew, and equal nodes rate equally, to the last bit.
const unit = 1 << 30

// stranding says, for the cards of one model, which part of the expected pods a card
// cannot serve, by what is free of it and of its node. It is read-only once made.
type stranding struct {
	cpus  []int64                // the shapes' demands for CPU, ascending
	mems  []share.Memory         // the parts' demands for card memory, ascending
	cores [share.Whole + 1]uint8 // how many of the parts' demands for core a free core meets
	nCore int                    // of levels of core
	nIdle int                    // of levels of idle cards

	// Weights of shapes that are not served: parts of cards by level of CPU, core and
	// memory; whole cards by level of CPU and number of idle cards.
	part, whole []int64
	// Weight of all shapes of whole cards that the model can serve, and of those that
	// it never serves: pods without cards and pods for other models.
	allWhole, never int64
}

// maxIdle is the most idle cards of a node that are told apart.
const maxIdle = 16

// newStranding is t seen from cards of a model.
func newStranding(t Target, model string) *stranding {
	s := &stranding{nIdle: maxIdle + 1}
	var cores []int
	weights := fixed(t)
	for _, w := range t {
		if w.Cards == 0 || !w.serves(model) {
			continue
		}
		s.cpus = append(s.cpus, w.CPU)
		if !w.whole() {
			cores = append(cores, min(w.Core, share.Whole))
			s.mems = append(s.mems, w.Memory)
		}
	}
	s.cpus, s.mems, cores = distinct(s.cpus), distinct(s.mems), distinct(cores)
	for free := range s.cores {
		s.cores[free] = uint8(met(cores, free)) // at most 101 distinct demands
	}
	s.nCore = len(cores) + 1
	s.part = make([]int64, (len(s.cpus)+1)*s.nCore*(len(s.mems)+1))
	s.whole = make([]int64, (len(s.cpus)+1)*s.nIdle)
	for i, w := range t {
		switch {
		case w.Cards == 0 || !w.serves(model):
			s.never += weights[i]
		case w.whole():
			s.allWhole += weights[i]
			s.addWhole(w.Shape, weights[i])
		default:
			s.addPart(w.Shape, cores, weights[i])
		}
	}
	return s
}

func (s *stranding) addWhole(w Shape, weight int64) {
	for cpu := range len(s.cpus) + 1 {
		for idle := range s.nIdle {
			if cpu < met(s.cpus, w.CPU) || idle < min(w.Cards, maxIdle) {
				s.whole[cpu*s.nIdle+idle] += weight
			}
		}
	}
}

func (s *stranding) addPart(w Shape, cores []int, weight int64) {
	needCPU, needCore, needMem := met(s.cpus, w.CPU), met(cores, w.Core), met(s.mems, w.Memory)
	for cpu := range len(s.cpus) + 1 {
		for core := range s.nCore {
			for mem := range len(s.mems) + 1 {
				if cpu < needCPU || core < needCore || mem < needMem {
					s.part[s.at(cpu, core, mem)] += weight
				}
			}
		}
	}
}

// level is which level of CPU cpu is, on n: the highest where n's CPU is not known.
func (s *stranding) level(n *placement.Node, cpu int64) int {
	if n.CPU <= 0 {
		return len(s.cpus)
	}
	return met(s.cpus, cpu)
}

func (s *stranding) at(cpu, core, mem int) int {
	return (cpu*s.nCore+core)*(len(s.mems)+1) + mem
}

// ofShared is the weight that a card with tenants strands.
func (s *stranding) ofShared(c *placement.Card, cpu int) int64 {
	core, mem := freeCore(c), len(s.mems)
	if mem > 0 {
		mem = met(s.mems, c.Free())
	}
	return s.part[s.at(cpu, int(s.cores[core]), mem)] + s.allWhole + s.never
}

// ofIdle is the weight that each card without tenants strands on a node with so many.
func (s *stranding) ofIdle(c *placement.Card, cpu, idle int) int64 {
	mem := len(s.mems)
	if mem > 0 {
		mem = met(s.mems, c.Free())
	}
	return s.part[s.at(cpu, s.nCore-1, mem)] + s.whole[cpu*s.nIdle+min(idle, maxIdle)] + s.never
}

// freeCore is what ordinary tenants can still have of c's core, in percent.
func freeCore(c *placement.Card) int {
	if c.Whole || c.Tenants >= placement.MaxTenants {
		return 0
	}
	return min(max(0, share.Whole-c.Core), share.Whole)
}

func isIdle(c *placement.Card) bool { return c.Tenants == 0 && !c.Whole }

// fixed is the weights of t as whole numbers of a unit.
func fixed(t Target) []int64 {
	var total float64
	for _, w := range t {
		total += w.Weight
	}
	weights := make([]int64, len(t))
	for i, w := range t {
		if total > 0 {
			weights[i] = int64(w.Weight/total*unit + 0.5)
		}
	}
	return weights
}

func distinct[T int | int64 | share.Memory](v []T) []T {
	slices.Sort(v)
	return slices.Compact(v)
}

// met is how many of the ascending demands are at most free.
func met[T int | int64 | share.Memory](demands []T, free T) int {
	low, high := 0, len(demands)
	for low < high {
		if mid := (low + high) / 2; demands[mid] <= free {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}
