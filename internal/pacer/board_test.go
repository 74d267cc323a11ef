package pacer

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/qgpu-project/qgpu/internal/share"
)

func joined(t *testing.T, dir, id string) *board {
	t.Helper()
	b, err := join(dir, id)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestBoard(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "GPU-0")
	a, b := joined(t, dir, "a"), joined(t, dir, "b")
	defer a.Close()
	others := func() []Entry {
		t.Helper()
		list, err := a.others()
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	if list := others(); len(list) != 0 {
		t.Errorf("a tenant that is not known yet is on the board: %v", list)
	}
	want := Entry{ID: "b", Class: share.Offline, Core: 30, Groups: 2}
	if err := b.post(want); err != nil {
		t.Fatal(err)
	}
	if list := others(); !slices.Equal(list, []Entry{want}) {
		t.Errorf("the board has %v, want %v", list, want)
	}
	b.file.Close() // as when its process is killed
	if list := others(); len(list) != 0 {
		t.Errorf("a tenant without a pacer is on the board: %v", list)
	}
	if _, err := os.Stat(filepath.Join(dir, "b")); !os.IsNotExist(err) {
		t.Errorf("its entry is not swept: %v", err)
	}
	b = joined(t, dir, "b")
	if err := b.post(want); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if list := others(); len(list) != 0 {
		t.Errorf("a tenant that left is on the board: %v", list)
	}
}

func TestDamagedEntry(t *testing.T) {
	dir := t.TempDir()
	a, b := joined(t, dir, "a"), joined(t, dir, "b")
	defer a.Close()
	defer b.Close()
	if _, err := b.file.WriteAt([]byte("no entry"), 0); err != nil {
		t.Fatal(err)
	}
	if list, err := a.others(); err == nil {
		t.Errorf("a damaged entry is read as %v", list)
	}
}

func TestBoardIsWatched(t *testing.T) {
	dir := t.TempDir()
	a := joined(t, dir, "a")
	defer a.Close()
	changes := make(chan struct{}, 100)
	if err := a.watch(t.Context(), func() { changes <- struct{}{} }); err != nil {
		t.Fatal(err)
	}
	changed := func(what string) {
		t.Helper()
		select {
		case <-changes:
		case <-time.After(time.Minute):
			t.Fatalf("nobody is told that %s", what)
		}
		for len(changes) > 0 {
			<-changes
		}
	}
	b := joined(t, dir, "b")
	changed("a tenant joined")
	if err := b.post(Entry{ID: "b", Core: 5}); err != nil {
		t.Fatal(err)
	}
	changed("a tenant's share is another")
	b.file.Close()
	changed("a pacer was killed")
}
