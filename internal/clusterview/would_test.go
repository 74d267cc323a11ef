package clusterview

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/share"
)

var (
	memoryAdvice = regexp.MustCompile(`^(\d+) GiB of memory`)
	coreAdvice   = regexp.MustCompile(`^a core of (\d+)`)
)

// What is said to fit fits, and nothing larger does.
func TestAdviceIsTrue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := &Node{}
		n.Name = "a"
		for i := range rapid.IntRange(1, 3).Draw(t, "cards") {
			n.Cards = append(n.Cards, placement.Card{
				Index: i, UUID: fmt.Sprint(i), Memory: 15 * share.GiB, Tenants: 1,
				Taken: share.Memory(rapid.IntRange(0, 15).Draw(t, "taken")) * share.GiB, Core: 5 * rapid.IntRange(0, 20).Draw(t, "core taken"),
			})
		}
		cards := rapid.IntRange(1, 2).Draw(t, "cards asked")
		s := share.Share{
			Core:   100*(cards-1) + 5*cards*rapid.IntRange(1, 19/cards).Draw(t, "core"),
			Memory: share.Memory(cards*rapid.IntRange(1, 15).Draw(t, "memory")) * share.GiB,
		}
		if s.Validate() != nil {
			t.Skip("no share")
		}
		r := &placement.Request{Containers: []placement.Container{{Name: "c", Share: s}}}
		if n.room(r) {
			t.Skip("it fits")
		}
		with := func(s share.Share) bool {
			return n.room(&placement.Request{Containers: []placement.Container{{Name: "c", Share: s}}})
		}
		bestMemory, bestCore := 0, 0
		for m := cards; m < int(s.Memory/share.GiB); m += cards {
			if with(share.Share{Core: s.Core, Memory: share.Memory(m) * share.GiB}) {
				bestMemory = m
			}
		}
		for c := 5 * s.Cards(); c < s.Core; c += 5 * s.Cards() {
			if smaller := (share.Share{Core: c, Memory: s.Memory}); smaller.Cards() == s.Cards() && with(smaller) {
				bestCore = c
			}
		}
		advice := less([]*Node{n}, r)
		if got := number(advice, memoryAdvice); got != bestMemory {
			t.Errorf("memory %d is advised, want %d: %q", got, bestMemory, advice)
		}
		if got := number(advice, coreAdvice); got != bestCore {
			t.Errorf("core %d is advised, want %d: %q", got, bestCore, advice)
		}
	})
}

func number(lines []string, pattern *regexp.Regexp) int {
	i := slices.IndexFunc(lines, pattern.MatchString)
	if i < 0 {
		return 0
	}
	n, _ := strconv.Atoi(pattern.FindStringSubmatch(lines[i])[1])
	return n
}
