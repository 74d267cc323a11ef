package timeshare

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Period is how long a round of windows takes on the card's clock: over any 100 ms a
// tenant has one whole window. Shorter ones would cost more turns of the card.
const Period = 100 * time.Millisecond

// A Window is the part of every [Period] of the card's clock in which a tenant with a cap
// may use the card. It holds a cap without any measure of use: a tenant has no more engine
// time than its window is long. Those whose windows do not overlap have all of theirs.
type Window struct {
	Offset, Length time.Duration // within the period; it may go on over the period's end
}

// Never is the time of a change that does not come.
const Never = math.MaxUint64

// always is the window of a tenant without a cap.
var always = Window{Length: Period}

// Limited tells whether there is a time at which the window is shut.
func (w Window) Limited() bool { return w.Length < Period }

// At tells whether the window is open at time now of the card's clock, in ns, and when
// that changes.
func (w Window) At(now uint64) (open bool, next uint64) {
	if !w.Limited() {
		return true, Never
	}
	period, length := uint64(Period), uint64(w.Length)
	into := (now + period - uint64(w.Offset)%period) % period // since it opened last
	if into < length {
		return true, now + length - into
	}
	return false, now + period - into
}

// Within is for how long the window is open from time from to time to of the card's clock,
// in ns. A window without limits always is.
func (w Window) Within(from, to uint64) time.Duration {
	if to <= from {
		return 0
	}
	return w.opened(to) - w.opened(from)
}

// opened is for how long the window was open until time t, but for a constant.
func (w Window) opened(t uint64) time.Duration {
	period, length := uint64(Period), uint64(min(w.Length, Period))
	t += period - uint64(w.Offset)%period
	return time.Duration(t/period*length + min(t%period, length))
}

// Windows are those of the plan's tenants, in the order of its settings. Under
// fixed-share the ordinary tenants' windows follow one another, and the offline tenants'
// begin where these end, as do those of tenants of too many groups.
func (p *Plan) Windows() []Window {
	windows := make([]Window, len(p.Settings))
	var capped []int
	for i, s := range p.Settings {
		windows[i] = always
		if s.Cap < 1 {
			capped = append(capped, i)
		}
	}
	slices.SortFunc(capped, func(a, b int) int {
		x, y := p.Settings[a], p.Settings[b]
		return cmp.Or(cmp.Compare(x.Rank, y.Rank), cmp.Compare(x.ID, y.ID))
	})
	at := time.Duration(0)
	for _, i := range capped {
		length := time.Duration(p.Settings[i].Cap * float64(Period))
		windows[i] = Window{Offset: at % Period, Length: length}
		at += length
	}
	return windows
}
