package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strconv"

	"github.com/qgpu-project/qgpu/internal/share"
)

// online is what an online tenant had without and with an offline neighbour that is always
// busy, and what that had.
type online struct {
	alone, both  pinged
	idle, taken  float64 // of the card, in percent, beside the one that pings: not used by it, and had by the neighbour
	bursty       struct{ idle, taken float64 }
	aloneBusy    float64 // what an online tenant that is always busy has, in percent
	besideBusy   float64 // the same beside a neighbour
	neighbourHad float64 // what that has then
}

const pings = 300

var onlineShare, offlineShare = []string{"--class", "online"}, []string{"--class", "offline"}

func (s *place) onlineOverOffline(k kernels) (o online, err error) {
	ping := load{share: onlineShare, other: s.pinging(pings)}
	bursty := load{share: onlineShare, blocks: k.equal, pattern: "bursty"}
	busy := load{share: onlineShare, blocks: k.equal}
	offline := load{share: offlineShare, blocks: k.equal}
	if o.alone, _, err = s.pingBeside(ping); err != nil {
		return o, err
	}
	var parts []float64
	if o.both, parts, err = s.pingBeside(ping, offline); err != nil {
		return o, err
	}
	o.idle, o.taken = 100-parts[0], parts[1]
	if parts, err = s.together(bursty, offline); err != nil {
		return o, err
	}
	o.bursty.idle, o.bursty.taken = 100-parts[0], parts[1]
	if parts, err = s.together(busy); err != nil {
		return o, err
	}
	o.aloneBusy = parts[0]
	if parts, err = s.together(busy, offline); err != nil {
		return o, err
	}
	o.besideBusy, o.neighbourHad = parts[0], parts[1]
	return o, nil
}

// pingBeside has the first of loads ping beside the others, and tells all their parts.
func (s *place) pingBeside(loads ...load) (p pinged, parts []float64, err error) {
	tenants, end, err := s.startAll(loads)
	defer end()
	if err != nil {
		return p, nil, err
	}
	if err := s.settle(tenants[1:]); err != nil {
		return p, nil, err
	}
	if err := tenants[0].work(); err != nil {
		return p, nil, err
	}
	rec, err := s.watch(tenants, steady)
	if err != nil {
		return p, nil, err
	}
	if err := json.Unmarshal([]byte(tenants[0].line()), &p); err != nil {
		return p, nil, fmt.Errorf("the online tenant did not tell its times: %w", err)
	}
	return p, rec.parts(rec[0].at, steady), nil
}

// together measures the parts of loads that work at the same time.
func (s *place) together(loads ...load) ([]float64, error) {
	tenants, end, err := s.startAll(loads)
	defer end()
	if err != nil {
		return nil, err
	}
	if err := s.settle(tenants); err != nil {
		return nil, err
	}
	rec, err := s.watch(tenants, steady)
	if err != nil {
		return nil, err
	}
	return rec.parts(rec[0].at, steady), nil
}

// settle has tenants work and waits until all do as they will. One that another keeps off
// the card need not have had anything.
func (s *place) settle(tenants []*tenant) error {
	for _, t := range tenants {
		if err := t.work(); err != nil {
			return err
		}
	}
	_, err := s.watch(tenants, 2*settling)
	return err
}

// costs is the sum of all parts of some tenants that are always busy.
type costs struct {
	policy  share.Policy
	tenants int
	sum     float64
}

// cost measures one tenant alone and several of equal cores together.
func (s *place) cost(k kernels) ([]costs, error) {
	var out []costs
	for _, c := range []costs{
		{share.BestEffort, 1, 0}, {share.BestEffort, 2, 0}, {share.BestEffort, 4, 0}, {share.BurstShare, 4, 0}, {share.FixedShare, 4, 0},
	} {
		var loads []load
		for range c.tenants {
			core := strconv.Itoa(min(100/c.tenants, 50))
			loads = append(loads, load{share: []string{"--core", core, "--policy", string(c.policy)}, blocks: k.equal})
		}
		parts, err := s.together(loads...)
		if err != nil {
			return nil, err
		}
		for _, p := range parts {
			c.sum += p
		}
		out = append(out, c)
	}
	return out, nil
}

// calibrate measures how long kernels take on the card, without a tenant.
func (s *place) calibrate() (k kernels, err error) {
	const few, many = 1 << 15, 1 << 17
	a, err1 := s.kernelTime(few)
	b, err2 := s.kernelTime(many)
	if err := errors.Join(err1, err2); err != nil {
		return k, err
	}
	each := float64(b-a) / (many - few)
	blocks := func(ns float64) int { return int(math.Max(1, few+(ns-float64(a))/each)) }
	k.equal, k.short, k.long = many, blocks(100e3), blocks(20e6)
	k.equalNs = b
	k.longNs = a + int64(each*float64(k.long-few))
	// For so long that what was launched ahead does not count.
	short, err := s.load(k.short, 1)
	k.shortNs, k.shortPart = short.Kernel, 100*short.Part
	return k, err
}

func (s *place) kernelTime(blocks int) (int64, error) {
	l, err := s.load(blocks, 0.05)
	return l.Kernel, err
}

// loaded is what cudaload tells.
type loaded struct {
	Kernel int64 `json:"kernel_ns"`
	Part   float64
}

// load has the card to itself, without a tenant.
func (s *place) load(blocks int, seconds float64) (l loaded, err error) {
	out, err := s.run("qgpu-sim", "attach", "--", filepath.Join(s.Bin, "cudaload"), "load", "--json",
		"--seconds", strconv.FormatFloat(seconds, 'g', -1, 64), "--blocks", strconv.Itoa(blocks))
	if err != nil {
		return l, err
	}
	if err := json.Unmarshal(out, &l); err != nil {
		return l, fmt.Errorf("cudaload did not tell how it fared: %w", err)
	}
	return l, nil
}
