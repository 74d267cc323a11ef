// Package userspace finds NVIDIA's user-space programs and libraries that were
// fetched for a simulated driver, and puts them in a program's path. It knows
// folders and environment variables only.
package userspace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/qgpu-project/qgpu/internal/nvabi"
)

// Variable names a folder of user spaces to use before all others.
const Variable = "QGPU_NVIDIA_USERSPACE"

// UserSpace is NVIDIA's user space of one driver version.
type UserSpace struct {
	Dir     string
	Version nvabi.Version
}

// DefaultBranch is the driver branch used when none is asked for.
const DefaultBranch = "535"

// Find finds the user space of a driver version such as 535.261.03, or of a
// branch such as 535. An empty version means the default branch.
func Find(version string) (UserSpace, error) {
	if version == "" {
		version = DefaultBranch
	}
	branch, _, exact := strings.Cut(version, ".")
	var tried []string
	for _, root := range roots() {
		dir := filepath.Join(root, branch)
		tried = append(tried, dir)
		text, err := os.ReadFile(filepath.Join(dir, "VERSION"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return UserSpace{}, fmt.Errorf("read the user space's version: %w", err)
		}
		v, err := nvabi.ParseVersion(strings.TrimSpace(string(text)))
		if err != nil {
			return UserSpace{}, fmt.Errorf("%s: %w", filepath.Join(dir, "VERSION"), err)
		}
		if exact && v.String() != version {
			return UserSpace{}, fmt.Errorf("the user space in %s is of driver %s, not %s; ask for --driver-version %s or fetch the other", dir, v, version, v)
		}
		return UserSpace{Dir: dir, Version: v}, nil
	}
	return UserSpace{}, fmt.Errorf("NVIDIA's user space %s is not here (looked in %s); fetch it with: make nvidia-userspace",
		branch, strings.Join(tried, ", "))
}

func roots() []string {
	var dirs []string
	if dir := os.Getenv(Variable); dir != "" {
		dirs = append(dirs, dir)
	}
	if exe, err := os.Executable(); err == nil {
		dirs = append(dirs, filepath.Join(filepath.Dir(filepath.Dir(exe)), ".cache", "nvidia-userspace"))
	}
	return append(dirs, "/usr/lib/qgpu/nvidia-userspace")
}

// Environ returns env with u's programs and libraries first in their paths, unless they
// are in them already.
func (u UserSpace) Environ(env []string) []string {
	return prepend(prepend(env, "LD_LIBRARY_PATH", filepath.Join(u.Dir, "lib")), "PATH", filepath.Join(u.Dir, "bin"))
}

func prepend(env []string, name, dir string) []string {
	env = slices.Clone(env)
	for i, entry := range env {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			if slices.Contains(filepath.SplitList(value), dir) {
				return env // where its owner wants it
			}
			env[i] = name + "=" + strings.TrimSuffix(dir+":"+value, ":")
			return env
		}
	}
	if name == "PATH" {
		dir += ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	}
	return append(env, name+"="+dir)
}

// LookPath finds program in the PATH of env, as a shell would.
func LookPath(program string, env []string) (string, error) {
	if strings.Contains(program, "/") {
		return program, nil
	}
	for _, entry := range env {
		value, ok := strings.CutPrefix(entry, "PATH=")
		if !ok {
			continue
		}
		for _, dir := range filepath.SplitList(value) {
			path := filepath.Join(dir, program)
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
				return path, nil
			}
		}
	}
	return "", fmt.Errorf("%s: no such program in PATH", program)
}
