package qgpucmd

import (
	"context"
	"os"
	"slices"
	"time"

	"github.com/qgpu-project/qgpu/internal/launch"
	"github.com/qgpu-project/qgpu/internal/share"
	"github.com/qgpu-project/qgpu/internal/simgpu/host"
	"github.com/qgpu-project/qgpu/internal/tenant"
)

// frame is what top shows at one moment.
type frame struct {
	at    time.Time
	cards []cardView
}

// cardView is a card and its tenants.
type cardView struct {
	index   int
	uuid    string
	name    string
	policy  share.Policy // empty without tenants
	total   share.Memory // what tenants can have
	tenants []tenantView
	busy    *float64 // use of compute in percent; nil: not known
}

// used is the memory that the card's tenants hold, allotted what they may hold.
func (c cardView) used() (used, allotted share.Memory) {
	for _, t := range c.tenants {
		used += t.used
		allotted += t.quota
	}
	return used, allotted
}

// tenantView is a tenant on one of its cards.
type tenantView struct {
	id          string
	program     []string
	class       share.Class
	core        int          // percent asked of this card; 0: none
	used, quota share.Memory // on this card
	compute     *float64     // use of this card's compute in percent; nil: not known
	since       time.Time
	state       *tenant.State // nil: its mediator did not answer
	failure     string        // why
}

// source reads frames. What a card has does not change, and is asked once a driver.
type source struct {
	registry *tenant.Registry
	open     func(ctx context.Context, driver string) (*launch.Node, error)
	nodes    map[string]*launch.Node // by driver
}

// openSource opens the cards of the driver that is asked for, or, if none is, of the
// drivers that are there.
func (o *options) openSource(ctx context.Context) (*source, error) {
	r, err := tenant.OpenRegistry(o.stateDir)
	if err != nil {
		return nil, err
	}
	s := &source{registry: r, nodes: map[string]*launch.Node{}, open: func(ctx context.Context, driver string) (*launch.Node, error) {
		return launch.Open(ctx, driver, o.simDir)
	}}
	if o.driver != launch.DriverAuto {
		return s, s.need(ctx, o.driver)
	}
	if _, err := os.Stat("/dev/nvidiactl"); err == nil {
		err = s.need(ctx, launch.DriverKernel)
		if err != nil {
			return nil, err
		}
	}
	if _, err := (host.Client{Dir: o.simDir}).Info(); err == nil {
		err = s.need(ctx, launch.DriverSimulated)
		if err != nil {
			return nil, err
		}
	}
	if len(s.nodes) == 0 {
		return s, s.need(ctx, launch.DriverAuto) // its error says what to do
	}
	return s, nil
}

// need opens a driver's node unless it is open.
func (s *source) need(ctx context.Context, driver string) error {
	if s.nodes[driver] != nil {
		return nil
	}
	n, err := s.open(ctx, driver)
	if err != nil {
		return err
	}
	s.nodes[n.DriverName()] = n
	return nil
}

// read asks every tenant's mediator and arranges what they tell by card.
func (s *source) read(ctx context.Context) (frame, error) {
	tenants, err := s.registry.ObserveAll(ctx)
	if err != nil {
		return frame{}, err
	}
	var cards []cardView
	for _, driver := range []string{launch.DriverKernel, launch.DriverSimulated} {
		n := s.nodes[driver]
		if n == nil {
			continue
		}
		for i, c := range n.PlacementCards() {
			cards = append(cards, cardView{index: c.Index, uuid: c.UUID, name: n.Cards[i].Name, total: c.Memory})
		}
	}
	return frame{at: time.Now(), cards: arrange(cards, tenants)}, nil
}

// arrange puts tenants on their cards.
func arrange(cards []cardView, tenants []tenant.Observation) []cardView {
	for i := range cards {
		c := &cards[i]
		here := slices.DeleteFunc(slices.Clone(tenants), func(l tenant.Observation) bool { return l.SliceOn(c.uuid) == nil })
		c.busy = tenant.Busy(c.uuid, here)
		for _, l := range here {
			c.policy = l.Policy
			c.tenants = append(c.tenants, tenantOn(l, *c, here))
		}
	}
	return cards
}

func tenantOn(l tenant.Observation, c cardView, here []tenant.Observation) tenantView {
	placed := l.SliceOn(c.uuid)
	t := tenantView{
		id: l.ID, program: l.Program, class: l.Share.Class, core: placed.Core, quota: placed.Memory,
		since: l.Since, state: l.State, failure: l.Error, compute: l.ComputeOn(c.uuid, here),
	}
	if s := l.StateOn(c.uuid); s != nil {
		t.used, t.quota = s.Used, s.Quota
	}
	return t
}
