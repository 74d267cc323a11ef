package ociruntime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/qgpu-project/qgpu/internal/devfs"
	"github.com/qgpu-project/qgpu/internal/tenant"
)

// hookName is how this program is called as a hook.
const hookName = "qgpu-runtime"

// view is what a container sees of the driver's files in /proc and /sys, where a
// runtime mounts nothing itself.
type view struct {
	Root  string            `json:"root"`  // of the container's file system, in the machine's
	Files map[string][]byte `json:"files"` // content by path
	Hide  []string          `json:"hide"`  // paths
}

// hooks are the calls of this program, whose path is self, that a container's runtime
// makes: one to tell the registry in stateDir the first process, one to show the driver's
// files.
func hooks(self, stateDir, root string, v devfs.View) (map[string]specs.Hook, error) {
	shown := view{Root: root, Files: map[string][]byte{}, Hide: v.Hide}
	for path, content := range v.Files {
		shown.Files[path] = []byte(content)
	}
	text, err := json.Marshal(shown)
	if err != nil {
		return nil, err
	}
	timeout := 60 // seconds
	return map[string]specs.Hook{
		stageRuntime:   {Path: self, Args: []string{hookName, "hook", "adopt", stateDir}, Timeout: &timeout},
		stageContainer: {Path: self, Args: []string{hookName, "hook", "view", string(text)}, Timeout: &timeout},
	}, nil
}

// maxState bounds what a runtime tells a hook, in bytes.
const maxState = 1 << 20

// Adopt is the hook in the machine's namespaces: it records the first process of the
// container that the runtime describes on stdin.
func Adopt(ctx context.Context, stdin io.Reader, stateDir string) error {
	state, err := readState(stdin)
	if err != nil {
		return err
	}
	return tenant.At(stateDir).Adopt(ctx, state.ID, state.Pid)
}

func readState(r io.Reader) (specs.State, error) {
	var s specs.State
	text, err := io.ReadAll(io.LimitReader(r, maxState))
	if err != nil {
		return s, fmt.Errorf("read the container's state: %w", err)
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return s, fmt.Errorf("the container's state is damaged: %w", err)
	}
	if s.ID == "" || s.Pid <= 0 {
		return s, errors.New("the container's state names no process")
	}
	return s, nil
}

// Show is the hook in the container's namespaces, before its root becomes the only one: it
// puts the driver's files into the container's /proc and /sys. The program that set is for
// comes later; the container's own /dev serves as a place for mount points until then.
func Show(text string) error {
	var v view
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		return fmt.Errorf("the view is damaged: %w", err)
	}
	shown := devfs.View{Files: map[string]string{}}
	for _, place := range []struct {
		dir   string
		magic int64
	}{{"/proc", unix.PROC_SUPER_MAGIC}, {"/sys", unix.SYSFS_MAGIC}} {
		// An image may have anything at these paths; only the kernel's own are covered.
		if !isFileSystem(filepath.Join(v.Root, place.dir), place.magic) {
			continue
		}
		below := func(path string) bool { return strings.HasPrefix(path, place.dir+"/") }
		for path, content := range v.Files {
			if below(path) {
				shown.Files[path] = string(content)
			}
		}
		shown.Hide = append(shown.Hide, slices.DeleteFunc(slices.Clone(v.Hide), func(p string) bool { return !below(p) })...)
	}
	if len(shown.Files) == 0 && len(shown.Hide) == 0 {
		return nil
	}
	dev := filepath.Join(v.Root, "dev")
	if !isFileSystem(dev, unix.TMPFS_MAGIC) {
		return errors.New("the container's /dev is no tmpfs; qgpu needs one, as container engines mount it")
	}
	shown.Scratch = dev
	return shown.Below(v.Root).Mount()
}

func isFileSystem(path string, magic int64) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && st.Type == magic
}
