package e2e

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// A card that fails serves no new pod until it is well again. The other one serves on.
func TestUnhealthyCard(t *testing.T) {
	node := shared.node(t, turing)
	first := shared.run(t, newPod("healthy", turing, container("cuda", ask{core: 30, memory: 5})))
	card := placed(t, first).Containers["cuda"][0]
	shared.remove(t, first)

	change := func(verb string) error {
		_, err := node.Run(context.Background(), "qgpu-sim", verb, strconv.Itoa(card.Index))
		return err
	}
	if err := change("lose"); err != nil {
		t.Fatal(err)
	}
	lost := true
	t.Cleanup(func() {
		if lost {
			change("recover")
		}
	})
	reads := func(healthy bool) {
		t.Helper()
		eventually(t, func() error {
			inv, err := shared.inventories.Get(t.Context(), turing)
			if err != nil {
				return err
			}
			for _, is := range inv.Cards {
				if is.Index == card.Index && (is.Unhealthy == "") == healthy {
					return nil
				}
			}
			return fmt.Errorf("the inventory says %+v", inv.Cards)
		})
	}
	reads(false)
	beside := shared.run(t, newPod("beside", turing, container("cuda", ask{core: 30, memory: 5})))
	if other := placed(t, beside).Containers["cuda"][0]; other.Index == card.Index {
		t.Error("a pod was placed on the card that failed")
	}
	shared.remove(t, beside)
	both := shared.create(t, newPod("both", turing, container("cuda", ask{core: 200})))
	if reason := shared.waiting(t, both); !strings.Contains(reason, "card") {
		t.Errorf("it waits because of %q", reason)
	}
	if err := change("recover"); err != nil {
		t.Fatal(err)
	}
	lost = false
	reads(true)
	shared.running(t, both)
}
