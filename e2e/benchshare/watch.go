package main

import (
	"errors"
	"slices"
	"sort"
	"time"

	"github.com/qgpu-project/qgpu/internal/simgpu"
)

// reading is what the card's own account says at a time of its clock.
type reading struct {
	at   uint64
	used []time.Duration // by tenant
}

// record is a series of readings.
type record []reading

// pause is the time between readings.
const pause = 2 * time.Millisecond

// read asks the card once.
func (s *place) read(tenants []*tenant) (reading, error) {
	cards, err := s.card.Usage()
	if err != nil {
		return reading{}, err
	}
	if len(cards) == 0 {
		return reading{}, errors.New("the simulator has no card")
	}
	r := reading{at: cards[0].Now}
	for _, t := range tenants {
		r.used = append(r.used, cards[0].Used[t.mediator])
	}
	return r, nil
}

// watch waits for a time of the card's clock, and returns the card's account of it: a reading
// at the end of every period of that. The time is exact, however busy this machine is.
func (s *place) watch(tenants []*tenant, d time.Duration) (record, error) {
	first, err := s.read(tenants)
	if err != nil {
		return nil, err
	}
	for now := first.at; now < first.at+uint64(d+margin); {
		time.Sleep(time.Duration(first.at+uint64(d+margin)-now) + pause)
		r, err := s.read(tenants)
		if err != nil {
			return nil, err
		}
		now = r.at
	}
	cards, err := s.card.History(first.at)
	if err != nil {
		return nil, err
	}
	return recordOf(cards[0], tenants), nil
}

// margin is more than a period of the card's account.
const margin = 10 * time.Millisecond

// recordOf adds up a card's account.
func recordOf(h simgpu.CardHistory, tenants []*tenant) record {
	r := reading{at: h.Start, used: make([]time.Duration, len(tenants))}
	rec := record{r}
	for _, p := range h.Periods {
		used := slices.Clone(r.used)
		for i, t := range tenants {
			used[i] += p[t.mediator]
		}
		r = reading{r.at + uint64(h.Period), used}
		rec = append(rec, r)
	}
	return rec
}

// usedBy is what tenant i had used at time t, between two readings by proportion.
func (r record) usedBy(i int, t uint64) float64 {
	k := sort.Search(len(r), func(k int) bool { return r[k].at >= t })
	switch {
	case k == len(r):
		return float64(r[k-1].used[i])
	case k == 0 || r[k].at == t:
		return float64(r[k].used[i])
	}
	a, b := r[k-1], r[k]
	part := float64(t-a.at) / float64(b.at-a.at)
	return float64(a.used[i]) + part*float64(b.used[i]-a.used[i])
}

// parts are what tenants had of the d that began at time from, in percent.
func (r record) parts(from uint64, d time.Duration) []float64 {
	out := make([]float64, len(r[0].used))
	for i := range out {
		out[i] = 100 * (r.usedBy(i, from+uint64(d)) - r.usedBy(i, from)) / float64(d)
	}
	return out
}

// windows calls f with the parts of every window of length d that begins at a reading.
func (r record) windows(d time.Duration, f func(parts []float64)) {
	end := r[len(r)-1].at
	for _, from := range r {
		if from.at+uint64(d) > end {
			return
		}
		f(r.parts(from.at, d))
	}
}
