package gpucheck

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// timing is what cudaload prints of a measurement, in ns.
type timing struct {
	Init    float64 `json:"init_ns"`
	Context float64 `json:"context_ns"`
	Each    float64 `json:"each_ns"`
	Median  float64 `json:"median_ns"`
}

// cost is a step with how much more than bare it may take on a real card.
type cost struct {
	name string
	of   func(launch, cycles timing) float64
	aim  float64 // 0: none
}

var costTable = []cost{
	{"cuInit", func(l, _ timing) float64 { return l.Init }, 0},
	{"cuCtxCreate", func(l, _ timing) float64 { return l.Context }, 0},
	{"cuMemAlloc and cuMemFree of 4 MiB", func(_, c timing) float64 { return c.Median }, 1.3},
	{"a launch, of 10,000", func(l, _ timing) float64 { return l.Each }, 1.05},
}

// costs compares each step with bare, in turn, by medians.
func (c *check) costs(ctx context.Context) {
	const rounds = 3
	bare, tenant := make([][]float64, len(costTable)), make([][]float64, len(costTable))
	for range rounds {
		b, err1 := c.timings(ctx, false)
		t, err2 := c.timings(ctx, true)
		if err := errors.Join(err1, err2); err != nil {
			c.answer("cost of each step", "", "", err)
			return
		}
		for i := range costTable {
			bare[i], tenant[i] = append(bare[i], b[i]), append(tenant[i], t[i])
		}
	}
	for i, step := range costTable {
		b, t := middle(bare[i]), middle(tenant[i])
		answer := fmt.Sprintf("%.2f of bare (%.1f µs, bare %.1f µs)", t/b, t/1e3, b/1e3)
		var err error
		switch {
		case step.aim == 0:
		case c.site.simulated:
			answer += ", which is no measure for a real card"
		case t/b > step.aim:
			err = fmt.Errorf("%s; at most %.2f is wanted", answer, step.aim)
		}
		c.answer("cost of "+step.name, answer, fmt.Sprintf("bare %.0f, tenant %.0f ns", bare[i], tenant[i]), err)
	}
}

func (c *check) timings(ctx context.Context, mediated bool) ([]float64, error) {
	run := func(args ...string) (timing, error) {
		program := append([]string{c.site.program("cudaload")}, args...)
		cmd := c.site.bare(ctx, program...)
		if mediated {
			cmd = c.site.tenant(ctx, quota, program...)
		}
		t, _, err := ask[timing](ctx, c.site, cmd)
		return t, err
	}
	launch, err1 := run("launch", "--count", "10000")
	cycles, err2 := run("cycles", "--count", "500")
	var all []float64
	for _, step := range costTable {
		all = append(all, step.of(launch, cycles))
	}
	return all, errors.Join(err1, err2)
}

func middle(s []float64) float64 {
	return slices.Sorted(slices.Values(s))[len(s)/2]
}
