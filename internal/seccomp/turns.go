package seccomp

import (
	"sync"
	"sync/atomic"
)

// turns keeps the calls of one thread in order. A thread waits for one answer at
// a time; but a signal may interrupt the wait while the call is still being
// handled, and the thread then comes with its next call, often the same once
// more. That call has to wait until the first has been handled and its loss
// observed, or the handler could not know that it is a repetition.
//
// Only calls handled by workers that are no longer the leader are on record:
// while the leader handles a call nobody receives another.
type turns struct {
	recorded atomic.Int32 // len(byThread), for the common case of 0

	mu       sync.Mutex
	byThread map[int]*turn
}

// turn is a thread's call that is being handled, and the one that waits for it.
type turn struct {
	owner *worker
	next  *worker
	ready chan bool // of next: whether it now is the owner, or superseded
}

// record notes that w's call of a thread, slow by now, is being handled. If the
// thread is on record already, w is its owner or next.
func (t *turns) record(w *worker, thread int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.byThread[thread]; ok || thread == 0 {
		return // 0 stands for every thread that is in no pid namespace of ours
	}
	t.byThread[thread] = &turn{owner: w}
	t.recorded.Store(int32(len(t.byThread)))
}

// await returns when no other call of the thread is being handled. It is false
// when yet another call of the thread came meanwhile: w's is gone then.
func (t *turns) await(w *worker, thread int) bool {
	if t.recorded.Load() == 0 {
		return true
	}
	t.mu.Lock()
	current, ok := t.byThread[thread]
	if !ok {
		t.mu.Unlock()
		return true
	}
	if current.next != nil {
		current.ready <- false
	}
	ready := make(chan bool, 1)
	current.next, current.ready = w, ready
	t.mu.Unlock()
	return <-ready
}

// finish lets the thread's next call be handled, when w's was on record.
func (t *turns) finish(w *worker, thread int) {
	if t.recorded.Load() == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	current, ok := t.byThread[thread]
	if !ok || current.owner != w {
		return
	}
	if current.next != nil {
		current.owner, current.next = current.next, nil
		current.ready <- true
		return
	}
	delete(t.byThread, thread)
	t.recorded.Store(int32(len(t.byThread)))
}
