package ociruntime

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"

	"github.com/qgpu-project/qgpu/internal/launch"
	"github.com/qgpu-project/qgpu/internal/tenant"
)

// DefaultSettings is where a node's settings are.
const DefaultSettings = "/etc/qgpu/runtime.json"

// Settings are a node's. Every field may be left out.
type Settings struct {
	StateDir string `json:"stateDir"` // folder of tenants and of the agent's socket
	SimDir   string `json:"simDir"`   // folder of the simulator's socket
	Driver   string `json:"driver"`   // auto, kernel or simulated
	Runc     string `json:"runc"`     // path of the OCI runtime that does the work
	// Userspace is a folder with NVIDIA's programs and libraries by driver branch, to be
	// mounted into containers; empty: those that CDI or the machine has.
	Userspace string `json:"userspace"`
}

// ReadSettings reads the node's settings from path, and what is left out from environment
// variables and defaults. A file that does not exist is an empty one.
func ReadSettings(path string, getenv func(string) string) (Settings, error) {
	var s Settings
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s, fmt.Errorf("read the runtime's settings: %w", err)
	}
	if err == nil {
		if s, err = parseSettings(text); err != nil {
			return s, fmt.Errorf("%s: %w", path, err)
		}
	}
	for _, field := range []struct {
		value              *string
		variable, standard string
	}{
		{&s.StateDir, "QGPU_STATE_DIR", tenant.DefaultDir},
		{&s.SimDir, "QGPU_SIM_DIR", "/run/qgpu-sim"},
		{&s.Driver, "", launch.DriverAuto},
	} {
		if v := getenv(field.variable); field.variable != "" && v != "" {
			*field.value = v
		}
		if *field.value == "" {
			*field.value = field.standard
		}
	}
	return s, nil
}

func parseSettings(text []byte) (Settings, error) {
	var s Settings
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields() // a setting that is not obeyed must not look as if it were
	if err := d.Decode(&s); err != nil {
		return s, fmt.Errorf("these are no settings of qgpu-runtime: %w", err)
	}
	return s, nil
}

// runc is the path of the runtime that does the work, which is not this program.
func (s Settings) runc() (string, error) {
	name := s.Runc
	if name == "" {
		name = "runc"
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("find the OCI runtime that does the work: %w; install runc, or name it as \"runc\" in %s", err, DefaultSettings)
	}
	its, err1 := os.Stat(path)
	own, err2 := os.Stat("/proc/self/exe")
	if err1 == nil && err2 == nil && os.SameFile(its, own) {
		return "", fmt.Errorf("%s is qgpu-runtime itself; name the real one as \"runc\" in %s", path, DefaultSettings)
	}
	return path, nil
}
