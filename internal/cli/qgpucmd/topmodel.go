package qgpucmd

import (
	"cmp"
	"context"
	"slices"
	"time"

	tea "charm.land/bubbletea/v2"
)

// order is by what a card's tenants are sorted.
type order int

const (
	byMemory order = iota
	byCompute
	byID
	orders // how many there are
)

func (o order) String() string { return [...]string{"memory", "compute", "id"}[o] }

// sorted are tenants in order o, those with the most first, and among equals by id.
func (o order) sorted(tenants []tenantView) []tenantView {
	compute := func(t tenantView) float64 {
		if t.compute == nil {
			return -1
		}
		return *t.compute
	}
	return slices.SortedStableFunc(slices.Values(tenants), func(a, b tenantView) int {
		switch o {
		case byMemory:
			return cmp.Or(cmp.Compare(b.used, a.used), cmp.Compare(a.id, b.id))
		case byCompute:
			return cmp.Or(cmp.Compare(compute(b), compute(a)), cmp.Compare(a.id, b.id))
		}
		return cmp.Compare(a.id, b.id)
	})
}

// row names a tenant on one card.
type row struct{ card, tenant string }

// historyLength is how many of a card's last readings are kept.
const historyLength = 40

// topModel is the state of the terminal program.
type topModel struct {
	ctx      context.Context
	read     func(context.Context) (frame, error)
	interval time.Duration
	view     view
}

func newTopModel(ctx context.Context, read func(context.Context) (frame, error), interval time.Duration) topModel {
	return topModel{ctx: ctx, read: read, interval: interval, view: view{
		width: plainWidth, history: map[string][]*float64{}, styles: newStyles(),
	}}
}

// reading is a frame that was read, or why not.
type reading struct {
	frame frame
	err   error
}

// due says that it is time to read.
type due struct{}

func (m topModel) fetch() tea.Msg {
	f, err := m.read(m.ctx)
	return reading{f, err}
}

// Init implements tea.Model.
func (m topModel) Init() tea.Cmd { return m.fetch }

// Update implements tea.Model. The next frame is read only when this one is there, so
// that slow mediators are not asked ever more.
func (m topModel) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.view.width, m.view.height = msg.Width, msg.Height
	case tea.KeyPressMsg:
		return m.key(msg.String())
	case due:
		return m, m.fetch
	case reading:
		m.view = m.view.with(msg)
		return m, tea.Tick(m.interval, func(time.Time) tea.Msg { return due{} })
	}
	return m, nil
}

func (m topModel) key(key string) (tea.Model, tea.Cmd) {
	switch key {
	case "q", "ctrl+c", "esc":
		return m, tea.Quit
	case "up", "k":
		m.view = m.view.moved(-1)
	case "down", "j":
		m.view = m.view.moved(1)
	case "s":
		m.view.order = (m.view.order + 1) % orders
	}
	return m, nil
}

// View implements tea.Model. The library leaves out colours that the terminal has not.
func (m topModel) View() tea.View {
	v := tea.NewView(m.view.String())
	v.AltScreen = true
	return v
}

// with is the view after a reading. A failed one leaves the last frame, and says so.
func (v view) with(r reading) view {
	v.err = r.err
	if r.err != nil {
		return v
	}
	v.frame = r.frame
	history := make(map[string][]*float64, len(v.frame.cards))
	for _, c := range v.frame.cards {
		h := append(slices.Clone(v.history[c.uuid]), c.busy)
		history[c.uuid] = h[max(0, len(h)-historyLength):]
	}
	v.history = history
	return v.moved(0)
}

// rows are the tenants as they stand, from the top.
func (v view) rows() []row {
	var rows []row
	for _, c := range v.frame.cards {
		for _, t := range v.order.sorted(c.tenants) {
			rows = append(rows, row{c.uuid, t.id})
		}
	}
	return rows
}

// moved selects the tenant that is so many rows further. If the selected one is gone, it
// is the first.
func (v view) moved(by int) view {
	rows := v.rows()
	if len(rows) == 0 {
		v.selected = row{}
		return v
	}
	at := slices.Index(rows, v.selected)
	if at < 0 {
		at, by = 0, 0
	}
	v.selected = rows[min(max(at+by, 0), len(rows)-1)]
	return v
}
