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

// enter queues w's call, just received, behind the thread's call that is being
// handled. The result is nil when there is none; else it yields true when it is
// w's turn, or false when yet another call of the thread came: w's is gone then.
// It is called by the leader, before it can lose the lead: in order of arrival.
func (t *turns) enter(w *worker, thread int) <-chan bool {
	if t.recorded.Load() == 0 {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	current, ok := t.byThread[thread]
	if !ok {
		return nil
	}
	if current.next != nil {
		current.ready <- false
	}
	current.next, current.ready = w, make(chan bool, 1)
	return current.ready
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
