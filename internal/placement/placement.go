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
