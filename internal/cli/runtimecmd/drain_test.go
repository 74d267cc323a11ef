package runtimecmd

import (
	"context"
	"errors"
	"log/slog"
	"testing"
)

// counts answers with each of its counts in turn, and then with an error.
type counts [][]uint64

var errNoDriver = errors.New("no driver")

func (c *counts) Counted() ([]uint64, error) {
	if len(*c) == 0 {
		return nil, errNoDriver
	}
	first := (*c)[0]
	*c = (*c)[1:]
	return first, nil
}

func TestDrain(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	for _, c := range []struct {
		name   string
		ctx    context.Context
		counts counts
		want   error
		left   int
	}{
		{"nothing is held", t.Context(), counts{{0, 0}, {1}}, nil, 1},
		{"memory comes back", t.Context(), counts{{0, 5}, {3, 0}, {0, 0}, {1}}, nil, 1},
		{"the driver is gone", t.Context(), counts{{5}}, errNoDriver, 0},
		{"told to end", ended, counts{{5}, {5}}, context.Canceled, 1},
	} {
		err := drain(c.ctx, &c.counts, slog.New(slog.DiscardHandler))
		if !errors.Is(err, c.want) || len(c.counts) != c.left {
			t.Errorf("%s: %v with %d counts left, want %v with %d", c.name, err, len(c.counts), c.want, c.left)
		}
	}
}
