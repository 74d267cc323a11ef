package placement

import (
	"errors"
	"fmt"
	"slices"

	"github.com/qgpu-project/qgpu/internal/share"
)

// MaxTenants is the most tenants that share one card.
const MaxTenants = 16

// Card is a card with what is taken of it.
type Card struct {
	Index     int          // the card's minor number
	UUID      string       // as NVIDIA writes it: GPU-…
	Model     string       // as NVML names it
	Unhealthy string       // why nothing may be placed on it; empty: it is healthy
	Memory    share.Memory // what tenants can have in all
	Taken     share.Memory // of Memory, by tenants' quotas
	Core      int          // percent taken by the cores of tenants that are not offline
	Tenants   int
	Online    int  // of Tenants
	Offline   int  // of Tenants
	Whole     bool // taken as a whole by one tenant
}

// Slice is the part of a share that lies on one card.
type Slice struct {
	Index int    `json:"index"`
	UUID  string `json:"uuid"`
	// Core is percent of the card. An offline tenant's is the most that it may
	// use of what is idle: it reserves nothing.
	Core   int          `json:"core"`
	Memory share.Memory `json:"memory"` // the quota
	Class  share.Class  `json:"class,omitempty"`
}

// Free is what tenants can still have of c's memory.
func (c Card) Free() share.Memory {
	if c.Whole {
		return 0
	}
	return max(0, c.Memory-c.Taken)
}

// Fit reports why the one-card share s does not fit on c, or nil.
func (c Card) Fit(s share.Share) error {
	switch {
	case c.Unhealthy != "":
		return fmt.Errorf("is unhealthy: %s", c.Unhealthy)
	case c.Whole:
		return errors.New("is taken as a whole")
	case s.WholeCards() && c.Tenants > 0:
		return fmt.Errorf("has %d tenant(s), and a whole card is asked for", c.Tenants)
	case s.Memory > c.Free():
		return fmt.Errorf("has %v of %v free, and %v is asked for", c.Free(), c.Memory, s.Memory)
	case c.Core+reserved(s) > share.Whole:
		return fmt.Errorf("has %d %% of core free, and %d %% is asked for", share.Whole-c.Core, s.Core)
	case c.Tenants >= MaxTenants:
		return fmt.Errorf("has %d tenants, the most that share a card", c.Tenants)
	}
	return nil
}

// reserved is the core that the one-card share s keeps others from having.
func reserved(s share.Share) int {
	if s.Class == share.Offline {
		return 0
	}
	return s.Core
}

// Quota is how the one-card share s lies on c.
func (c Card) Quota(s share.Share) Slice {
	slice := Slice{Index: c.Index, UUID: c.UUID, Core: s.Core, Memory: s.Memory, Class: s.Class}
	if s.WholeCards() {
		slice.Memory = c.Memory
	}
	return slice
}

// slice is how one card's part of k's share lies on c.
func (c *Card) slice(k *Container) Slice {
	s := c.Quota(k.Share.PerCard())
	if k.Proportional && s.Core < share.Whole {
		s.Memory = c.Memory * share.Memory(s.Core) / share.Whole / share.MiB * share.MiB
	}
	return s
}

// Take adds slice to what is taken of c.
func (c *Card) Take(slice Slice) { c.add(c.use(slice)) }

// use is what slice, which lies on c, takes of it.
func (c *Card) use(slice Slice) Use {
	u := Use{
		Memory:  slice.Memory,
		Core:    reserved(share.Share{Core: slice.Core, Class: slice.Class}),
		Tenants: 1,
	}
	switch slice.Class {
	case share.Online:
		u.Online = 1
	case share.Offline:
		u.Offline = 1
	default:
		u.Whole = slice.Core == share.Whole && slice.Memory == c.Memory
	}
	return u
}

// part is what one card's part of k's share would take of c.
func (c *Card) part(k *Container) Use { return c.use(c.slice(k)) }

// Use is what tenants take of one card.
type Use struct {
	Memory                   share.Memory
	Core                     int // percent
	Tenants, Online, Offline int
	Whole                    bool
}

func (u *Use) add(v Use) {
	u.Memory += v.Memory
	u.Core += v.Core
	u.Tenants += v.Tenants
	u.Online += v.Online
	u.Offline += v.Offline
	u.Whole = u.Whole || v.Whole
}

// peak is the use that has room for u and for v, when they are not at one time.
func peak(u, v Use) Use {
	return Use{
		Memory:  max(u.Memory, v.Memory),
		Core:    max(u.Core, v.Core),
		Tenants: max(u.Tenants, v.Tenants),
		Online:  max(u.Online, v.Online),
		Offline: max(u.Offline, v.Offline),
		Whole:   u.Whole || v.Whole,
	}
}

// joins reports whether v may begin while u runs on the same card.
func (u *Use) joins(v Use) bool { return !u.Whole && (!v.Whole || u.Tenants == 0) }

// holds reports whether c has room for u beside what is taken.
func (c *Card) holds(u Use) bool {
	return c.Unhealthy == "" && !c.Whole && (!u.Whole || c.Tenants == 0) &&
		c.Taken+u.Memory <= c.Memory && c.Core+u.Core <= share.Whole && c.Tenants+u.Tenants <= MaxTenants
}

func (c *Card) add(u Use) {
	c.Taken += u.Memory
	c.Core += u.Core
	c.Tenants += u.Tenants
	c.Online += u.Online
	c.Offline += u.Offline
	c.Whole = c.Whole || u.Whole
}

func (c *Card) remove(u Use) {
	c.Taken -= u.Memory
	c.Core -= u.Core
	c.Tenants -= u.Tenants
	c.Online -= u.Online
	c.Offline -= u.Offline
	c.Whole = c.Whole && !u.Whole
}

// alike reports whether a request finds no difference between c and d, whatever it is.
func (c *Card) alike(d *Card) bool {
	return c.Memory == d.Memory && c.Taken == d.Taken && c.Core == d.Core && c.Tenants == d.Tenants &&
		c.Online == d.Online && c.Offline == d.Offline && c.Whole == d.Whole &&
		(c.Unhealthy == "") == (d.Unhealthy == "") && c.Model == d.Model
}

// serves reports whether c is of one of models; no models means any.
func (c *Card) serves(models []string) bool {
	return len(models) == 0 || slices.Contains(models, c.Model)
}
