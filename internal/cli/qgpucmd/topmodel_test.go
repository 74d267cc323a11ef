package qgpucmd

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
)

// newTestModel is a model that was told the sample frame.
func newTestModel(t *testing.T) topModel {
	t.Helper()
	read := func(context.Context) (frame, error) { return sampleFrame(), nil }
	m := newTopModel(t.Context(), read, time.Millisecond)
	return told(t, m, m.Init()())
}

func told(t *testing.T, m topModel, msgs ...tea.Msg) topModel {
	t.Helper()
	for _, msg := range msgs {
		next, _ := m.Update(msg)
		m = next.(topModel)
	}
	return m
}

func key(s string) tea.Msg {
	switch s {
	case "up":
		return tea.KeyPressMsg{Code: tea.KeyUp}
	case "down":
		return tea.KeyPressMsg{Code: tea.KeyDown}
	}
	return tea.KeyPressMsg{Code: rune(s[0]), Text: s}
}

func TestSelect(t *testing.T) {
	// By memory the tenants stand as b, a, c.
	m := newTestModel(t)
	for _, step := range []struct{ key, want string }{
		{"", "b"}, {"up", "b"}, {"down", "a"}, {"j", "c"}, {"j", "c"}, {"k", "a"}, {"up", "b"},
	} {
		if step.key != "" {
			m = told(t, m, key(step.key))
		}
		if got := m.view.selected.tenant; got == "" || got[:1] != step.want {
			t.Errorf("after %q: %s is selected, want %s", step.key, got, step.want)
		}
	}
}

func TestSelectionStaysWithItsTenant(t *testing.T) {
	m := told(t, newTestModel(t), key("down"), key("s"), key("s"))
	if got := m.view.selected.tenant; got != "aaaaaaaaaaaa" || m.view.rows()[0].tenant != got {
		t.Errorf("by id: %s is selected, rows are %v", got, m.view.rows())
	}
	gone := sampleFrame()
	gone.cards[0].tenants = gone.cards[0].tenants[1:]
	if m = told(t, m, reading{frame: gone}); m.view.selected.tenant != "bbbbbbbbbbbb" {
		t.Errorf("after it ended: %s is selected", m.view.selected.tenant)
	}
	if m = told(t, m, reading{frame: frame{}}); m.view.selected != (row{}) {
		t.Errorf("nobody is left and %v is selected", m.view.selected)
	}
}

func TestSort(t *testing.T) {
	f := sampleFrame()
	for o, want := range map[order]string{byMemory: "bac", byCompute: "bac", byID: "abc"} {
		got := ""
		for _, tenant := range o.sorted(f.cards[0].tenants) {
			got += tenant.id[:1]
		}
		if got != want {
			t.Errorf("by %s: %s, want %s", o, got, want)
		}
	}
	m := newTestModel(t)
	for _, want := range []order{byCompute, byID, byMemory} {
		if m = told(t, m, key("s")); m.view.order != want {
			t.Errorf("sorted by %s, want %s", m.view.order, want)
		}
	}
}

func TestHistoryIsBounded(t *testing.T) {
	m := newTestModel(t)
	for i := range 3 * historyLength {
		f := sampleFrame()
		f.cards[0].busy = p(float64(i))
		m = told(t, m, reading{frame: f})
	}
	h := m.view.history["GPU-a"]
	if len(h) != historyLength || *h[len(h)-1] != 3*historyLength-1 || *h[0] != 2*historyLength {
		t.Errorf("%d readings, from %v to %v", len(h), *h[0], *h[len(h)-1])
	}
	f := sampleFrame()
	f.cards = f.cards[1:]
	if m = told(t, m, reading{frame: f}); len(m.view.history) != 1 {
		t.Errorf("the history of a card that is gone is kept: %d cards", len(m.view.history))
	}
}

func TestFailedReadingKeepsTheFrame(t *testing.T) {
	failure := errors.New("the disk is gone")
	m := told(t, newTestModel(t), reading{err: failure})
	if m.view.err != failure || len(m.view.frame.cards) != 2 {
		t.Errorf("error %v, %d cards", m.view.err, len(m.view.frame.cards))
	}
	if m = told(t, m, reading{frame: sampleFrame()}); m.view.err != nil {
		t.Errorf("the error stays: %v", m.view.err)
	}
}

func TestReadAgainOnlyAfterAReading(t *testing.T) {
	m := newTestModel(t)
	_, next := m.Update(reading{frame: sampleFrame()})
	if next == nil || next() != (due{}) {
		t.Fatal("nothing is due after a reading")
	}
	if _, next = m.Update(due{}); next == nil {
		t.Fatal("nothing is read though it is due")
	}
	if r, ok := next().(reading); !ok || len(r.frame.cards) != 2 {
		t.Errorf("read %+v", r)
	}
	if _, next = m.Update(key("j")); next != nil {
		t.Error("a key has something read")
	}
}

func TestResizeAndQuit(t *testing.T) {
	m := told(t, newTestModel(t), tea.WindowSizeMsg{Width: 33, Height: 7})
	if m.view.width != 33 || m.view.height != 7 {
		t.Errorf("%d×%d", m.view.width, m.view.height)
	}
	for _, msg := range []tea.Msg{key("q"), tea.KeyPressMsg{Code: 'c', Mod: tea.ModCtrl}} {
		_, cmd := m.Update(msg)
		if cmd == nil || cmd() != tea.Quit() {
			t.Errorf("%v does not quit", msg)
		}
	}
	if !slices.Contains([]rune(m.view.String()), '…') {
		t.Error("nothing is cut in 33 columns")
	}
}
