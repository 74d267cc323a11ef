package pacer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/qgpu-project/qgpu/internal/nvclient"
	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/share"
	"github.com/qgpu-project/qgpu/internal/timeshare"
)

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

	program *os.File // pidfd of the tenant's first process, or nil

	mu     sync.Mutex
	tenant *Tenant // nil: not known yet
	events chan struct{}

	// What follows is run's alone.
	window   timeshare.Window
	balance  balance
	wanted   Order           // of the present plan
	planned  bool            // there is one
	company  map[string]bool // the card's other tenants as of the last plan
	answers  chan answer
	asking   bool // an order is under way
	again    bool // another is due
	orphaned bool // the mediator has ended
	held     Applied
	gated    bool // held is of an order with Gated: balance.open is how the channels are
	waiting  bool // something waits for a restart
	failures int  // in a row
	resumeAt time.Time
	planAt   time.Time // when the next plan may be made
}

// answer is a mediator's answer to an order.
type answer struct {
	order Order
	Applied
	err error
}

func newCard(cfg Config, i int, s placement.Slice, l *link, c *clocks) (*card, error) {
	b, err := join(filepath.Join(cfg.BoardDir, s.UUID), cfg.ID)
	if err != nil {
		return nil, err
	}
	return &card{
		id: cfg.ID, index: i, minor: s.Index, policy: cfg.Policy, limits: cfg.Limits, driver: cfg.Driver,
		link: l, clocks: c, board: b, log: cfg.Log.With("card", s.Index), program: cfg.Program,
		events: make(chan struct{}, 1), answers: make(chan answer, 1), wanted: Order{Afresh: true},
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

// Times between attempts and between plans, on the host's clock. What makes a plan be
// thought over is in part the tenant's doing, so that happens only so often.
const (
	planPause  = 20 * time.Millisecond
	firstRetry = 2 * time.Millisecond
	lastRetry  = time.Second
)

// run paces until ctx ends, or the mediator and then the tenant have ended.
func (c *card) run(ctx context.Context) error {
	defer c.leave()
	if err := c.board.watch(ctx, c.changed); err != nil {
		return err
	}
	for ctx.Err() == nil && !c.over() {
		wait, err := c.step()
		if err != nil {
			c.failed(err)
			continue
		}
		if err := c.next(ctx, wait); err != nil {
			c.failed(err)
		}
	}
	return nil
}

// over tells whether there is nobody left to pace: mediator, first process, and the process
// whose file was used last have ended.
func (c *card) over() bool { return c.orphaned && ends(c.program) && ends(c.held.Process) }

// orphanLook is how often the tenant's end is looked for when the mediator has ended.
const orphanLook = 100 * time.Millisecond

// next waits for so long, or until something happens, and does what follows from that.
func (c *card) next(ctx context.Context, wait time.Duration) error {
	events := c.events
	if pause := time.Until(c.planAt); pause > 0 {
		events, wait = nil, min(wait, pause) // they keep
	}
	gone := c.link.gone
	if c.orphaned {
		gone, wait = nil, min(wait, orphanLook)
	}
	timer := closed
	if wait < fine {
		doze(wait)
	} else {
		timer = time.After(wait - fine)
	}
	select {
	case <-ctx.Done():
	case a := <-c.answers:
		return c.take(a)
	case <-events:
		c.planAt = time.Now().Add(planPause)
		return c.plan()
	case <-gone:
		c.orphaned = true
		if !c.over() {
			c.log.Warn("the mediator has ended before the tenant, whose window is kept, and whose slices stay as they are")
		}
	case <-timer:
	}
	return nil
}

// fine is how long before it is due the pacer waits in a way that is exact: timers of the Go
// runtime are late by a millisecond.
const fine = 1500 * time.Microsecond

// closed is a timer that has run out.
var closed = func() <-chan time.Time {
	c := make(chan time.Time)
	close(c)
	return c
}()

// doze sleeps for d, as exactly as the kernel can.
func doze(d time.Duration) {
	if d <= 0 {
		return
	}
	t := unix.NsecToTimespec(d.Nanoseconds())
	_ = unix.Nanosleep(&t, nil) // who is woken sooner looks at the clock again
}

// failed tells of an error, ever more seldom, and has everything tried again in a while.
func (c *card) failed(err error) {
	if c.failures&(c.failures+1) == 0 {
		c.log.Error("the tenant is not paced as it should be", "error", err, "times", c.failures+1)
	}
	c.resumeAt = time.Now().Add(min(firstRetry<<min(c.failures, 20), lastRetry))
	c.failures++
	c.wanted.Afresh = true
	c.ask()
}

// step opens or shuts the tenant's window, or puts in effect what waits for that, if it is
// due, and returns how long nothing will be.
func (c *card) step() (time.Duration, error) {
	if pause := time.Until(c.resumeAt); pause > 0 {
		return pause, nil
	}
	if !c.gated {
		return time.Hour, c.restart()
	}
	now, err := c.clocks.now(c.minor)
	if err != nil {
		return 0, err
	}
	c.balance.reckon(c.window, now)
	open, until := c.balance.decide(c.window)
	if open == c.balance.open {
		return time.Duration(until - now), c.restart()
	}
	if err := c.gate(open); err != nil {
		return 0, err
	}
	c.failures = 0
	if open {
		c.ask() // whether the file and the channels still are what they were
	}
	return 0, nil
}

// gate lets the tenant's channels on the card, or keeps them off it.
func (c *card) gate(open bool) error {
	if ends(c.held.Process) {
		c.held.letGo() // what the process left need not be kept
	}
	if len(c.held.Channels) > 0 {
		if err := c.clocks.disable(c.minor, !open, c.held.Channels); err != nil {
			return err
		}
		c.waiting = true
	}
	if err := c.restart(); err != nil {
		return err
	}
	now, err := c.clocks.now(c.minor)
	if err != nil {
		return err
	}
	c.balance.turned(c.window, open, now)
	return nil
}

// plan makes the card's plan, tells the others what it depends on, and has the mediator
// apply the tenant's part of it.
func (c *card) plan() error {
	c.mu.Lock()
	t := c.tenant
	c.mu.Unlock()
	if t == nil {
		return nil
	}
	part, groups := t.Share.PerCard(), 0
	if c.index < len(t.Groups) {
		groups = t.Groups[c.index]
	}
	own := Entry{ID: c.id, Class: part.Class, Core: part.Core, Groups: groups}
	if err := c.board.post(own); err != nil {
		return err
	}
	others, err := c.board.others()
	if err != nil {
		return err
	}
	tenants := []timeshare.Tenant{planned(own)}
	for _, e := range others {
		tenants = append(tenants, planned(e))
	}
	p, err := timeshare.New(c.policy, c.limits, tenants)
	if err != nil {
		return fmt.Errorf("plan the card: %w", err)
	}
	windows := p.Windows()
	if err := c.move(windows[0], beyond(&p, windows, others)); err != nil {
		return err
	}
	gated := c.window.Limited() && groups > 0
	c.wanted = Order{Card: c.index, Turn: uint64(p.Settings[0].Turn.Microseconds()), Gated: gated, Afresh: c.wanted.Afresh}
	c.planned = true
	c.ask()
	c.meet(others)
	return nil
}

// move changes the tenant's window. What it owes of the old one it owes of the new one.
func (c *card) move(w timeshare.Window, beyond float64) error {
	if c.gated && c.window.Limited() {
		now, err := c.clocks.now(c.minor)
		if err != nil {
			return err
		}
		c.balance.reckon(c.window, now)
	}
	c.window, c.balance.beyond = w, beyond
	return nil
}

// meet notes who else is on the card. Of a tenant that has left it, or whose pacers were
// killed, something may wait for a restart that nobody else makes.
func (c *card) meet(others []Entry) {
	company := make(map[string]bool, len(others))
	for _, e := range others {
		company[e.ID] = true
		delete(c.company, e.ID)
	}
	if len(c.company) > 0 {
		c.waiting = true
		time.AfterFunc(timeshare.Period, c.changed) // and once more, for what was not set yet
	}
	c.company = company
}

// ask has the mediator apply what is wanted, now or when it has answered the order before.
func (c *card) ask() {
	c.again = c.asking
	if c.asking || c.orphaned || !c.planned {
		return
	}
	c.asking = true
	o := c.wanted
	go func() {
		a, err := c.link.order(o)
		c.answers <- answer{o, a, err}
	}()
}

// take takes up what the mediator answered.
func (c *card) take(a answer) error {
	c.asking = false
	if errors.Is(a.err, errMediatorGone) {
		return nil // which will be seen
	}
	if a.err != nil {
		return a.err
	}
	first := !c.gated || a.order.Afresh || !slices.Equal(a.Channels, c.held.Channels)
	c.held.Close()
	c.held, c.waiting = a.Applied, c.waiting || a.Restart
	if a.order == c.wanted {
		c.wanted.Afresh = false
	}
	if c.again {
		c.ask()
	}
	var err error
	switch {
	case a.order.Gated && first:
		err = c.enter()
	case !a.order.Gated && c.gated:
		err = c.gate(true)
	default:
		err = c.restart()
	}
	c.gated = a.order.Gated
	if !c.gated && err == nil {
		c.held.letGo()
		c.balance = balance{beyond: c.balance.beyond}
	}
	return err
}

// enter puts channels under the window: those that are new, or all.
func (c *card) enter() error {
	now, err := c.clocks.now(c.minor)
	if err != nil {
		return err
	}
	if !c.gated {
		c.balance.turned(c.window, true, now) // so they were, or had nothing yet
		c.balance.over = 0
	}
	c.balance.reckon(c.window, now)
	open, _ := c.balance.decide(c.window)
	return c.gate(open)
}

// leave shuts off what remains of a tenant whose program has ended, but for which there are
// no channels any more.
func (c *card) leave() {
	if len(c.held.Channels) > 0 {
		err := c.clocks.disable(c.minor, true, c.held.Channels)
		if err == nil {
			c.waiting = true
			err = c.restart()
		}
		if err != nil {
			c.log.Debug("the tenant's channels are gone", "error", err)
		}
	}
	c.held.Close()
}
