package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
)

// cgroups is a folder of our own in every cgroup hierarchy, of either version.
type cgroups struct {
	path  string   // below the hierarchies' roots
	roots []string // where they are mounted
}

const cgroupPrefix = "qgpu-sandbox-"

func makeCgroups() (*cgroups, error) {
	mounts, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup", "cgroup2"))
	if err != nil {
		return nil, fmt.Errorf("list cgroup hierarchies: %w", err)
	}
	c := &cgroups{path: "/" + cgroupPrefix + strconv.Itoa(os.Getpid())}
	for _, mount := range mounts {
		c.roots = append(c.roots, mount.Mountpoint)
		sweep(mount.Mountpoint)
		if err := makeCgroup(mount.Mountpoint, c.path); err != nil {
			return nil, errors.Join(err, c.remove())
		}
	}
	if len(c.roots) == 0 {
		return nil, errors.New("no cgroup hierarchy is mounted here")
	}
	return c, nil
}

// NewCgroup makes a cgroup below the sandbox's own, in every hierarchy, and returns its
// path. It goes with the sandbox. One that is there already stays.
func (s *Sandbox) NewCgroup(name string) (path string, err error) {
	mounts, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup", "cgroup2"))
	if err != nil {
		return "", fmt.Errorf("list cgroup hierarchies: %w", err)
	}
	path = s.Cgroup + "/" + name
	for _, mount := range mounts {
		if err := makeCgroup(mount.Mountpoint, path); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", err
		}
	}
	return path, nil
}

// makeCgroup makes a cgroup below the hierarchy mounted at root, with what its parent
// has: CPUs and memory nodes (version 1 begins with none), or controllers (version 2).
func makeCgroup(root, path string) error {
	dir := filepath.Join(root, path)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return fmt.Errorf("make a cgroup: %w", err)
	}
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		if err := inherit(dir, name); err != nil {
			return fmt.Errorf("set up cgroup %s: %w", dir, err)
		}
	}
	controllers, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // version 1
	}
	if err != nil {
		return err
	}
	for _, controller := range strings.Fields(string(controllers)) {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+controller), 0); err != nil {
			return fmt.Errorf("pass the controller %s on to children of %s: %w", controller, dir, err)
		}
	}
	return nil
}

// inherit copies a file of the parent's to dir where dir has it empty.
func inherit(dir, name string) error {
	own, err := os.ReadFile(filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) || err == nil && strings.TrimSpace(string(own)) != "" {
		return nil
	}
	if err != nil {
		return err
	}
	parents, err := os.ReadFile(filepath.Join(filepath.Dir(dir), name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the root of version 2, whose children need no value
	}
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name), parents, 0)
}

// sweep removes what sandboxes left that were killed outright. A cgroup with processes
// cannot be removed, so nothing that is in use goes.
func sweep(root string) {
	left, _ := filepath.Glob(filepath.Join(root, cgroupPrefix+"*"))
	for _, dir := range left {
		pid := strings.TrimPrefix(filepath.Base(dir), cgroupPrefix)
		if _, err := os.Stat(filepath.Join("/proc", pid)); errors.Is(err, fs.ErrNotExist) {
			removeTree(dir)
		}
	}
}

const removeTimeout = 10 * time.Second

// remove waits for the sandbox's last processes, which end with its process 1.
func (c *cgroups) remove() error {
	deadline := time.Now().Add(removeTimeout)
	for {
		var errs []error
		for _, root := range c.roots {
			errs = append(errs, removeTree(filepath.Join(root, c.path)))
		}
		err := errors.Join(errs...)
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// removeTree removes a cgroup and all below it.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.IsDir() {
			if err := removeTree(filepath.Join(dir, entry.Name())); err != nil {
				return err
			}
		}
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove a cgroup: %w", err)
	}
	return nil
}
