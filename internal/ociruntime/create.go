package ociruntime

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/qgpu-project/qgpu/internal/agentapi"
	"github.com/qgpu-project/qgpu/internal/launch"
	"github.com/qgpu-project/qgpu/internal/tenant"
	"github.com/qgpu-project/qgpu/internal/userspace"
)

// create prepares a container: if it is to have cards, its tenant runs afterwards, its
// bundle is edited, and this thread is filtered. If others of its pod have cards and it
// has none, this thread is filtered for that.
func create(ctx context.Context, s Settings, line *commandLine) error {
	var spec specs.Spec
	bundle, err := readDocument(line.config(), &spec)
	if err != nil {
		return fmt.Errorf("read the bundle: %w", err)
	}
	claim, err := claimOf(ctx, s, &spec)
	switch {
	case err != nil:
		return err
	case claim.outsider:
		return createOutsider(s, line.id)
	case claim.container == nil:
		return nil
	}
	c := claim.container
	c.ID = line.id
	if s.Userspace != "" {
		os.Setenv(userspace.Variable, s.Userspace)
	}
	node, err := launch.Attach(ctx, claim.driver, s.SimDir)
	if err != nil {
		return err
	}
	root, err := rootOf(line, &spec)
	if err != nil {
		return err
	}
	majors, err := majorsOf(node)
	if err != nil {
		return err
	}
	undo(&spec, func(source string) bool { return within(source, tenantsDir(s)) })
	check := checker{private: []string{s.StateDir, s.SimDir}, majors: majors}
	if err := check.check(&spec, root); err != nil {
		return err
	}
	files, err := machineFiles.find(node.UserSpaceDir(), node.Version.String())
	if err != nil {
		return err
	}
	started, err := start(ctx, node, *c, s.StateDir)
	if err != nil {
		return err
	}
	defer started.Close()
	add := additions{files: files, majors: majors}
	if err := tie(&add, node, started, s, root); err != nil {
		return err
	}
	if err := edit(&spec, add); err != nil {
		return err
	}
	if err := bundle.setSpec(&spec); err != nil {
		return err
	}
	if err := bundle.write(); err != nil {
		return err
	}
	return started.Filter()
}

func tenantsDir(s Settings) string { return filepath.Join(s.StateDir, "tenants") }

// createOutsider records container id as one that must not use what tenants pass it, and
// filters this thread.
func createOutsider(s Settings, id string) error {
	if err := tenant.At(s.StateDir).NoteOutsider(id); err != nil {
		return err
	}
	return launch.FilterOutsider()
}

// claim is what a container may have.
type claim struct {
	container *launch.Container // nil: no cards
	driver    string
	outsider  bool // others of its pod have cards
}

func claimOf(ctx context.Context, s Settings, spec *specs.Spec) (claim, error) {
	who, err := identify(spec.Annotations)
	if err != nil || who.sandbox || spec.Process == nil {
		return claim{}, err
	}
	c := launch.Container{Program: spec.Process.Args}
	if who.pod == nil {
		w, err := wishOf(spec.Process.Env)
		if w == nil || err != nil {
			return claim{}, err
		}
		c.Share, c.Policy, c.Card = w.share, w.policy, w.card
		return claim{container: &c, driver: s.Driver}, nil
	}
	agent := agentapi.Client{Socket: filepath.Join(s.StateDir, agentapi.DefaultSocket)}
	grant, err := agent.Grant(ctx, *who.pod)
	if err != nil || len(grant.Slices) == 0 {
		return claim{outsider: grant.Outsider}, err
	}
	c.Share, c.Policy, c.Slices = grant.Share, grant.Policy, grant.Slices
	c.Owner = &tenant.Owner{PodUID: who.pod.PodUID, Namespace: who.pod.PodNamespace, Pod: who.pod.PodName, Container: who.pod.Name}
	return claim{container: &c, driver: cmp.Or(grant.Driver, s.Driver)}, nil
}

// How long, and how often, start waits for room that was granted: who had it before has
// ended for Kubernetes, and its memory is on its way back.
const (
	roomPatience = 30 * time.Second
	roomPause    = 50 * time.Millisecond
)

func start(ctx context.Context, node *launch.Node, c launch.Container, stateDir string) (*launch.Started, error) {
	for deadline := time.Now().Add(roomPatience); ; {
		started, err := launch.Start(ctx, node, c, stateDir)
		if err == nil || !errors.Is(err, tenant.ErrNoRoom) || time.Now().After(deadline) {
			return started, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(roomPause):
		}
	}
}

func rootOf(line *commandLine, spec *specs.Spec) (string, error) {
	if spec.Root == nil {
		return "", errors.New("the bundle has no root file system")
	}
	return line.root(spec.Root.Path)
}

// majorsOf are NVIDIA's device numbers on node.
func majorsOf(node *launch.Node) ([]int64, error) {
	devices, err := os.Open("/proc/devices")
	if err != nil {
		return nil, fmt.Errorf("find NVIDIA's device numbers: %w", err)
	}
	defer devices.Close()
	var own []int64
	for _, n := range node.ContainerView(nil).Nodes {
		own = append(own, int64(n.Major))
	}
	return nvidiaMajors(devices, own), nil
}

// tie adds what ties a bundle to the tenant that was started for it.
func tie(add *additions, node *launch.Node, started *launch.Started, s Settings, root string) error {
	view := node.ContainerView(started.Tenant.Placement)
	nodes, err := launch.MakeNodes(view.Nodes, filepath.Join(started.Dir, "dev"), started.Tenant.UID)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	add.nodes = nodes
	add.hooks, err = hooks(self, s.StateDir, root, view)
	add.notes = map[string]string{TenantAnnotation: started.Tenant.ID}
	return err
}

// TenantAnnotation is in the configuration of a container that is a tenant: its id.
const TenantAnnotation = "qgpu.io/tenant"
