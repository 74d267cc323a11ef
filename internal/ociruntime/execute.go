package ociruntime

import (
	"context"
	"fmt"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/qgpu-project/qgpu/internal/launch"
	"github.com/qgpu-project/qgpu/internal/tenant"
)

// execute prepares a process to be executed in a container: if that is a tenant, this
// thread is filtered afterwards, by a filter whose calls the same mediator answers. If it is
// an outsider, this thread is filtered as its first process is.
func execute(ctx context.Context, s Settings, line *commandLine) error {
	registry := tenant.At(s.StateDir)
	if registry.IsOutsider(line.id) {
		return launch.FilterOutsider()
	}
	t, ok, err := registry.Find(line.id)
	if err != nil || !ok || !t.Container {
		return err
	}
	if err := checkCapabilities(line.caps, false); err != nil {
		return fmt.Errorf("execute a process: %w", err)
	}
	if line.process != "" {
		if err := editProcess(line.process); err != nil {
			return err
		}
	}
	return launch.Join(ctx, registry, t)
}

// editProcess gives the process that the file at path describes the paths that a tenant's
// first process has. An engine knows the container's own environment only.
func editProcess(path string) error {
	var p specs.Process
	file, err := readDocument(path, &p)
	if err != nil {
		return fmt.Errorf("read the process to execute: %w", err)
	}
	if err := checkCapabilities(capabilitiesOf(p.Capabilities), false); err != nil {
		return fmt.Errorf("execute a process: %w", err)
	}
	if err := file.set(setenv(withUserSpace(p.Env), "NVIDIA_VISIBLE_DEVICES", "void"), "env"); err != nil {
		return err
	}
	return file.write()
}
