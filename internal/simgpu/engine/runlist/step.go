package runlist

import "slices"

// Next is the time of the next change that Step would make: the end of a job, of a
// slice or of a context switch; [Never] if nothing has work.
func (r *Runlist) Next() uint64 {
	r.dispatch()
	if r.running == nil {
		return Never
	}
	if r.loss > 0 {
		return r.now + r.loss
	}
	return r.now + min(r.running.next().left, r.left)
}

// Step runs the engine until a job is done, and returns that job, or until time to,
// and returns nil. What follows a job in its own group or in another starts no sooner
// than the next call, so that the caller may submit more at the very time of its end.
func (r *Runlist) Step(to uint64) *Job {
	for {
		r.dispatch()
		if r.running == nil {
			if to > r.now {
				r.idle += to - r.now
				r.now = to
			}
			return nil
		}
		if to <= r.now {
			return nil
		}
		if r.loss > 0 {
			t := min(r.loss, to-r.now)
			r.loss -= t
			r.switched += t
			r.now += t
			continue
		}
		if j := r.run(min(to-r.now, r.left)); j != nil {
			return j
		}
	}
}

// run gives the running group's first job at most limit ns, and returns it if it is
// done then.
func (r *Runlist) run(limit uint64) *Job {
	g := r.running
	j := g.next()
	t := min(j.left, limit)
	from := r.now
	r.now += t
	r.left -= t
	j.left -= t
	j.ran += t
	g.used += t
	if r.account != nil {
		r.account(g, from, r.now)
	}
	if j.left > 0 {
		return nil
	}
	r.Cancel(j)
	return j
}

// dispatch decides who has the engine now.
func (r *Runlist) dispatch() {
	if g := r.running; g != nil {
		j := g.next()
		if j != nil && (r.left > 0 || r.loss > 0) {
			return
		}
		if j != nil {
			if !r.contended() {
				r.left, r.overrun = g.slice, false
				return
			}
			if q := r.costs.Quantum; q > 1 && j.ran%q != 0 && !r.overrun {
				r.left, r.overrun = q-j.ran%q, true
				return
			}
		}
		r.leave(j)
	}
	r.enter()
}

// leave takes the engine from the running group, whose job j is interrupted if it has
// begun.
func (r *Runlist) leave(j *Job) {
	r.position = r.index(r.running)
	r.running = nil
	r.loss = 0
	r.overrun = false
	if j != nil && j.ran > 0 {
		r.loss = r.costs.Preempt
	}
}

// enter gives the engine to the next group in rotation that has work.
func (r *Runlist) enter() {
	n := len(r.groups)
	for i := range n {
		k := (r.position + 1 + i) % n
		g := r.groups[k]
		if g.next() == nil {
			continue
		}
		r.running, r.left, r.overrun = g, g.slice, false
		if g == r.loaded {
			r.loss = 0
			return
		}
		r.loaded = g
		r.loss += r.costs.Switch
		return
	}
	r.loss = 0
}

// contended tells whether a group other than the running one has work.
func (r *Runlist) contended() bool {
	for _, g := range r.groups {
		if g != r.running && g.next() != nil {
			return true
		}
	}
	return false
}

func (r *Runlist) index(g *Group) int { return slices.Index(r.groups, g) }
