package tenant

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Find is the living tenant whose whole id is id, if there is one.
func (r *Registry) Find(id string) (Tenant, bool, error) {
	if validID(id) != nil {
		return Tenant{}, false, nil
	}
	t, err := r.read(id)
	if errors.Is(err, errStale) {
		return Tenant{}, false, nil
	}
	return t, err == nil, err
}

// Adopt records that pid is the first process of tenant id: while it lives the
// tenant's place stays taken, whatever becomes of its mediator.
func (r *Registry) Adopt(ctx context.Context, id string, pid int) error {
	started, err := StartTime(pid)
	if err != nil {
		return fmt.Errorf("record the first process of tenant %s: %w", id, err)
	}
	unlock, err := r.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	t, ok, err := r.Find(id)
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("record the first process of tenant %s: it has ended", id)
	}
	t.PID, t.Started = pid, started
	return r.rewrite(t)
}

// Sweep waits at most for patience until tenant id has ended, and removes its folder.
// If it has not ended by then, whoever admits next will sweep it.
func (r *Registry) Sweep(ctx context.Context, id string, patience time.Duration) error {
	for deadline := time.Now().Add(patience); ; {
		ended, err := r.sweepOne(ctx, id)
		if err != nil || ended || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// sweepOne removes the folder of tenant id if it has ended, and reports whether it has.
func (r *Registry) sweepOne(ctx context.Context, id string) (bool, error) {
	if !r.Has(id) {
		return true, nil
	}
	unlock, err := r.lock(ctx)
	if err != nil {
		return false, err
	}
	defer unlock()
	if _, err := r.read(id); !errors.Is(err, errStale) {
		return false, err
	}
	return true, r.remove(id)
}

// Has reports whether id has a folder, as a tenant that lives or that is not swept yet.
func (r *Registry) Has(id string) bool {
	return validID(id) == nil && unix.Access(r.path(id), unix.F_OK) == nil
}
