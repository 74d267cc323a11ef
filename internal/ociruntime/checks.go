package ociruntime

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// forbidden are capabilities of a tenant that would undo what the filter does.
var forbidden = []struct {
	name, why string
	hostPIDs  bool // only where the container has the machine's process ids
}{
	{name: "CAP_SYS_ADMIN", why: "NVIDIA's driver treats it as its administrator"},
	{name: "CAP_SYS_MODULE", why: "it can replace the driver"},
	{name: "CAP_SYS_RAWIO", why: "it can reach the card's registers and memory past the driver"},
	{name: "CAP_SYS_PTRACE", why: "with the machine's process ids it can take over the processes that hold its card", hostPIDs: true},
}

// checkCapabilities refuses a process that may have a capability which undoes the filter.
func checkCapabilities(names []string, hostPIDs bool) error {
	for _, f := range forbidden {
		if slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, f.name) }) && (!f.hostPIDs || hostPIDs) {
			return fmt.Errorf("the container may have %s, and a container with a share of a card may not: %s; run it without privileges and without that capability", f.name, f.why)
		}
	}
	return nil
}

// capabilitiesOf are all that c lists, in any set.
func capabilitiesOf(c *specs.LinuxCapabilities) []string {
	if c == nil {
		return nil
	}
	return slices.Concat(c.Bounding, c.Effective, c.Inheritable, c.Permitted, c.Ambient)
}

// checker refuses bundles whose containers could reach a card past their share.
type checker struct {
	private []string // folders of the machine whose content no tenant may see
	majors  []int64  // of NVIDIA's devices
}

// check reports the first thing of a bundle, whose root file system is at root, that
// would undo what the filter does.
func (c checker) check(spec *specs.Spec, root string) error {
	if spec.Process == nil || spec.Linux == nil {
		return errors.New("the bundle describes no process on Linux")
	}
	if err := checkCapabilities(capabilitiesOf(spec.Process.Capabilities), sharesPIDs(spec.Linux)); err != nil {
		return err
	}
	if err := checkProfile(spec.Linux.Seccomp); err != nil {
		return err
	}
	if path, ok := c.exposed(root); ok {
		return fmt.Errorf("the container's root file system is %s and holds %s, through which it could change its own share", root, path)
	}
	for _, m := range spec.Mounts {
		if !isBind(m) {
			continue
		}
		if path, ok := c.exposed(m.Source); ok {
			return fmt.Errorf("the container mounts %s, which holds %s, through which it could change its own share; mount less of the machine", m.Source, path)
		}
	}
	return c.checkDevices(spec.Linux)
}

// sharesPIDs reports whether a container has the machine's process ids.
func sharesPIDs(l *specs.Linux) bool {
	return !slices.ContainsFunc(l.Namespaces, func(n specs.LinuxNamespace) bool { return n.Type == specs.PIDNamespace && n.Path != "/proc/1/ns/pid" })
}

// checkProfile refuses a seccomp profile with a listener of its own: a thread has one
// listener.
func checkProfile(p *specs.LinuxSeccomp) error {
	if p == nil {
		return nil
	}
	notifies := p.DefaultAction == specs.ActNotify || slices.ContainsFunc(p.Syscalls, func(s specs.LinuxSyscall) bool { return s.Action == specs.ActNotify })
	if p.ListenerPath != "" || notifies {
		return errors.New("the container's seccomp profile has a listener of its own (SCMP_ACT_NOTIFY), and Linux lets a program have one, which qgpu needs; use a profile without")
	}
	return nil
}

func isBind(m specs.Mount) bool {
	return m.Type == "bind" || slices.Contains(m.Options, "bind") || slices.Contains(m.Options, "rbind")
}

// exposed is the private folder that source, mounted into a container, would show.
func (c checker) exposed(source string) (string, bool) {
	source = resolved(source)
	for _, private := range c.private {
		private = resolved(private)
		if within(private, source) || within(source, private) {
			return private, true
		}
	}
	return "", false
}

// resolved is path without links, as far as it exists.
func resolved(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return filepath.Clean(path)
}

// within reports whether path is dir or below it.
func within(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}
