package pacer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/qgpu-project/qgpu/internal/share"
)

// Entry is what a pacer tells the others of its card.
type Entry struct {
	ID     string      `json:"id"`
	Class  share.Class `json:"class,omitempty"`
	Core   int         `json:"core"` // percent of this card
	Groups int         `json:"groups"`
}

// board is a card's folder, with a file for each tenant that is paced there. A pacer holds
// its file's lock as long as it lives; a file whose lock is free is stale.
type board struct {
	dir  string
	id   string
	file *os.File
	last Entry
}

// unknown is the core of a tenant whose mediator has not told it yet.
const unknown = -1

// entrySize is what an entry is filled up to with spaces, so that each is written, and
// read, as a whole.
const entrySize = 512

// join puts a tenant on the board in dir.
func join(dir, id string) (*board, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the card's board: %w", err)
	}
	// Under another name until it is locked, so that nobody takes it for stale.
	path := filepath.Join(dir, "."+id)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("join the card's board: %w", err)
	}
	b := &board{dir: dir, id: id, file: f}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock the entry on the card's board: %w", err)
	}
	if err = b.post(Entry{ID: id, Core: unknown}); err == nil {
		err = os.Rename(path, filepath.Join(dir, id))
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("join the card's board: %w", err)
	}
	return b, nil
}

// Close takes the tenant off the board.
func (b *board) Close() error {
	err := os.Remove(filepath.Join(b.dir, b.id))
	return errors.Join(err, b.file.Close())
}

// post tells the others what the tenant is now.
func (b *board) post(e Entry) error {
	if e == b.last {
		return nil
	}
	data, err := json.Marshal(e)
	if err != nil {
		return err
	}
	if len(data) > entrySize {
		return fmt.Errorf("the entry of tenant %s is too long for the card's board", b.id)
	}
	padded := append(data, strings.Repeat(" ", entrySize-len(data))...)
	if _, err := b.file.WriteAt(padded, 0); err != nil {
		return fmt.Errorf("write on the card's board: %w", err)
	}
	b.last = e
	return nil
}

// others are the entries of the card's other tenants, by id.
func (b *board) others() ([]Entry, error) {
	names, err := os.ReadDir(b.dir)
	if err != nil {
		return nil, fmt.Errorf("read the card's board: %w", err)
	}
	var list []Entry
	for _, n := range names {
		if n.Name() == b.id || strings.HasPrefix(n.Name(), ".") {
			continue
		}
		e, ok, err := readEntry(filepath.Join(b.dir, n.Name()))
		if err != nil {
			return nil, err
		}
		if ok && e.ID == n.Name() && e.Core != unknown {
			list = append(list, e)
		}
	}
	slices.SortFunc(list, func(a, b Entry) int { return strings.Compare(a.ID, b.ID) })
	return list, nil
}

// readEntry reads an entry. It removes a stale one, and is then false.
func readEntry(path string) (e Entry, ok bool, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return e, false, nil
	}
	if err != nil {
		return e, false, fmt.Errorf("read the card's board: %w", err)
	}
	defer f.Close()
	if unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) == nil {
		os.Remove(path)
		return e, false, nil
	}
	data := make([]byte, entrySize)
	if _, err := f.ReadAt(data, 0); err != nil {
		return e, false, nil // being made
	}
	if err := json.Unmarshal(data, &e); err != nil {
		return e, false, fmt.Errorf("%s on the card's board is damaged: %w", filepath.Base(path), err)
	}
	return e, true, nil
}

// watch calls changed whenever the board is another, until ctx ends. A pacer that is
// killed closes its file, which shows, too.
func (b *board) watch(ctx context.Context, changed func()) error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return fmt.Errorf("watch the card's board: %w", err)
	}
	f := os.NewFile(uintptr(fd), "board")
	const events = unix.IN_MODIFY | unix.IN_MOVED_TO | unix.IN_DELETE | unix.IN_CLOSE_WRITE
	if _, err := unix.InotifyAddWatch(fd, b.dir, events); err != nil {
		f.Close()
		return fmt.Errorf("watch the card's board: %w", err)
	}
	context.AfterFunc(ctx, func() { f.Close() })
	go func() {
		buf := make([]byte, 16<<10)
		for {
			if _, err := f.Read(buf); err != nil {
				return
			}
			changed()
		}
	}()
	return nil
}
