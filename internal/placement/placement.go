// Package placement fits shares on cards and chooses among the cards that fit.
// It is pure functions over plain structs: it reads no device, no file and no
// cluster, so that a scheduler, a command line and a simulator use the same code.
package placement

import (
	"errors"
	"fmt"
	"strings"

	"github.com/qgpu-project/qgpu/internal/share"
)

// MaxTenants is the most tenants that share one card.
const MaxTenants = 16

// Card is a card with what is taken of it.
type Card struct {
	Index   int          // the card's minor number
	UUID    string       // as NVIDIA writes it: GPU-…
	Memory  share.Memory // what tenants can have in all
	Taken   share.Memory // of Memory, by tenants' quotas
	Core    int          // percent taken by tenants' cores
	Tenants int
	Whole   bool // taken as a whole by one tenant
}

// Slice is the part of a share that lies on one card.
type Slice struct {
	Index  int          `json:"index"`
	UUID   string       `json:"uuid"`
	Core   int          `json:"core"`
	Memory share.Memory `json:"memory"` // the quota
}

// Free is what tenants can still have of c's memory.
func (c Card) Free() share.Memory {
	if c.Whole {
		return 0
	}
	return max(0, c.Memory-c.Taken)
}

// Fit reports why the one-card share s does not fit on c, or nil.
func (c Card) Fit(s share.Share) error {
	switch {
	case c.Whole:
		return errors.New("is taken as a whole")
	case whole(s) && c.Tenants > 0:
		return fmt.Errorf("has %d tenant(s), and a whole card is asked for", c.Tenants)
	case s.Memory > c.Free():
		return fmt.Errorf("has %v of %v free, and %v is asked for", c.Free(), c.Memory, s.Memory)
	case c.Core+s.Core > share.Whole:
		return fmt.Errorf("has %d %% of core free, and %d %% is asked for", share.Whole-c.Core, s.Core)
	case c.Tenants >= MaxTenants:
		return fmt.Errorf("has %d tenants, the most that share a card", c.Tenants)
	}
	return nil
}

// whole reports whether the one-card share s takes all of its card.
func whole(s share.Share) bool { return s.Core == share.Whole && s.Memory == 0 }

// Quota is how s lies on c.
func (c Card) Quota(s share.Share) Slice {
	slice := Slice{Index: c.Index, UUID: c.UUID, Core: s.Core, Memory: s.Memory}
	if whole(s) {
		slice.Memory = c.Memory
	}
	return slice
}

// LeastLoaded places s on the cards with the most free memory, the lowest index
// first among equals. The error says for each card why it does not fit.
func LeastLoaded(cards []Card, s share.Share) ([]Slice, error) {
	part := s.PerCard()
	var slices []Slice
	used := make([]bool, len(cards))
	for range s.Cards() {
		best := -1
		for i, c := range cards {
			if !used[i] && c.Fit(part) == nil && (best < 0 || c.Free() > cards[best].Free()) {
				best = i
			}
		}
		if best < 0 {
			return nil, noRoom(cards, s)
		}
		used[best] = true
		slices = append(slices, cards[best].Quota(part))
	}
	return slices, nil
}

func noRoom(cards []Card, s share.Share) error {
	if len(cards) == 0 {
		return errors.New("there is no card")
	}
	part, reasons := s.PerCard(), make([]string, 0, len(cards))
	for _, c := range cards {
		if err := c.Fit(part); err != nil {
			reasons = append(reasons, fmt.Sprintf("card %d %v", c.Index, err))
		}
	}
	if len(reasons) == 0 {
		return fmt.Errorf("%d cards are asked for, and there are %d", s.Cards(), len(cards))
	}
	return fmt.Errorf("no room: %s", strings.Join(reasons, "; "))
}

// Take adds slice to what is taken of c.
func (c *Card) Take(slice Slice) {
	c.Taken += slice.Memory
	c.Core += slice.Core
	c.Tenants++
	c.Whole = c.Whole || slice.Core == share.Whole && slice.Memory == c.Memory
}
