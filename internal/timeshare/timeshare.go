// Package timeshare turns the shares of a card's tenants into what the hardware
// understands: a time slice for each channel group, and for some tenants a window of time
// outside of which all their channels are kept off the card. It is arithmetic on plain values
// and the card's clock; it knows nothing of drivers, processes or descriptors, and
// applies nothing.
//
// # What the hardware does
//
// Channel groups take turns. A group that has work keeps the compute engine for its
// time slice; one without work is passed over, so that time is never kept for the idle.
// Each change to another group costs some microseconds. A tenant with n groups that all
// have work thus has, of the time that is not lost to changes,
//
//	n × slice / (sum over all busy groups of their slices)
//
// # Slices
//
// The unit of sharing is the tenant. A tenant's turn, the time that its groups have
// together in one rotation, is its weight × a unit which all tenants of its rank have in
// common, and a group's slice is the turn divided by the number of the tenant's groups.
// So shares are right whatever the unit is. The unit is chosen
// between two wishes: the shortest slice should be so long that changes cost little
// ([Limits.Shortest]); and turns should be so short that a share is right over short
// windows too: a tenant with the part p of the card and turns of t is, over any window,
// at most t×(1-p) away from p of it ([Limits.Deviation]). The second wish wins.
//
// Weights are equal under best-effort, and core under burst-share and fixed-share.
// Since cores add up to 100 at most, core/sum is at least core/100: the guarantee. If
// a tenant is idle its part falls to the others in proportion to their weights, with
// no change of the plan.
//
// # Ranks
//
// Online tenants come before ordinary ones, and these before offline ones. An ordinary
// tenant without core is guaranteed nothing under burst-share and fixed-share and has the
// rank of offline ones. Nothing tells in time when a tenant begins to work, so slices
// keep its wait small: the groups of a later rank have [Limits.Wait] together in a rotation
// while there are tenants of an earlier one, which has the longest turns. Where the groups
// are so many that this would leave them shorter slices than [Limits.MinSlice], they have
// these, and the wait is longer.
//
// # Caps
//
// A tenant under fixed-share, and an offline one, may not have more than core/100 even
// of an idle card. No slice does that; a [Window] on the card's clock does. A tenant whose
// groups have more than its turn even with slices of [Limits.MinSlice] has a window too, of
// its share, since slices cannot hold it to that.
//
// # What a tenant needs to know of the others
//
// Its slice follows from its own share and groups and from the unit of its rank
// ([Limits.Slice]); the unit is the one number that depends on the others, on their
// cores and numbers of groups and not on who is busy. A group that comes late gets
// its slice before its first work without any other tenant being looked at. Two things
// need more. When a tenant's number of groups changes, the slices of its older groups
// change too: until the next restart of the runlist the n groups of before and the new
// one have up to 1+1/(n+1) turns together. When the unit changes, all groups of the rank
// must change together, or shares are wrong by the ratio of the units until they have.
//
// How many groups of a tenant have work at a time is nothing that the hardware tells. A
// turn is divided by all of them: a tenant of many groups of which few have work has less
// than its share while others are busy, and never more.
package timeshare

import (
	"errors"
	"fmt"
	"time"

	"github.com/qgpu-project/qgpu/internal/share"
)

// DefaultSlice is the slice in microseconds that NVIDIA's driver gives to new groups
// since GV100: 128 << 3 (kernel_fifo_gv100.c).
const DefaultSlice = 128 << 3

// A Tenant is what a plan needs to know of a tenant's part of one card.
type Tenant struct {
	ID    string
	Class share.Class
	Core  int  // percent of the card, 0…100
	Whole bool // has the card as a whole, alone
	// Groups is the number of the tenant's channel groups on the compute engine; those
	// of copy engines are on other runlists and do not count.
	Groups int
}

func (t Tenant) validate() error {
	switch {
	case t.Core < 0 || t.Core > share.Whole:
		return fmt.Errorf("tenant %s has core %d on one card; it must be 0 to 100", t.ID, t.Core)
	case t.Groups < 0:
		return fmt.Errorf("tenant %s has %d channel groups", t.ID, t.Groups)
	}
	switch t.Class {
	case share.Ordinary, share.Online, share.Offline:
		return nil
	}
	return fmt.Errorf("tenant %s has the unknown class %q", t.ID, string(t.Class))
}

// divisor is the number of groups to divide a turn by, at least 1.
func (t Tenant) divisor() float64 { return float64(max(1, t.Groups)) }

// Rank is the order in which tenants are served: each has next to nothing while an earlier one works.
type Rank int

const (
	First  Rank = iota // online
	Middle             // ordinary
	Last               // offline, and ordinary without a guarantee
	ranks
)

func rankOf(t Tenant, p share.Policy) Rank {
	switch {
	case t.Class == share.Online:
		return First
	case t.Class == share.Offline, t.Core == 0 && p != share.BestEffort:
		return Last
	}
	return Middle
}

// Limits are the bounds within which plans are made.
type Limits struct {
	MinSlice, MaxSlice uint64 // of a group, in microseconds

	// Shortest is how long the shortest slice should be, in microseconds, for changes of
	// groups to cost little: cost of a change / part of the card that may be lost.
	Shortest uint64
	// Deviation is by how much engine time a tenant may be away from its share, over any
	// window, because turns are as long as they are.
	Deviation time.Duration
	// Wait is the time in microseconds that all groups of a rank have together in a
	// rotation while tenants of an earlier rank are on the card: how long these wait for
	// their first turn, but for changes of groups. Wait[First] has no meaning.
	Wait [ranks]uint64
}

// DefaultLimits are made for a change that costs 10 µs, of which 0.8 % of the card may
// be lost, and for shares that are right within 3 points over 100 ms. The shortest slice
// is one in which a change costs a sixth: more groups than this allows are held by a window.
func DefaultLimits() Limits {
	return Limits{
		MinSlice:  50,
		MaxSlice:  32_768,
		Shortest:  1250,
		Deviation: 3 * time.Millisecond,
		Wait:      [ranks]uint64{Middle: 4 * DefaultSlice, Last: DefaultSlice / 4},
	}
}

func (l Limits) validate() error {
	switch {
	case l.MinSlice == 0 || l.MaxSlice < l.MinSlice:
		return fmt.Errorf("slices of %d to %d µs are no range; the shortest must be 1 at least", l.MinSlice, l.MaxSlice)
	case l.Deviation <= 0:
		return errors.New("the deviation from shares must be positive")
	}
	return nil
}
