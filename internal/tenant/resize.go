package tenant

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/google/renameio/v2"

	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/share"
)

// Resizer is a mediator that can change its tenant's share. It refuses less memory than
// is in use.
type Resizer interface {
	Resize(share.Share) error
}

// Resize gives the running tenant id another share of the cards that it is on: other core
// or other memory. cards say what the machine's cards have. The tenant's mediator obeys
// at once, or refuses, and then nothing has changed.
func (r *Registry) Resize(ctx context.Context, id string, s share.Share, cards []placement.Card) (Tenant, error) {
	unlock, err := r.lock(ctx)
	if err != nil {
		return Tenant{}, err
	}
	defer unlock()
	t, err := r.Get(id)
	if err != nil {
		return t, err
	}
	living, err := r.List()
	if err != nil {
		return t, err
	}
	others := slices.DeleteFunc(living, func(other Tenant) bool { return other.ID == t.ID })
	if t.Placement, err = resized(t, s, WithTenants(cards, others)); err != nil {
		return t, err
	}
	t.Share = s
	if _, err := r.ask(ctx, t.ID, request{Op: opResize, Share: &s}); err != nil {
		return t, err
	}
	return t, r.rewrite(t)
}

// resized is how t's placement is with another share, on cards with what others hold
// taken.
func resized(t Tenant, s share.Share, cards []placement.Card) ([]placement.Slice, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	if t.Share.WholeCards() || s.WholeCards() {
		return nil, errors.New("a tenant of whole cards has no limits that could be changed, and a running tenant cannot become one; start it anew")
	}
	if s.Cards() != len(t.Placement) {
		return nil, fmt.Errorf("core %d lies on %d card(s) and the tenant is on %d, which cannot change while it runs", s.Core, s.Cards(), len(t.Placement))
	}
	part := s.PerCard()
	placed := slices.Clone(t.Placement)
	for i := range placed {
		at := slices.IndexFunc(cards, func(c placement.Card) bool { return c.UUID == placed[i].UUID })
		if at < 0 {
			return nil, fmt.Errorf("card %s of the tenant is gone", placed[i].UUID)
		}
		if err := cards[at].Fit(part); err != nil {
			return nil, fmt.Errorf("card %d, without this tenant, %w", cards[at].Index, err)
		}
		placed[i] = cards[at].Quota(part)
	}
	return placed, nil
}

// rewrite writes a tenant's record, whole or not at all.
func (r *Registry) rewrite(t Tenant) error {
	data, err := json.Marshal(t)
	if err != nil {
		return err
	}
	// The folder is the mediator's: a link that it put there is not followed.
	path := filepath.Join(r.path(t.ID), recordFile)
	if err := renameio.WriteFile(path, data, 0o644, renameio.WithTempDir(filepath.Dir(path))); err != nil {
		return fmt.Errorf("write the tenant's record: %w", err)
	}
	return nil
}

// ask asks the mediator of tenant id.
func (r *Registry) ask(ctx context.Context, id string, req request) (reply, error) {
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	conn, err := dial(ctx, r.path(id), controlFile)
	if err != nil {
		return reply{}, fmt.Errorf("ask tenant %s's mediator: %w", id, err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(controlTimeout))
	if err := json.NewEncoder(conn).Encode(req); err != nil {
		return reply{}, fmt.Errorf("ask tenant %s's mediator: %w", id, err)
	}
	out, err := readLine[reply](conn)
	switch {
	case err != nil:
		return reply{}, fmt.Errorf("tenant %s's mediator did not answer: %w", id, err)
	case out.Error != "":
		return reply{}, fmt.Errorf("tenant %s's mediator refused: %s", id, out.Error)
	}
	return out, nil
}

// resize answers opResize.
func resize(s Stater, to *share.Share) error {
	r, ok := s.(Resizer)
	if !ok || to == nil {
		return errors.New("this mediator cannot change its tenant's share")
	}
	return r.Resize(*to)
}
