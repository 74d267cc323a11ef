package ociruntime

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// document is a JSON file of a bundle. What this program does not know of it stays as it is.
type document struct {
	path string
	raw  map[string]any
}

// maxDocument bounds a configuration, in bytes. Those of pods have some thousands.
const maxDocument = 16 << 20

// readDocument reads the file at path, also into v.
func readDocument(path string, v any) (*document, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxDocument {
		return nil, fmt.Errorf("%s has %d bytes; the most is %d", path, info.Size(), maxDocument)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	raw, err := decode(text, v)
	if err != nil {
		return nil, fmt.Errorf("%s is damaged: %w", path, err)
	}
	return &document{path: path, raw: raw}, nil
}

func decode(text []byte, v any) (map[string]any, error) {
	if err := json.Unmarshal(text, v); err != nil {
		return nil, err
	}
	raw := map[string]any{}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber() // not every number is a float64
	if err := d.Decode(&raw); err != nil {
		return nil, err
	}
	if raw == nil {
		return nil, errors.New("it is null")
	}
	return raw, nil
}

// set puts value at a path of keys. A null on the way is replaced.
func (d *document) set(value any, keys ...string) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	at := d.raw
	for _, key := range keys[:len(keys)-1] {
		next, ok := at[key].(map[string]any)
		if !ok {
			next = map[string]any{}
			at[key] = next
		}
		at = next
	}
	at[keys[len(keys)-1]] = json.RawMessage(text)
	return nil
}

// setSpec puts what edit changes of a configuration.
func (d *document) setSpec(spec *specs.Spec) error {
	return errors.Join(
		d.set(spec.Process.Env, "process", "env"),
		d.set(spec.Mounts, "mounts"),
		d.set(spec.Hooks, "hooks"),
		d.set(spec.Annotations, "annotations"),
		d.set(spec.Linux.Devices, "linux", "devices"),
		d.set(spec.Linux.Resources.Devices, "linux", "resources", "devices"),
	)
}

// write replaces the file, whole or not at all.
func (d *document) write() error {
	text, err := json.Marshal(d.raw)
	if err != nil {
		return err
	}
	if err := renameio.WriteFile(d.path, text, 0o600, renameio.WithTempDir(filepath.Dir(d.path))); err != nil {
		return fmt.Errorf("write %s: %w", d.path, err)
	}
	return nil
}
