// Package engineconf registers an OCI runtime with container engines, in their own
// configuration files: containerd's and CRI-O's TOML, Docker's JSON. It changes nothing
// else in a file, but comments of TOML files are lost, so a file of its own beside an
// engine's (a drop-in) is what to write where the engine reads one.
package engineconf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/pelletier/go-toml/v2"
)

// Engine is a container engine.
type Engine struct {
	Name string // as people call it
	File string // where it reads a configuration of ours by default
	// Register returns the file whose text is current, empty if there is none, with
	// runtime name registered as the program at path.
	Register func(current []byte, name, path string) ([]byte, error)
}

// The engines, with the drop-in or file that each reads.
var (
	Containerd = Engine{"containerd", "/etc/containerd/conf.d/qgpu.toml", containerd}
	CRIO       = Engine{"CRI-O", "/etc/crio/crio.conf.d/99-qgpu.conf", crio}
	Docker     = Engine{"Docker", "/etc/docker/daemon.json", docker}
)

// table is a part of a configuration.
type table = map[string]any

// containerd writes a runtime of the v2 shim, whose BinaryName stands for runc
// (containerd, docs/cri/config.md). Version 2 of the file has the CRI plugin under another
// name than versions 3 and 4.
func containerd(current []byte, name, path string) ([]byte, error) {
	config, err := readTOML(current)
	if err != nil {
		return nil, err
	}
	version, ok := config["version"]
	if !ok {
		version = int64(3)
		config["version"] = version
	}
	plugin := "io.containerd.cri.v1.runtime"
	switch version {
	case int64(2):
		plugin = "io.containerd.grpc.v1.cri"
	case int64(3), int64(4):
	default:
		return nil, fmt.Errorf("version %v of containerd's configuration is unknown; versions 2 to 4 are known", version)
	}
	runtime, err := descend(config, "plugins", plugin, "containerd", "runtimes", name)
	if err != nil {
		return nil, err
	}
	runtime["runtime_type"] = "io.containerd.runc.v2"
	options, err := descend(runtime, "options")
	if err != nil {
		return nil, err
	}
	options["BinaryName"] = path
	return writeTOML(config)
}

// crio writes a runtime handler (CRI-O, docs/crio.conf.5.md, CRIO.RUNTIME.RUNTIMES TABLE).
func crio(current []byte, name, path string) ([]byte, error) {
	config, err := readTOML(current)
	if err != nil {
		return nil, err
	}
	runtime, err := descend(config, "crio", "runtime", "runtimes", name)
	if err != nil {
		return nil, err
	}
	runtime["runtime_path"] = path
	runtime["runtime_type"] = "oci"
	if _, ok := runtime["runtime_root"]; !ok {
		runtime["runtime_root"] = filepath.Join("/run", name+"-runc")
	}
	return writeTOML(config)
}

// docker writes an entry of "runtimes" (Docker, dockerd reference, "Configure container
// runtimes").
func docker(current []byte, name, path string) ([]byte, error) {
	config := table{}
	if len(bytes.TrimSpace(current)) > 0 {
		d := json.NewDecoder(bytes.NewReader(current))
		d.UseNumber()
		if err := d.Decode(&config); err != nil {
			return nil, fmt.Errorf("this is no JSON object: %w", err)
		}
		if _, err := d.Token(); !errors.Is(err, io.EOF) {
			return nil, errors.New("there is something after the JSON object")
		}
		if config == nil {
			config = table{}
		}
	}
	runtime, err := descend(config, "runtimes", name)
	if err != nil {
		return nil, err
	}
	runtime["path"] = path
	text, err := json.MarshalIndent(config, "", "    ")
	return append(text, '\n'), err
}

// descend is the table at a path of keys, made if need be.
func descend(t table, keys ...string) (table, error) {
	for _, key := range keys {
		switch next := t[key].(type) {
		case nil:
			made := table{}
			t[key] = made
			t = made
		case table:
			t = next
		default:
			return nil, fmt.Errorf("%q is no table in this file; put that right first", key)
		}
	}
	return t, nil
}

func readTOML(text []byte) (table, error) {
	config := table{}
	if err := toml.Unmarshal(text, &config); err != nil {
		return nil, fmt.Errorf("this is no TOML: %w", err)
	}
	return config, nil
}

func writeTOML(config table) ([]byte, error) {
	var out bytes.Buffer
	e := toml.NewEncoder(&out)
	e.SetIndentTables(true)
	err := e.Encode(config)
	return out.Bytes(), err
}
