package pacer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/qgpu-project/qgpu/internal/nvclient"
	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/share"
	"github.com/qgpu-project/qgpu/internal/timeshare"
)

// clocks are the cards' clocks, for several goroutines.
type clocks struct {
	mu     sync.Mutex
	client *nvclient.Client
}

func (c *clocks) now(minor int) (uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.client.Time(c.index(minor))
}

func (c *clocks) index(minor int) int {
	for i, card := range c.client.Cards() {
		if card.Minor == minor {
			return i
		}
	}
	return -1
}

// enable lets channels run again.
func (c *clocks) enable(minor int, channels []nvclient.Channel) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.client.Disable(c.index(minor), false, channels)
}

// card paces the tenant on one card.
type card struct {
	id     string
	index  int // in the placement
	minor  int
	policy share.Policy
	limits timeshare.Limits
	driver nvclient.Driver
	link   *link
	clocks *clocks
	board  *board
	log    *slog.Logger

	mu     sync.Mutex
	tenant *Tenant // nil: not known yet
	events chan struct{}

	window  timeshare.Window
	balance balance
	order   Order   // the last that was applied
	placed  bool    // there was one
	held    Applied // its answer, while it has a file
}

func newCard(cfg Config, i int, s placement.Slice, l *link, c *clocks) (*card, error) {
	b, err := join(filepath.Join(cfg.BoardDir, s.UUID), cfg.ID)
	if err != nil {
		return nil, err
	}
	return &card{
		id: cfg.ID, index: i, minor: s.Index, policy: cfg.Policy, limits: cfg.Limits, driver: cfg.Driver,
		link: l, clocks: c, board: b, log: cfg.Log.With("card", s.Index), events: make(chan struct{}, 1),
	}, nil
}

// tell says what the tenant is now.
func (c *card) tell(t Tenant) {
	c.mu.Lock()
	c.tenant = &t
	c.mu.Unlock()
	c.changed()
}

func (c *card) changed() {
	select {
	case c.events <- struct{}{}:
	default:
	}
}

// run paces until ctx ends or the mediator does.
func (c *card) run(ctx context.Context) error {
	defer c.letGo()
	if err := c.board.watch(ctx, c.changed); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.events:
		}
		err := c.pace(ctx)
		if errors.Is(err, errMediatorGone) {
			return nil
		}
		if err != nil {
			c.log.Error("the tenant is not paced as it should be", "error", err)
			c.placed = false
			time.AfterFunc(time.Second, c.changed)
		}
	}
}

// pace applies the plan, and then opens and shuts the tenant's window, until something
// happens that another plan may be made for.
func (c *card) pace(ctx context.Context) error {
	turn, ok, err := c.plan()
	if err != nil || !ok {
		return err
	}
	if !c.window.Limited() || c.groups() == 0 {
		return c.set(turn, false)
	}
	now, err := c.clocks.now(c.minor)
	if err != nil {
		return err
	}
	open, edge := c.window.At(now)
	if err := c.set(turn, !open); err != nil {
		return err
	}
	c.balance.forget()
	for {
		at := edge
		if open {
			at = c.balance.end(c.window, edge)
		}
		// What is to be at the edge is set a little before, and takes effect with the
		// restart: that is one call, and those of neighbours that are due then agree.
		if !c.sleepUntil(ctx, at-ahead) {
			c.changed()
			return nil
		}
		open = !open
		if err := c.stage(turn, !open); err != nil {
			return err
		}
		if err := c.awaitEdge(at); err != nil {
			return err
		}
		if err := c.commit(); err != nil {
			return err
		}
		if now, err = c.clocks.now(c.minor); err != nil {
			return err
		}
		c.balance.turned(c.window, open, edge, now)
		if _, edge = c.window.At(edge); now >= edge { // the machine stood still
			c.changed()
			return nil
		}
	}
}

// ahead is how long before an edge of a window its order is given, in ns: less than the
// shortest window, so that no other tenant's edge lies between.
const ahead = uint64(2 * time.Millisecond)

// groups is the number of the tenant's groups here.
func (c *card) groups() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tenant == nil || c.index >= len(c.tenant.Groups) {
		return 0
	}
	return c.tenant.Groups[c.index]
}

// plan makes the card's plan, tells the others what it depends on, and returns the
// tenant's turn in µs. It is false while the tenant is not known.
func (c *card) plan() (turn uint64, ok bool, err error) {
	c.mu.Lock()
	t := c.tenant
	c.mu.Unlock()
	if t == nil {
		return 0, false, nil
	}
	part := t.Share.PerCard()
	own := Entry{ID: c.id, Class: part.Class, Core: part.Core, Groups: c.groups()}
	if err := c.board.post(own); err != nil {
		return 0, false, err
	}
	others, err := c.board.others()
	if err != nil {
		return 0, false, err
	}
	tenants := []timeshare.Tenant{planned(own)}
	for _, e := range others {
		tenants = append(tenants, planned(e))
	}
	p, err := timeshare.New(c.policy, c.limits, tenants)
	if err != nil {
		return 0, false, fmt.Errorf("plan the card: %w", err)
	}
	windows := p.Windows()
	c.window, c.balance.beyond = windows[0], beyond(&p, windows, others)
	return uint64(p.Settings[0].Turn.Microseconds()), true, nil
}

// beyond is the part of the card that the tenant, the first of the plan's, has right after
// its window, if those of the others whose time that is work.
func beyond(p *timeshare.Plan, windows []timeshare.Window, others []Entry) float64 {
	end := uint64(windows[0].Offset + windows[0].Length)
	turn, most := p.Settings[0].Turn, time.Duration(0)
	for i, e := range others {
		if open, _ := windows[i+1].At(end); open && e.Groups > 0 {
			most = max(most, p.Settings[i+1].Turn)
		}
	}
	return float64(turn) / float64(turn+most)
}

func planned(e Entry) timeshare.Tenant {
	return timeshare.Tenant{ID: e.ID, Class: e.Class, Core: e.Core, Groups: e.Groups}
}

// set has an order applied and in effect, unless it is so already.
func (c *card) set(turn uint64, shut bool) error {
	if err := c.stage(turn, shut); err != nil {
		return err
	}
	return c.commit()
}

// stage has an order applied. It is inert until commit.
func (c *card) stage(turn uint64, shut bool) error {
	o := Order{Card: c.index, Turn: turn, Shut: shut, Afresh: !c.placed}
	a, err := c.link.order(o)
	if err != nil {
		return err
	}
	pending := c.held.Restart // of an order that was not committed
	c.drop()
	c.held, c.order, c.placed = a, o, true
	c.held.Restart = a.Restart || pending
	return nil
}

// commit restarts the runlist if something waits for it. The control file is kept for as
// long as the tenant is shut off.
func (c *card) commit() error {
	if c.held.Restart && c.held.File != nil {
		if err := restart(c.driver, c.held.File, c.held.Channel); err != nil {
			c.drop()
			return err
		}
	}
	c.held.Restart = false
	if !c.order.Shut {
		c.drop()
	}
	return nil
}

func (c *card) drop() {
	if c.held.File != nil {
		c.held.File.Close()
	}
	c.held = Applied{}
}

// letGo lets a tenant run on whose mediator ended while it was shut off.
func (c *card) letGo() {
	if c.held.File != nil && len(c.held.Disabled) > 0 {
		err := c.clocks.enable(c.minor, c.held.Disabled)
		if err == nil {
			err = restart(c.driver, c.held.File, c.held.Channel)
		}
		if err != nil {
			c.log.Debug("the tenant's channels are gone", "error", err)
		}
	}
	c.drop()
}

// restart restarts a runlist. It may be refused at times, and is then tried again.
func restart(d nvclient.Driver, control *os.File, ch nvclient.Channel) error {
	const tries, pause = 100, 100 * time.Microsecond
	var err error
	for i := range tries {
		err = nvclient.RestartRunlist(d, int(control.Fd()), ch)
		if !errors.Is(err, nvclient.InvalidState) {
			return err
		}
		if i >= 3 {
			time.Sleep(pause)
		}
	}
	return err
}

// sleepUntil waits for time t of the card's clock, at least as the host's clock tells. It
// is false if something else happened.
func (c *card) sleepUntil(ctx context.Context, t uint64) bool {
	for {
		now, err := c.clocks.now(c.minor)
		if err != nil || now >= t {
			return err == nil && ctx.Err() == nil
		}
		select {
		case <-ctx.Done():
			return false
		case <-c.events:
			return false
		case <-time.After(time.Duration(t - now)):
		}
	}
}

// awaitEdge waits for an edge of the window, which is near.
func (c *card) awaitEdge(edge uint64) error {
	for {
		now, err := c.clocks.now(c.minor)
		if err != nil || now >= edge {
			return err
		}
		time.Sleep(time.Duration(edge - now))
	}
}
