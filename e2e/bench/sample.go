package main

import (
	"fmt"
	"slices"
)

// sample is one quantity, once a round, in its own unit.
type sample []float64

// median is the middle value; of an even number, the lower of the two middle ones.
func (s sample) median() float64 {
	sorted := slices.Sorted(slices.Values(s))
	return sorted[(len(sorted)-1)/2]
}

// show prints median and range, times scale.
func (s sample) show(scale float64, unit string) string {
	return fmt.Sprintf("%s (%s–%s) %s", digits(s.median()*scale), digits(slices.Min(s)*scale), digits(slices.Max(s)*scale), unit)
}

// digits prints three significant digits without an exponent.
func digits(v float64) string {
	switch {
	case v < 10:
		return fmt.Sprintf("%.2f", v)
	case v < 100:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

// pair is a quantity without and with mediation.
type pair struct{ without, with sample }

// ratio is the median of the rounds' ratios: what disturbs the machine for long
// disturbs both sides of a round.
func (p pair) ratio() float64 {
	var r sample
	for i := range min(len(p.without), len(p.with)) {
		r = append(r, p.with[i]/p.without[i])
	}
	return r.median()
}

// atBest is the ratio of the lowest values, which were disturbed least.
func (p pair) atBest() float64 { return slices.Min(p.with) / slices.Min(p.without) }

// ratios prints both.
func (p pair) ratios() string { return digits(p.ratio()) + "; " + digits(p.atBest()) }

// aim says what the ratio should be and whether it is, by either of the two.
func (p pair) aim(most float64) string {
	switch met := p.ratio() <= most; {
	case met && p.atBest() <= most:
		return fmt.Sprintf("≤ %.2f: met", most)
	case met:
		return fmt.Sprintf("≤ %.2f: met by the median, not at best", most)
	case p.atBest() <= most:
		return fmt.Sprintf("≤ %.2f: met at best, not by the median", most)
	}
	return fmt.Sprintf("≤ %.2f: **not met**", most)
}
