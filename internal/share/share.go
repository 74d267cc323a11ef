// Package share owns the words of qGPU as types: how much of a card a container
// asks for, what class of work it is, and what a node's policy makes of it. It
// parses, validates and formats them; it knows nothing of cards or processes.
package share

import (
	"errors"
	"fmt"
)

const (
	// Whole is the core of one whole card, in percent.
	Whole = 100

	coreStep = 5 // the finest slice of a card's compute, in percent
)

// Share is what a container asks for.
type Share struct {
	// Core is compute in percent of a card: 5…100 in steps of 5, a multiple of
	// 100 for whole cards, or more than 100 split evenly over several cards.
	// 0 asks for no compute guarantee. An offline share may use 1…100 percent of
	// one card where it is idle, and is guaranteed none.
	Core int `json:"core"`
	// Memory is card memory. 0 on a share of whole cards means all of it.
	Memory Memory `json:"memory"`
	Class  Class  `json:"class,omitempty"`
}

// Validate reports the first rule that s breaks, with the nearest valid value.
func (s Share) Validate() error {
	if err := s.Class.validate(); err != nil {
		return err
	}
	switch {
	case s.Core < 0:
		return fmt.Errorf("core %d is negative; ask for 5…100 percent in steps of 5", s.Core)
	case s.Memory < 0:
		return fmt.Errorf("memory %d is negative", s.Memory)
	case s.Class == Offline && s.Core > Whole:
		return fmt.Errorf("core %d is more than one card, and an offline share lies on one; the most is %d", s.Core, Whole)
	case s.Class == Offline && s.Memory > 0:
		return nil // its core is reserved by nobody, so that it need not add up
	case s.Core > Whole && s.Core%Whole == 0 && s.Memory != 0:
		return fmt.Errorf("core %d asks for whole cards, which come with all of their memory; leave memory out", s.Core)
	case s.Core%Whole != 0 && s.Core/s.Cards()*s.Cards() != s.Core, s.Core/s.Cards()%coreStep != 0:
		return fmt.Errorf("core %d does not divide into multiples of %d percent on %d card(s); the nearest is %d",
			s.Core, coreStep, s.Cards(), nearest(s.Core, s.Cards()))
	case (s.Core == 0 || s.Core%Whole != 0) && s.Memory == 0:
		return errors.New("a part of a card needs an amount of memory, for example 4Gi")
	}
	return nil
}

// Cards is the number of cards that s lies on.
func (s Share) Cards() int {
	return max(1, (s.Core+Whole-1)/Whole)
}

// WholeCards reports whether s takes all of its cards, so that nobody shares them.
func (s Share) WholeCards() bool {
	return s.Core > 0 && s.Core%Whole == 0 && s.Memory == 0
}

// PerCard is the part of s that lies on each of its cards: a share of more than
// one card is split evenly, so that 160 percent and 60Gi are twice 80 and 30Gi.
func (s Share) PerCard() Share {
	n := s.Cards()
	return Share{Core: s.Core / n, Memory: s.Memory / Memory(n), Class: s.Class}
}

// nearest is the core nearest to v that lies evenly on so many cards. Several cards are
// not filled up: a share of whole cards is another one, without an amount of memory.
func nearest(v, cards int) int {
	step := coreStep * cards
	most := Whole * cards
	if cards > 1 {
		most -= step
	}
	return min(max((v+step/2)/step*step, step), most)
}

// Class is what kind of work a tenant does.
type Class string

const (
	Ordinary Class = ""        // contends by the node's policy
	Online   Class = "online"  // latency comes first
	Offline  Class = "offline" // only what is idle
)

// ParseClass reads a class; the empty string and "ordinary" are Ordinary.
func ParseClass(s string) (Class, error) {
	if s == "ordinary" {
		return Ordinary, nil
	}
	c := Class(s)
	return c, c.validate()
}

func (c Class) validate() error {
	switch c {
	case Ordinary, Online, Offline:
		return nil
	}
	return fmt.Errorf("class %q is unknown; the classes are ordinary, online and offline", string(c))
}

func (c Class) String() string {
	if c == Ordinary {
		return "ordinary"
	}
	return string(c)
}
