package engine

import (
	"log/slog"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// TestBellIsAlwaysHeard rings after each change of a number, from two goroutines, and
// each time waits until the change has been seen by who waits for the bell without end.
func TestBellIsAlwaysHeard(t *testing.T) {
	b := newBell(slog.New(slog.DiscardHandler))
	const ringers, rings = 2, 10_000
	var number, seen atomic.Uint32
	heard := make(chan struct{})
	go func() {
		for seen.Load() != ringers*rings {
			b.wait(-1)
			seen.Store(number.Load())
		}
		close(heard)
	}()
	for range ringers {
		go func() {
			for range rings {
				n := number.Add(1)
				b.ring()
				for begin := time.Now(); seen.Load() < n && time.Since(begin) < time.Minute; {
					runtime.Gosched()
				}
			}
		}()
	}
	select {
	case <-heard:
		b.close()
	case <-time.After(time.Minute):
		t.Fatal("the last ring was not heard")
	}
}
