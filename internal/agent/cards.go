package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/qgpu-project/qgpu/internal/discovery"
	"github.com/qgpu-project/qgpu/internal/inventory"
	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/share"
)

// cards are the node's cards as the driver tells them, and as they were while it could.
type cards struct {
	mu      sync.Mutex
	driver  string // "kernel" or "simulated"; empty: not known yet
	version string
	list    []inventory.Card // by index
	silent  error            // why the driver cannot be asked at present; nil: it can
	asked   bool             // it has answered, or failed to, since the agent began
	seeded  chan struct{}    // closed once what was published before is in list
}

// ready reports whether it is known which cards there are.
func (k *cards) ready() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.asked && k.driver != ""
}

// trouble is why the cards are not known or not answering, or nil.
func (k *cards) trouble() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.silent != nil:
		return k.silent
	case !k.isSeeded():
		return errors.New("what was published of them before has not been read yet")
	case !k.asked:
		return errors.New("the driver has not answered yet")
	}
	return nil
}

// seed remembers the cards that were published before: one that is lost now cannot tell
// its UUID any more. It comes before what the driver says.
func (k *cards) seed(was *inventory.CardInventory) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.isSeeded() {
		return
	}
	if was != nil {
		k.driver, k.version, k.list = was.Driver, was.DriverVersion, slices.Clone(was.Cards)
	}
	close(k.seeded)
}

// isSeeded reports whether it is known what was published before.
func (k *cards) isSeeded() bool {
	select {
	case <-k.seeded:
		return true
	default:
		return false
	}
}

// gone is why a card is not healthy that the driver does not list any more.
const gone = "the driver does not list the card any more"

func silence(err error) string { return cut(fmt.Sprintf("the driver cannot be asked: %v", err)) }

// cut keeps a reason within what the inventory's schema allows.
func cut(reason string) string {
	const most = 1000 // bytes
	if len(reason) <= most {
		return reason
	}
	return strings.ToValidUTF8(reason[:most], "") + "…"
}

// sameCard reports whether two records are of one card: the same chip, or whatever is at
// the same place if one of them cannot tell.
func sameCard(a, b inventory.Card) bool {
	if a.UUID != "" && b.UUID != "" {
		return a.UUID == b.UUID
	}
	return a.Address == b.Address
}

// sort brings the cards in order and their reasons to size. mu is held.
func (k *cards) sort() {
	for i := range k.list {
		k.list[i].Unhealthy = cut(k.list[i].Unhealthy)
	}
	slices.SortFunc(k.list, func(a, b inventory.Card) int {
		return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.UUID, b.UUID))
	})
}

// update takes in what the driver tells. inUse says of a card that the driver does not list
// any more whether it must be remembered. It returns the lost cards of which nothing is
// known, so that they cannot be published.
func (k *cards) update(driver string, inv discovery.Inventory, inUse func(uuid string) bool) []discovery.LostCard {
	k.mu.Lock()
	defer k.mu.Unlock()
	was := k.list
	k.driver, k.version, k.silent, k.asked = driver, inv.Version, nil, true
	k.list = nil
	for _, c := range inv.Cards {
		k.list = append(k.list, inventory.Card{
			Index: c.Minor, UUID: c.UUID, Model: c.Name, Address: c.Address, MemoryMiB: int64(c.Total-c.Reserved) >> 20,
		})
	}
	var unknown []discovery.LostCard
	for _, lost := range inv.Lost {
		at := slices.IndexFunc(was, func(c inventory.Card) bool { return c.Address == lost.Address })
		if at < 0 {
			unknown = append(unknown, lost)
			continue
		}
		c := was[at]
		c.Index, c.Unhealthy = lost.Minor, lost.Reason
		k.list = append(k.list, c)
	}
	for _, old := range was {
		replaced := slices.ContainsFunc(k.list, func(c inventory.Card) bool { return sameCard(c, old) || c.Index == old.Index })
		if !replaced && inUse(old.UUID) {
			old.Unhealthy = gone
			k.list = append(k.list, old)
		}
	}
	k.sort()
	return unknown
}

// fail notes that the driver cannot be asked: no card is healthy then.
func (k *cards) fail(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.silent, k.asked = err, true
	for i := range k.list {
		k.list[i].Unhealthy = silence(err)
	}
}

// snapshot is what is known at present. Without a driver nothing is.
func (k *cards) snapshot() (driver, version string, list []inventory.Card) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.asked {
		return "", "", nil
	}
	return k.driver, k.version, slices.Clone(k.list)
}

// records is what is known of cards, also from before the driver was asked.
func (k *cards) records() []inventory.Card {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.list)
}

// placementCards are cards as placement sees them, with nothing taken.
func placementCards(list []inventory.Card) []placement.Card {
	out := make([]placement.Card, len(list))
	for i, c := range list {
		out[i] = placement.Card{
			Index: c.Index, UUID: c.UUID, Model: c.Model, Unhealthy: c.Unhealthy, Memory: share.Memory(c.MemoryMiB) * share.MiB,
		}
	}
	return out
}

// watchCards follows the driver until ctx ends.
func (a *Agent) watchCards(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-a.cards.seeded:
	}
	retry := firstRetry
	for ctx.Err() == nil {
		err := a.Driver.Watch(ctx, func(driver string, inv discovery.Inventory) {
			retry = firstRetry
			a.cardsChanged(driver, inv)
		})
		if ctx.Err() != nil {
			return
		}
		a.Log.Error("the driver cannot be asked for its cards", "err", err)
		was := a.cards.records()
		a.cards.fail(err)
		a.tellHealth(was)
		a.publish.pull()
		select {
		case <-ctx.Done():
		case <-time.After(retry):
		}
		retry = min(2*retry, lastRetry)
	}
}

func (a *Agent) cardsChanged(driver string, inv discovery.Inventory) {
	was := a.cards.records()
	unknown := a.cards.update(driver, inv, a.cardInUse)
	a.tellHealth(was)
	a.Log.Info("the driver told its cards", "driver", driver, "version", inv.Version, "cards", len(inv.Cards), "lost", len(inv.Lost))
	for _, lost := range inv.Lost {
		a.Log.Warn("a card does not work", "minor", lost.Minor, "address", lost.Address, "reason", lost.Reason)
	}
	for _, lost := range unknown {
		a.nodeEvent("CardLost", "card %d at %s cannot be used and was never seen to work, so it is not published: %s", lost.Minor, lost.Address, lost.Reason)
	}
	a.publish.pull()
	a.advertise.pull()
	a.audit.pull()
}

// tellHealth puts on the Node what has changed of its cards' health since was.
func (a *Agent) tellHealth(was []inventory.Card) {
	for _, c := range a.cards.records() {
		at := slices.IndexFunc(was, func(old inventory.Card) bool { return sameCard(old, c) })
		before := at >= 0 && was[at].Unhealthy != ""
		switch {
		case c.Unhealthy != "" && !before:
			a.nodeEvent("CardUnhealthy", "card %d (%s, %s) takes no new tenants: %s", c.Index, c.Model, c.UUID, c.Unhealthy)
		case c.Unhealthy == "" && before:
			a.recorder.Eventf(a.nodeReference(), corev1.EventTypeNormal, "CardHealthy", "card %d (%s, %s) takes tenants again", c.Index, c.Model, c.UUID)
		}
	}
}

// cardInUse reports whether a tenant is on a card.
func (a *Agent) cardInUse(uuid string) bool {
	tenants, err := a.registry.List()
	if err != nil {
		return true // who knows
	}
	for _, t := range tenants {
		if slices.ContainsFunc(t.Placement, func(s placement.Slice) bool { return s.UUID == uuid }) {
			return true
		}
	}
	return false
}
