// Package isolation tries every path by which a CUDA program takes a card's
// memory: does it work within a quota, does it fail as CUDA's own out-of-memory
// beyond it, does what is freed come back? It is a CUDA program's side of the
// question and knows nothing of how a quota is enforced.
package isolation

import (
	"errors"
	"fmt"

	"github.com/qgpu-project/qgpu/internal/cuda"
)

// Env is a CUDA context to allocate in.
type Env struct {
	Lib    *cuda.Library
	Device cuda.Device
	Stream cuda.Stream
}

// Path is a way to take memory.
type Path struct {
	Name string
	// Host: the memory is the host's, which no card's quota limits.
	Host bool
	// Refusal is the CUDA error for want of memory: ErrOutOfMemory if 0.
	Refusal cuda.Result
	// take takes about size bytes; release gives them back.
	take func(e Env, size uint64) (release func() error, err error)
}

// Trial is what happened to one path.
type Trial struct {
	Path string `json:"path"`
	// Within: taking a part of the quota worked, and the memory held what was
	// copied to it where the path has an address.
	Within bool `json:"within"`
	// Over: taking more than the quota failed with the path's Refusal, after Taken
	// bytes. Always true of host memory, where nothing is tried.
	Over    bool   `json:"over"`
	Taken   uint64 `json:"taken"`
	Refusal string `json:"refusal,omitempty"`
	// Leaked is how much less memory is free after everything was released.
	Leaked int64  `json:"leaked"`
	Error  string `json:"error,omitempty"`
}

// Try tries p in e: with within bytes, then in steps of as much until it fails or
// limit bytes are taken, which is more than the quota, then with within bytes again.
// It does so twice: what CUDA sets up or keeps for a path the first time is no leak.
func Try(e Env, p Path, within, limit uint64) Trial {
	t := Trial{Path: p.Name}
	if t.Error = t.round(e, p, within, limit); t.Error != "" {
		return t
	}
	before, _, err1 := e.Lib.MemoryInfo()
	t.Error = t.round(e, p, within, limit)
	after, _, err2 := e.Lib.MemoryInfo()
	if err := errors.Join(err1, err2); err != nil {
		t.Error = err.Error()
	}
	t.Leaked = int64(before) - int64(after)
	return t
}

// round tries p once, and returns what went wrong in words.
func (t *Trial) round(e Env, p Path, within, limit uint64) string {
	t.Within, t.Over = false, p.Host
	if err := once(e, p, within); err != nil {
		return fmt.Sprintf("within the quota: %v", err)
	}
	t.Within = true
	if !p.Host {
		var err error
		t.Taken, err = exhaust(e, p, within, limit)
		t.Refusal = p.refusal().Error()
		t.Over = errors.Is(err, p.refusal())
		if !t.Over {
			return fmt.Sprintf("over the quota: %v", err)
		}
	}
	if err := once(e, p, within); err != nil {
		return fmt.Sprintf("within the quota, after it was exhausted: %v", err)
	}
	return ""
}

func (p Path) refusal() cuda.Result {
	if p.Refusal != 0 {
		return p.Refusal
	}
	return cuda.ErrOutOfMemory
}

func once(e Env, p Path, size uint64) error {
	release, err := p.take(e, size)
	if err != nil {
		return err
	}
	return release()
}

// errNoLimit says that a path gave more than there is.
var errNoLimit = errors.New("it never failed")

// exhaust takes step bytes again and again, until it fails or limit is reached,
// and gives everything back.
func exhaust(e Env, p Path, step, limit uint64) (taken uint64, err error) {
	var releases []func() error
	defer func() {
		for _, release := range releases {
			if releaseErr := release(); releaseErr != nil && errors.Is(err, p.refusal()) {
				err = fmt.Errorf("release: %w", releaseErr)
			}
		}
	}()
	for taken = 0; taken < limit; taken += step {
		release, err := p.take(e, step)
		if err != nil {
			return taken, err
		}
		releases = append(releases, release)
	}
	return taken, errNoLimit
}
