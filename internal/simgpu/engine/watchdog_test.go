package engine

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

// logged is a card with one channel and what it logs.
func logged(t *testing.T) (*bench, *client, *bytes.Buffer) {
	var log bytes.Buffer
	b := newBench(t, Config{Log: slog.New(slog.NewTextHandler(&log, nil))})
	return b, newClient(t, b.card, b.card.NewGroup("one"), nil), &log
}

func TestWatchdogNamesStuckChannel(t *testing.T) {
	b, c, log := logged(t)
	c.setWord(testData+0x40, 7)
	c.semAcquire(testData+0x40, 9, 2)
	c.submit()
	b.pass(4_000_000_000)
	if log.Len() != 0 {
		t.Fatalf("after 4 s it says %q", log)
	}
	b.pass(9_000_000_000)
	if n := strings.Count(log.String(), "\n"); n != 1 {
		t.Errorf("it speaks %d times of one wait", n)
	}
	for _, want := range []string{"stuck", "address=0x3000000040", `expected=">= 0x9"`, "found=0x7"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("%q does not say %s", log, want)
		}
	}
}

func TestWatchdogNamesUnknownMethods(t *testing.T) {
	b, c, log := logged(t)
	c.bind(1, 0xc5c0)
	for range 5 {
		c.method(1, 0x0f00, 0x1234)
		c.method(1, 0x1550, 1) // SET_RENDER_ENABLE_A is known and does nothing
		c.method(0, 0xf0, 1)
	}
	c.submit()
	b.turn()
	if n := strings.Count(log.String(), "\n"); n != 2 {
		t.Errorf("%d lines for two methods:\n%s", n, log)
	}
	for _, want := range []string{"class=compute method=0x0f00 value=0x1234", "class=host method=0x00f0"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("%q does not say %s", log, want)
		}
	}
}

func TestLogCannotBeFlooded(t *testing.T) {
	b, c, log := logged(t)
	c.bind(1, 0xc5c0)
	for m := range uint32(400) {
		c.method(1, 0x600+4*(m%64), 1)
		c.method(1, 0x800+4*m%0x500, 1)
	}
	c.submit()
	b.pass(10_000_000)
	if n := strings.Count(log.String(), "\n"); n > burst+1 {
		t.Errorf("%d lines were logged within one second, want %d at most", n, burst+1)
	}
}
