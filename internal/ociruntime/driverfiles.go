package ociruntime

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"tags.cncf.io/container-device-interface/pkg/cdi"
	cdispecs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/qgpu-project/qgpu/internal/userspace"
)

// driverFiles finds where a machine keeps NVIDIA's programs and libraries.
type driverFiles struct {
	cdiDirs []string // of CDI specifications
	libDirs []string // of libraries
	binDirs []string // of programs
}

// machineFiles are the usual places.
var machineFiles = driverFiles{
	cdiDirs: []string{"/etc/cdi", "/var/run/cdi"},
	libDirs: []string{"/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/lib/x86_64-linux-gnu/nvidia/current"},
	binDirs: []string{"/usr/bin", "/usr/local/bin"},
}

// find is how containers get NVIDIA's files of a driver version: from dir, where one is
// given; else as the node's CDI specification for NVIDIA's cards says; else one by one as
// they are installed on the machine.
func (f driverFiles) find(dir, version string) (func(*specs.Spec) error, error) {
	if dir != "" {
		return mountUserSpace(dir), nil
	}
	if os.Getenv(userspace.Variable) != "" {
		u, err := userspace.Find(version)
		if err != nil {
			return nil, err
		}
		return mountUserSpace(u.Dir), nil
	}
	edits, err := f.fromCDI()
	if edits != nil || err != nil {
		return edits, err
	}
	return f.installed(version)
}

// cdiKind is the kind of CDI devices that nvidia-ctk describes.
const cdiKind = "nvidia.com/gpu"

// fromCDI are the edits that go with any of NVIDIA's cards, without device nodes. It is
// nil if the node has no specification of them.
func (f driverFiles) fromCDI() (func(*specs.Spec) error, error) {
	for _, dir := range f.cdiDirs {
		entries, err := os.ReadDir(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("look for CDI specifications: %w", err)
		}
		for _, e := range entries {
			if ext := filepath.Ext(e.Name()); ext != ".json" && ext != ".yaml" {
				continue
			}
			spec, err := cdi.ReadSpec(filepath.Join(dir, e.Name()), 0)
			if err != nil || spec.Kind != cdiKind {
				continue // another device's, or damaged: it is not this program's to judge
			}
			common := &cdispecs.ContainerEdits{Env: spec.ContainerEdits.Env, Mounts: spec.ContainerEdits.Mounts, Hooks: spec.ContainerEdits.Hooks}
			return (&cdi.ContainerEdits{ContainerEdits: common}).Apply, nil
		}
	}
	return nil, nil
}

// installed mounts the libraries of a driver version and nvidia-smi from the machine's
// folders, each under all names by which programs load it.
func (f driverFiles) installed(version string) (func(*specs.Spec) error, error) {
	mounts := map[string]string{} // source by destination
	for _, dir := range f.libDirs {
		if err := addLibraries(mounts, dir, version); err != nil {
			return nil, err
		}
	}
	if _, ok := mounts[UserSpaceMount+"/lib/libcuda.so.1"]; !ok {
		return nil, fmt.Errorf("neither a CDI specification of %s (in %s) nor libcuda.so of driver %s (in %s) is on this machine: install NVIDIA's libraries, run nvidia-ctk cdi generate, or set \"userspace\" in %s",
			cdiKind, strings.Join(f.cdiDirs, ", "), version, strings.Join(f.libDirs, ", "), DefaultSettings)
	}
	for _, dir := range f.binDirs {
		if path := filepath.Join(dir, "nvidia-smi"); regular(path) {
			mounts[UserSpaceMount+"/bin/nvidia-smi"] = path
			break
		}
	}
	return func(spec *specs.Spec) error {
		for destination, source := range mounts {
			spec.Mounts = append(withoutMount(spec.Mounts, destination), specs.Mount{
				Destination: destination, Type: "bind", Source: source, Options: []string{"bind", "ro", "nosuid", "nodev"},
			})
		}
		slices.SortStableFunc(spec.Mounts, func(a, b specs.Mount) int {
			_, ours := mounts[a.Destination]
			if _, theirs := mounts[b.Destination]; !ours || !theirs {
				return 0
			}
			return strings.Compare(a.Destination, b.Destination)
		})
		spec.Process.Env = withUserSpace(spec.Process.Env)
		return nil
	}, nil
}

// addLibraries adds the libraries in dir whose name ends in version.
func addLibraries(mounts map[string]string, dir, version string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for NVIDIA's libraries: %w", err)
	}
	for _, e := range entries {
		name := e.Name()
		if !strings.HasPrefix(name, "libnvidia") && !strings.HasPrefix(name, "libcuda") && !strings.HasPrefix(name, "libnvcuvid") {
			continue
		}
		// A link, such as libcuda.so.1, leads to a file, such as libcuda.so.535.261.03.
		real, err := filepath.EvalSymlinks(filepath.Join(dir, name))
		if err != nil || !strings.HasSuffix(real, ".so."+version) {
			continue
		}
		if destination := UserSpaceMount + "/lib/" + name; mounts[destination] == "" {
			mounts[destination] = real
		}
	}
	return nil
}

func regular(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
