// Package pacer holds a tenant to its share of the compute of its cards, by the cards'
// own time slices. It is the process beside a tenant's mediator that has the one right
// which the mediator must not have, to restart a runlist (CAP_SYS_NICE), and nothing else.
// It learns from the mediator how many channel groups the tenant has, and from the
// board of each card, a folder, what the card's other tenants are; it plans with package
// timeshare, has the mediator set the slices that the plan says, opens and shuts the
// tenant's window, and restarts the runlist.
//
// What it does when a window opens or shuts depends on nobody but the driver: the mediator
// has named the channels before. So a window is kept also while the mediator is busy with
// the tenant's calls, and after the mediator's end for as long as the tenant's program lives.
//
// It does not know driver handles beyond those that the mediator names. Of a tenant with a
// window it keeps a duplicate of one control file, which keeps that client's memory: the
// mediator is asked for another each period, and the file is closed when its process ends.
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

	"golang.org/x/sys/unix"

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
	Card int    `json:"card"` // index in the tenant's placement
	Turn uint64 `json:"turn"` // µs, of all groups together
	// Gated says that the pacer lets channels on the card and keeps them off it, which the
	// mediator otherwise leaves on.
	Gated  bool `json:"gated"`
	Afresh bool `json:"afresh,omitempty"`
}

// Applied is a mediator's answer to an order. File, a duplicate of a control file, and
// Channel, of that file's client, are for restarts; File is nil if there is none. Process is
// a pidfd of the process whose file it is.
type Applied struct {
	Restart  bool               `json:"restart"` // something waits for one
	Channel  nvclient.Channel   `json:"channel"`
	Channels []nvclient.Channel `json:"channels,omitempty"` // all that may be gated
	File     *os.File           `json:"-"`
	Process  *os.File           `json:"-"`
}

// Close closes the answer's files.
func (a *Applied) Close() {
	a.letGo()
	if a.Process != nil {
		a.Process.Close()
		a.Process = nil
	}
}

// letGo closes the control file, which keeps memory.
func (a *Applied) letGo() {
	if a.File != nil {
		a.File.Close()
		a.File = nil
	}
}

// Config says whom a pacer paces.
type Config struct {
	ID        string
	Policy    share.Policy
	Placement []placement.Slice
	BoardDir  string        // of the machine's boards, one folder a card
	Mediator  *net.UnixConn // of sequenced packets
	// Program is a pidfd of the tenant's first process; nil if that has ended.
	Program *os.File
	Driver  nvclient.Driver
	Limits  timeshare.Limits
	Log     *slog.Logger
}

// Run paces a tenant until its mediator ends. If that ends before the tenant's program
// does, Run goes on with what it knows until the program's end, and then shuts off what may
// be left.
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
		if one := <-ended; one != nil {
			err = errors.Join(err, one)
			cancel() // all end with the first that fails
			cfg.Mediator.Close()
		}
	}
	return err
}

// ends reports whether the process of a pidfd has ended. There is none behind nil.
func ends(process *os.File) bool {
	if process == nil {
		return true
	}
	fds := []unix.PollFd{{Fd: int32(process.Fd()), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0
}
