package main

import (
	"strconv"
	"time"

	"github.com/qgpu-project/qgpu/internal/share"
	"github.com/qgpu-project/qgpu/internal/timeshare"
)

// turns are the turns of tenants of one group each with these cores.
func turns(p share.Policy, cores []int) ([]time.Duration, error) {
	var tenants []timeshare.Tenant
	for i, c := range cores {
		tenants = append(tenants, timeshare.Tenant{ID: strconv.Itoa(i), Core: c, Groups: 1})
	}
	plan, err := timeshare.New(p, timeshare.DefaultLimits(), tenants)
	if err != nil {
		return nil, err
	}
	var out []time.Duration
	for _, s := range plan.Settings {
		out = append(out, s.Turn)
	}
	return out, nil
}
