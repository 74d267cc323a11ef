// Package nodeinstall puts qgpu-runtime on a node: the program, its settings, and
// drop-ins that make it a runtime handler of containerd and CRI-O. It owns the text of
// these files and how they are replaced; it restarts nothing and asks no cluster.
package nodeinstall

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"

	"github.com/qgpu-project/qgpu/internal/ociruntime/engineconf"
)

// Settings is what qgpu-runtime reads on the node (ociruntime.Settings, whose packages
// this one does without). Empty fields are left as the node has them, or to its defaults.
type Settings struct {
	StateDir  string `json:"stateDir,omitempty"`
	SimDir    string `json:"simDir,omitempty"`
	Driver    string `json:"driver,omitempty"` // "kernel" or "simulated"
	Runc      string `json:"runc,omitempty"`   // path or name of the runc behind it
	Userspace string `json:"userspace,omitempty"`
}

// settingsPath is where it reads them.
const settingsPath = "/etc/qgpu/runtime.json"

// Plan says what to put where. All paths but Programs are the node's.
type Plan struct {
	Root       string   // where the node's file system is seen; "/" on the node itself
	InstallDir string   // programs go to bin/ below it
	Programs   []string // files to copy, as this process sees them
	Settings   Settings
	Handler    string // of the RuntimeClass
	// Configure writes the drop-ins, SystemdCgroup as the kubelet's cgroup driver.
	Configure     bool
	SystemdCgroup bool
}

// Apply does what p says and returns the node's files that it changed. Files that are
// as they should be are left alone, so that a second call changes nothing. A file is
// replaced as a whole or not at all, also a program that runs.
func (p Plan) Apply() ([]string, error) {
	if !filepath.IsAbs(p.InstallDir) || p.Handler == "" {
		return nil, fmt.Errorf("install to %q as handler %q: give an absolute folder and a name", p.InstallDir, p.Handler)
	}
	var changed []string
	put := func(path string, content []byte, mode fs.FileMode) error {
		done, err := replace(filepath.Join(p.Root, path), content, mode)
		if err != nil {
			return fmt.Errorf("write %s on the node: %w", path, err)
		}
		if done {
			changed = append(changed, path)
		}
		return nil
	}
	for _, program := range p.Programs {
		content, err := os.ReadFile(program)
		if err != nil {
			return changed, fmt.Errorf("read the program to install: %w", err)
		}
		if err := put(filepath.Join(p.InstallDir, "bin", filepath.Base(program)), content, 0o755); err != nil {
			return changed, err
		}
	}
	settings, err := p.settings()
	if err != nil {
		return changed, fmt.Errorf("settings of qgpu-runtime: %w", err)
	}
	if err := put(settingsPath, settings, 0o644); err != nil {
		return changed, err
	}
	if !p.Configure {
		return changed, nil
	}
	for _, dropin := range []struct {
		path string
		text func() ([]byte, error)
	}{
		{engineconf.Containerd.File, p.containerd},
		{engineconf.CRIO.File, p.crio},
	} {
		text, err := dropin.text()
		if err == nil {
			err = put(dropin.path, text, 0o644)
		}
		if err != nil {
			return changed, err
		}
	}
	return changed, nil
}

// settings is the settings file as it is to be: with what the node's has besides.
func (p Plan) settings() ([]byte, error) {
	all := map[string]any{}
	current, err := os.ReadFile(filepath.Join(p.Root, settingsPath))
	if err == nil {
		err = json.Unmarshal(current, &all)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	ours, err := json.Marshal(p.Settings)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(ours, &all); err != nil {
		return nil, err
	}
	text, err := json.MarshalIndent(all, "", "  ")
	return append(text, '\n'), err
}

// replace makes the file at path hold content, and reports whether it did not before.
func replace(path string, content []byte, mode fs.FileMode) (bool, error) {
	same, err := holds(path, content, mode)
	if same || err != nil {
		return false, err
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return false, err
	}
	// Not renameio.WriteFile: it would keep the mode of a file that is there.
	f, err := renameio.NewPendingFile(path, renameio.WithTempDir(dir), renameio.WithStaticPermissions(mode))
	if err != nil {
		return false, err
	}
	defer f.Cleanup()
	if _, err := f.Write(content); err != nil {
		return false, err
	}
	return true, f.CloseAtomicallyReplace()
}

func holds(path string, content []byte, mode fs.FileMode) (bool, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() != int64(len(content)) || info.Mode().Perm() != mode {
		return false, err
	}
	is, err := io.ReadAll(f)
	return bytes.Equal(is, content), err
}
