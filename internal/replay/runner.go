package replay

import (
	"context"
	"runtime"
	"sync"
)

// Job is one run to make.
type Job struct {
	Trace    *Trace
	Policy   string
	Seed     int64
	Protocol Protocol
}

// Protocol plays a trace under a policy. Equal seeds give equal arrivals to all
// policies, and equal runs.
type Protocol interface {
	Run(t *Trace, policy string, seed int64) *Run
}

// RunAll makes runs of jobs, as many at a time as there are processors, and returns
// them in the order of jobs. done, which may be nil, is called after each.
func RunAll(ctx context.Context, jobs []Job, done func(Job, *Run)) ([]*Run, error) {
	runs := make([]*Run, len(jobs))
	next := make(chan int)
	var wait sync.WaitGroup
	var mu sync.Mutex
	for range runtime.GOMAXPROCS(0) {
		wait.Go(func() {
			for i := range next {
				j := jobs[i]
				runs[i] = j.Protocol.Run(j.Trace, j.Policy, j.Seed)
				if done != nil {
					mu.Lock()
					done(j, runs[i])
					mu.Unlock()
				}
			}
		})
	}
	err := feed(ctx, len(jobs), next)
	close(next)
	wait.Wait()
	return runs, err
}

func feed(ctx context.Context, n int, next chan<- int) error {
	for i := range n {
		select {
		case next <- i:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
