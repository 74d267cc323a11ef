package seccomp

import "testing"

const testThread = 7

// pending fails the test if turn has come, whatever it is.
func pending(t *testing.T, turn <-chan bool) {
	t.Helper()
	select {
	case v := <-turn:
		t.Fatalf("the turn came too early: %v", v)
	default:
	}
}

// came fails the test if turn has not come, or not as wanted.
func came(t *testing.T, turn <-chan bool, want bool) {
	t.Helper()
	select {
	case got := <-turn:
		if got != want {
			t.Fatalf("the turn came as %v, want %v", got, want)
		}
	default:
		t.Fatal("the turn did not come")
	}
}

func TestTurns(t *testing.T) {
	ts := turns{byThread: make(map[int]*turn)}
	var first, interrupted, repeated, other worker
	if ts.enter(&first, testThread) != nil {
		t.Fatal("the first call has to wait")
	}
	ts.record(&first, testThread)
	if ts.enter(&other, testThread+1) != nil {
		t.Error("another thread's call has to wait")
	}
	a := ts.enter(&interrupted, testThread)
	ts.record(&interrupted, testThread) // slow too, by waiting
	pending(t, a)
	b := ts.enter(&repeated, testThread)
	came(t, a, false)
	ts.finish(&interrupted, testThread) // not the owner: changes nothing
	pending(t, b)
	ts.finish(&first, testThread)
	came(t, b, true)
	ts.finish(&first, testThread) // a second time: changes nothing
	c := ts.enter(&first, testThread)
	pending(t, c)
	ts.finish(&repeated, testThread)
	came(t, c, true)
	ts.finish(&first, testThread)
	if n := ts.recorded.Load(); n != 0 || len(ts.byThread) != 0 {
		t.Errorf("%d threads are still on record (%d)", n, len(ts.byThread))
	}
}

func TestThreadsWithoutNumberDoNotWait(t *testing.T) {
	ts := turns{byThread: make(map[int]*turn)}
	var a, b worker
	ts.record(&a, 0)
	ts.record(&a, testThread)
	if ts.enter(&b, 0) != nil {
		t.Error("a call of one unknown thread waits for another's")
	}
}
