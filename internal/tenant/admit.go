package tenant

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/qgpu-project/qgpu/internal/placement"
)

// Admission is a tenant that has its place but does not run yet.
type Admission struct {
	Tenant Tenant
	// Lock, Control and Join go to the mediator: the tenant lives while Lock is open,
	// Control listens on its control socket. Join, which only a container has, listens
	// where processes that are executed in it later are handed over.
	Lock    *os.File
	Control *os.File
	Join    *os.File
	Dir     string
}

// Close gives up this process's part of the admission. Unless a mediator holds
// the lock, the tenant's place is free again.
func (a *Admission) Close() {
	for _, f := range []*os.File{a.Lock, a.Control, a.Join} {
		if f != nil {
			f.Close()
		}
	}
}

// Admit places t on one of cards, atomically among all who admit, and makes its
// folder, which the tenant's mediator will own. cards say what they have; what
// living tenants hold is taken from that. Admit chooses t's Placement and UID, and its
// Policy if that is empty: the one by which its cards are shared already.
func (r *Registry) Admit(ctx context.Context, t Tenant, cards []placement.Card) (*Admission, error) {
	return r.admit(ctx, t, func(living []Tenant) ([]placement.Slice, error) {
		agree, err := agreeing(cards, living, t.Policy)
		if err != nil {
			return nil, err
		}
		return placement.LeastLoaded(WithTenants(agree, living), t.Share)
	})
}

// AdmitAt admits t on the slices of its Placement, which somebody else chose. They must
// be what t's share asks for, on cards that are among cards and have the room: what
// living tenants hold is never given a second time. [ErrNoRoom] is in the error if
// room may come when tenants end.
func (r *Registry) AdmitAt(ctx context.Context, t Tenant, cards []placement.Card) (*Admission, error) {
	return r.admit(ctx, t, func(living []Tenant) ([]placement.Slice, error) {
		return placedAt(t, living, cards)
	})
}

// ErrNoRoom says that a placement's cards are taken by living tenants at present.
var ErrNoRoom = errors.New("the placement's card has no room")

// placedAt is t's placement as its cards have it, which are known by their UUIDs alone.
func placedAt(t Tenant, living []Tenant, cards []placement.Card) ([]placement.Slice, error) {
	if len(t.Placement) != t.Share.Cards() {
		return nil, fmt.Errorf("the placement is on %d card(s), and core %d lies on %d", len(t.Placement), t.Share.Core, t.Share.Cards())
	}
	free, part := WithTenants(cards, living), t.Share.PerCard()
	var placed []placement.Slice
	for _, s := range t.Placement {
		at := slices.IndexFunc(free, func(c placement.Card) bool { return c.UUID == s.UUID })
		if at < 0 {
			return nil, fmt.Errorf("the placement is on card %s, and this machine has none such; it has %s", s.UUID, uuids(cards))
		}
		own := free[at].Quota(part)
		switch {
		case slices.ContainsFunc(placed, func(other placement.Slice) bool { return other.UUID == s.UUID }):
			return nil, fmt.Errorf("the placement is on card %s twice", s.UUID)
		case s.Core != own.Core || s.Memory != own.Memory && !t.Share.WholeCards():
			return nil, fmt.Errorf("the placement has core %d and %v on card %s, and the share asks for core %d and %v", s.Core, s.Memory, s.UUID, own.Core, own.Memory)
		}
		if err := free[at].Fit(part); err != nil {
			return nil, fmt.Errorf("%w: card %d %w", ErrNoRoom, own.Index, err)
		}
		if p, ids := policyOf(s.UUID, living); len(ids) > 0 && t.Policy != "" && p != t.Policy {
			return nil, fmt.Errorf("%w: card %d is shared by %s, by tenant %s, and not by %s", ErrNoRoom, own.Index, p, strings.Join(ids, ", "), t.Policy)
		}
		placed = append(placed, own)
	}
	return placed, nil
}

func uuids(cards []placement.Card) string {
	var all []string
	for _, c := range cards {
		all = append(all, c.UUID)
	}
	return strings.Join(all, ", ")
}

// admit sweeps, has t placed among the living, and makes its folder.
func (r *Registry) admit(ctx context.Context, t Tenant, place func(living []Tenant) ([]placement.Slice, error)) (*Admission, error) {
	if err := validID(t.ID); err != nil {
		return nil, err
	}
	unlock, err := r.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := r.sweep(); err != nil {
		return nil, err
	}
	living, err := r.List()
	if err != nil {
		return nil, err
	}
	if t.Placement, err = place(living); err != nil {
		return nil, err
	}
	if t.Policy, err = settle(t.Placement, living, t.Policy); err != nil {
		return nil, err
	}
	t.UID = freeUID(living)
	return r.create(t)
}

// maxID is the most bytes of a tenant's id.
const maxID = 128

// validID refuses what cannot be the name of a folder.
func validID(id string) error {
	if id == "" || len(id) > maxID || id[0] == '.' || strings.ContainsAny(id, "/\x00") {
		return fmt.Errorf("%.*q cannot be a tenant's id: it takes 1 to %d characters, no slash, and no dot at its beginning", maxID, id, maxID)
	}
	return nil
}

// firstUID begins a range of user ids that distributions and container runtimes
// leave alone (systemd's UID ranges end at 1879048191).
const firstUID = 2_000_000_000

// freeUID is the lowest user id that no living tenant's mediator has.
func freeUID(living []Tenant) int {
	for uid := firstUID; ; uid++ {
		if !slices.ContainsFunc(living, func(t Tenant) bool { return t.UID == uid }) {
			return uid
		}
	}
}

// WithTenants returns cards with what tenants hold of them taken.
func WithTenants(cards []placement.Card, tenants []Tenant) []placement.Card {
	cards = slices.Clone(cards)
	for _, t := range tenants {
		for _, slice := range t.Placement {
			for i := range cards {
				if cards[i].UUID == slice.UUID {
					cards[i].Take(slice)
				}
			}
		}
	}
	return cards
}

func (r *Registry) create(t Tenant) (a *Admission, err error) {
	dir := r.path(t.ID)
	if err := os.Mkdir(dir, 0o700); errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("there is a tenant %s already", t.ID)
	} else if err != nil {
		return nil, fmt.Errorf("make the tenant's folder: %w", err)
	}
	a = &Admission{Tenant: t, Dir: dir}
	defer func() {
		if err != nil {
			a.Close()
			os.RemoveAll(dir)
		}
	}()
	if a.Lock, err = lockedFile(filepath.Join(dir, lockFile)); err != nil {
		return nil, fmt.Errorf("lock the tenant's folder: %w", err)
	}
	if a.Control, err = listen(dir, controlFile); err != nil {
		return nil, fmt.Errorf("listen on the tenant's control socket: %w", err)
	}
	if t.Container {
		if a.Join, err = listen(dir, joinFile); err != nil {
			return nil, fmt.Errorf("listen for processes of the container: %w", err)
		}
	}
	if err := r.rewrite(t); err != nil {
		return nil, err
	}
	if err := os.Chown(dir, t.UID, t.UID); err != nil {
		return nil, fmt.Errorf("give the tenant's folder to its mediator: %w", err)
	}
	return a, nil
}

// lockedFile makes a file that is locked from the moment at which it is seen: whoever lists
// tenants tries the locks, for a moment each.
func lockedFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path+".new", os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
