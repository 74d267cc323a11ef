package ociruntime

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/qgpu-project/qgpu/internal/userspace"
)

// UserSpaceMount is where containers find NVIDIA's programs and libraries, unless CDI
// says otherwise. NVIDIA's images have its bin and lib in their paths already.
const UserSpaceMount = "/usr/local/nvidia"

// additions are what a tenant's container gets besides what its bundle says.
type additions struct {
	nodes  map[string]string       // device nodes: where each is, by its path in the container
	files  func(*specs.Spec) error // adds NVIDIA's programs and libraries
	hooks  map[string]specs.Hook   // by the name of their stage
	majors []int64                 // of NVIDIA's devices
	notes  map[string]string       // annotations
}

// edit makes spec that of a tenant.
func edit(spec *specs.Spec, a additions) error {
	if err := a.files(spec); err != nil {
		return err
	}
	for _, path := range slices.Sorted(maps.Keys(a.nodes)) {
		// A node on a mount without devices can be seen and not be opened: that is the
		// mediator's part, whatever the container's rights are.
		spec.Mounts = append(spec.Mounts, specs.Mount{
			Destination: path, Type: "bind", Source: a.nodes[path], Options: []string{"bind", "nosuid", "nodev", "noexec"},
		})
	}
	spec.Linux.Devices = slices.DeleteFunc(spec.Linux.Devices, func(d specs.LinuxDevice) bool {
		return isNVIDIA(d.Path) || slices.Contains(a.majors, d.Major)
	})
	if spec.Linux.Resources == nil {
		spec.Linux.Resources = &specs.LinuxResources{}
	}
	spec.Linux.Resources.Devices = denied(spec.Linux.Resources.Devices, a.majors)
	// NVIDIA's own runtime hooks, where they are installed for all containers, would give
	// the container cards of their choice.
	spec.Process.Env = setenv(spec.Process.Env, "NVIDIA_VISIBLE_DEVICES", "void")
	if spec.Hooks == nil {
		spec.Hooks = &specs.Hooks{}
	}
	spec.Hooks.CreateRuntime = append(spec.Hooks.CreateRuntime, a.hooks[stageRuntime])
	spec.Hooks.CreateContainer = append(spec.Hooks.CreateContainer, a.hooks[stageContainer])
	if spec.Annotations == nil {
		spec.Annotations = map[string]string{}
	}
	for name, value := range a.notes {
		spec.Annotations[name] = value
	}
	return nil
}

// Stages of hooks (OCI runtime specification, "POSIX-platform Hooks").
const (
	stageRuntime   = "createRuntime"
	stageContainer = "createContainer"
)

// undo takes out what an edit for an earlier run added, whose nodes' sources are own, and
// what others added of NVIDIA's device files.
func undo(spec *specs.Spec, own func(source string) bool) {
	spec.Mounts = slices.DeleteFunc(spec.Mounts, func(m specs.Mount) bool {
		return isNVIDIA(m.Destination) || isBind(m) && own(m.Source)
	})
	if spec.Hooks == nil {
		return
	}
	ours := func(h specs.Hook) bool { return len(h.Args) > 1 && h.Args[0] == hookName && h.Args[1] == "hook" }
	spec.Hooks.CreateRuntime = slices.DeleteFunc(spec.Hooks.CreateRuntime, ours)
	spec.Hooks.CreateContainer = slices.DeleteFunc(spec.Hooks.CreateContainer, ours)
}

func isNVIDIA(path string) bool { return strings.HasPrefix(filepath.Clean(path), "/dev/nvidia") }

// mountUserSpace adds the folder dir with NVIDIA's programs and libraries.
func mountUserSpace(dir string) func(*specs.Spec) error {
	return func(spec *specs.Spec) error {
		spec.Mounts = append(withoutMount(spec.Mounts, UserSpaceMount), specs.Mount{
			Destination: UserSpaceMount, Type: "bind", Source: dir, Options: []string{"rbind", "ro", "nosuid", "nodev"},
		})
		spec.Process.Env = withUserSpace(spec.Process.Env)
		return nil
	}
}

// withUserSpace puts NVIDIA's programs and libraries first in the paths of env.
func withUserSpace(env []string) []string {
	return userspace.UserSpace{Dir: UserSpaceMount}.Environ(env)
}

func withoutMount(mounts []specs.Mount, destination string) []specs.Mount {
	return slices.DeleteFunc(mounts, func(m specs.Mount) bool { return filepath.Clean(m.Destination) == destination })
}

// setenv is env with name set to value.
func setenv(env []string, name, value string) []string {
	env = slices.DeleteFunc(slices.Clone(env), func(e string) bool { return strings.HasPrefix(e, name+"=") })
	return append(env, name+"="+value)
}
