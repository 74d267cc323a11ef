// Package devfs gives a process its own view of /dev and /proc: the device nodes
// and driver files of its cards, and none of other cards. It knows mounts, not
// drivers: what to show is data.
//
// Every folder that changes is covered by a small tmpfs in which everything else
// is bound from the folder below. The tmpfs is mounted nodev, so the nodes in it
// can be seen and stat-ed but never opened: opening them is the mediator's part.
package devfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Node is a character device node to show.
type Node struct {
	Path  string `json:"path"` // absolute
	Major uint32 `json:"major"`
	Minor uint32 `json:"minor"`
}

// View is what a process is to see beside what is there.
type View struct {
	Nodes []Node
	Files map[string]string // absolute path to content; replaces a file of that path
	// Hide are paths that are not shown; a trailing * matches the rest of the name.
	Hide []string
	// Empty are folders whose content is not shown.
	Empty []string
	// Scratch is a folder for mount points while Enter works; empty: the system's
	// for temporary files. Enter leaves nothing there, unless it is killed.
	Scratch string
}

// Enter moves the calling thread, which must be locked, into a mount namespace
// of its own with the view v. Only that thread and what it executes see it. It
// needs CAP_SYS_ADMIN.
func Enter(v View) error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make a mount namespace: %w", err)
	}
	// Mounts made here must not appear outside; those made outside may appear here.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("separate the mount namespace: %w", err)
	}
	return v.Mount()
}

// Below is v for a file system whose root is at dir.
func (v View) Below(dir string) View {
	below := View{Files: make(map[string]string, len(v.Files)), Scratch: v.Scratch}
	for _, n := range v.Nodes {
		n.Path = filepath.Join(dir, n.Path)
		below.Nodes = append(below.Nodes, n)
	}
	for path, content := range v.Files {
		below.Files[filepath.Join(dir, path)] = content
	}
	for _, path := range v.Hide {
		below.Hide = append(below.Hide, filepath.Join(dir, path))
	}
	for _, path := range v.Empty {
		below.Empty = append(below.Empty, filepath.Join(dir, path))
	}
	return below
}

// Mount puts v in place in the calling thread's mount namespace, which must be one
// that no other program sees. It needs CAP_SYS_ADMIN there.
func (v View) Mount() error {
	for _, dir := range v.covered() {
		if err := v.cover(dir); err != nil {
			return fmt.Errorf("show devices in %s: %w", dir, err)
		}
	}
	for _, dir := range v.Empty {
		err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0700,size=4k")
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("hide %s: %w", dir, err)
		}
	}
	return nil
}

// covered lists the existing folders that need a cover, outermost first.
func (v View) covered() []string {
	var dirs []string
	add := func(path string) {
		dir := filepath.Dir(path)
		for {
			if info, err := os.Lstat(dir); err == nil && info.IsDir() {
				break
			}
			dir = filepath.Dir(dir)
		}
		dirs = append(dirs, dir)
	}
	for _, n := range v.Nodes {
		add(n.Path)
	}
	for path := range v.Files {
		if _, err := os.Lstat(path); err != nil {
			add(path)
		}
	}
	for _, path := range v.Hide {
		add(path)
	}
	slices.Sort(dirs)
	dirs = slices.Compact(dirs)
	if len(v.Files) > 0 {
		dirs = append(dirs, "") // single files are bound last
	}
	return dirs
}

// cover puts v's part of dir in place.
func (v View) cover(dir string) error {
	if dir == "" {
		return v.bindFiles()
	}
	cover, err := os.MkdirTemp(v.Scratch, "view-")
	if err != nil {
		return err
	}
	defer os.Remove(cover)
	if err := unix.Mount("tmpfs", cover, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size=1m"); err != nil {
		return fmt.Errorf("mount a tmpfs: %w", err)
	}
	err = errors.Join(v.bindRest(dir, cover), v.addNodes(dir, cover), v.addFiles(dir, cover))
	if err == nil {
		err = unix.Mount(cover, dir, "", unix.MS_MOVE, "")
	}
	if err != nil {
		unix.Unmount(cover, unix.MNT_DETACH)
	}
	return err
}

// bindRest shows in cover what dir has and v does not change.
func (v View) bindRest(dir, cover string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		from, to := filepath.Join(dir, e.Name()), filepath.Join(cover, e.Name())
		if v.changes(from) {
			continue
		}
		if err := bind(from, to, e.Type()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("keep %s: %w", from, err)
		}
	}
	return nil
}

func bind(from, to string, mode fs.FileMode) error {
	switch {
	case mode&fs.ModeSymlink != 0:
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(target, to)
	case mode.IsDir():
		if err := os.Mkdir(to, 0o755); err != nil {
			return err
		}
	default:
		f, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		f.Close()
	}
	return unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, "")
}

func (v View) changes(path string) bool {
	if slices.ContainsFunc(v.Nodes, func(n Node) bool { return n.Path == path }) {
		return true
	}
	if _, ok := v.Files[path]; ok {
		return true
	}
	return slices.ContainsFunc(v.Hide, func(pattern string) bool {
		prefix, wild := strings.CutSuffix(pattern, "*")
		return path == pattern || wild && strings.HasPrefix(path, prefix)
	})
}

func (v View) addNodes(dir, cover string) error {
	for _, n := range v.Nodes {
		rel, ok := strings.CutPrefix(n.Path, dir+"/")
		if !ok {
			continue
		}
		to := filepath.Join(cover, rel)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		const mode = 0o666
		if err := unix.Mknod(to, unix.S_IFCHR|mode, int(unix.Mkdev(n.Major, n.Minor))); err != nil {
			return fmt.Errorf("make node %s: %w", n.Path, err)
		}
		if err := os.Chmod(to, mode); err != nil { // past the umask
			return err
		}
	}
	return nil
}

func (v View) addFiles(dir, cover string) error {
	for path, content := range v.Files {
		rel, ok := strings.CutPrefix(path, dir+"/")
		if !ok {
			continue
		}
		if _, err := os.Lstat(path); err == nil {
			continue // bindFiles does it
		}
		to := filepath.Join(cover, rel)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(to, []byte(content), 0o444); err != nil {
			return err
		}
	}
	return nil
}

// bindFiles puts files in place of existing ones.
func (v View) bindFiles() error {
	for path, content := range v.Files {
		if current, err := os.ReadFile(path); err != nil || string(current) == content {
			continue // a cover has it already
		}
		f, err := os.CreateTemp(v.Scratch, "view-")
		if err != nil {
			return err
		}
		name := f.Name()
		_, err = f.WriteString(content)
		err = errors.Join(err, f.Chmod(0o444), f.Close())
		if err == nil {
			err = unix.Mount(name, path, "", unix.MS_BIND, "")
		}
		os.Remove(name)
		if err != nil {
			return fmt.Errorf("replace %s: %w", path, err)
		}
	}
	return nil
}

// Do runs f on a thread of its own that has entered v, and ends the thread.
func Do(v View, f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := Enter(v)
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}
