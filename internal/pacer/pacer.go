// Package pacer holds a tenant to its share of the compute of its cards, by the cards'
// own time slices. It is the process beside a tenant's mediator that has the one right
// which the mediator must not have, to restart a runlist (CAP_SYS_NICE), and nothing else.
// It learns from the mediator how many channel groups the tenant has, and from the
// board of each card, a folder, what the card's other tenants are; it plans with package
// timeshare, has the mediator set what the plan says, and restarts the runlist.
//
// It does not know driver handles beyond those that the mediator names for a restart, and
// keeps a duplicate of the tenant's control file, which keeps the tenant's memory, only
// while the tenant's window is shut: should the mediator end just then, the pacer lets
// the tenant on the card again.
//
// A card's use is not measured: the driver's samples are a sixth of a second long and name
// one process each, too coarse for turns of milliseconds. What needs no measure is used
// instead: slices for parts and for ranks, windows on the card's clock for caps.
package pacer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"

	"github.com/qgpu-project/qgpu/internal/nvclient"
	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/share"
	"github.com/qgpu-project/qgpu/internal/timeshare"
)

// Tenant is what a mediator tells of its tenant.
type Tenant struct {
	Share  share.Share `json:"share"`
	Groups []int       `json:"groups"` // on the compute engine, by card
}

// Order is what a mediator is to set for the tenant's groups on one card.
type Order struct {
	Card   int    `json:"card"` // index in the tenant's placement
	Turn   uint64 `json:"turn"` // µs, of all groups together
	Shut   bool   `json:"shut"` // no channel may run
	Afresh bool   `json:"afresh,omitempty"`
}

// Applied is a mediator's answer to an order. File, a duplicate of a control file, and
// Channel, of that file's client, are for the restart; File is nil if there is none.
type Applied struct {
	Restart  bool               `json:"restart"` // something waits for one
	Channel  nvclient.Channel   `json:"channel"`
	Disabled []nvclient.Channel `json:"disabled,omitempty"`
	File     *os.File           `json:"-"`
}

// Config says whom a pacer paces.
type Config struct {
	ID        string
	Policy    share.Policy
	Placement []placement.Slice
	BoardDir  string        // of the machine's boards, one folder a card
	Mediator  *net.UnixConn // of sequenced packets
	Driver    nvclient.Driver
	Limits    timeshare.Limits
	Log       *slog.Logger
}

// Run paces a tenant until its mediator ends.
func Run(ctx context.Context, cfg Config) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	client, err := nvclient.Open(cfg.Driver, func(minor int) bool {
		for _, s := range cfg.Placement {
			if s.Index == minor {
				return true
			}
		}
		return false
	})
	if err != nil {
		return fmt.Errorf("open the tenant's cards: %w", err)
	}
	defer client.Close()
	l := newLink(cfg.Mediator)
	clock := &clocks{client: client}
	var cards []*card
	for i, s := range cfg.Placement {
		c, err := newCard(cfg, i, s, l, clock)
		if err != nil {
			return err
		}
		defer c.board.Close()
		cards = append(cards, c)
	}
	ended := make(chan error, len(cards)+1)
	for _, c := range cards {
		go func() { ended <- c.run(ctx) }()
	}
	go func() {
		ended <- l.read(func(t Tenant) {
			for _, c := range cards {
				c.tell(t)
			}
		})
	}()
	err = l.hello()
	for range cap(ended) {
		err = errors.Join(err, <-ended)
		cancel() // all end with the first: the mediator is gone
	}
	return err
}
