package tenant

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// An outsider is a container without a share that is beside a tenant, in its pod: it must
// not use what the tenant may pass it. The registry knows its id alone, for the processes
// that are executed in it later.

func (r *Registry) outsider(id string) string { return filepath.Join(r.dir, "outsiders", id) }

// NoteOutsider records that container id is an outsider. Again it changes nothing.
func (r *Registry) NoteOutsider(id string) error {
	if err := validID(id); err != nil {
		return err
	}
	path := r.outsider(id)
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, nil, 0o600)
	}
	if err != nil {
		return fmt.Errorf("record container %s: %w", id, err)
	}
	return nil
}

// IsOutsider reports whether container id is on record as an outsider.
func (r *Registry) IsOutsider(id string) bool {
	return validID(id) == nil && unix.Access(r.outsider(id), unix.F_OK) == nil
}

// ForgetOutsider removes what NoteOutsider recorded, if it did.
func (r *Registry) ForgetOutsider(id string) error {
	if err := os.Remove(r.outsider(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget container %s: %w", id, err)
	}
	return nil
}
