package launch

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/qgpu-project/qgpu/internal/devfs"
	"github.com/qgpu-project/qgpu/internal/mediator"
	"github.com/qgpu-project/qgpu/internal/nvabi"
	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/seccomp"
	"github.com/qgpu-project/qgpu/internal/share"
	"github.com/qgpu-project/qgpu/internal/tenant"
)

// Container is an OCI container that is to be a tenant.
type Container struct {
	ID      string // of the container, and so of the tenant
	Share   share.Share
	Policy  share.Policy
	Slices  []placement.Slice // where it was placed; nil: on the least loaded cards
	Card    string            // index or UUID of the card to use, where Slices is nil; empty: any
	Owner   *tenant.Owner     // nil: no pod's
	Program []string
}

// Started is a container's tenant whose mediator runs and waits for its first process.
type Started struct {
	Tenant    tenant.Tenant
	Dir       string // the tenant's folder
	admission *tenant.Admission
	conn      *net.UnixConn
	abi       *nvabi.ABI
}

// Start admits a container as a tenant on node and starts what goes with it. Unless
// Filter is called, all of that ends with Close, or with this process.
func Start(ctx context.Context, node *Node, c Container, stateDir string) (*Started, error) {
	abi, err := nvabi.For(node.Version)
	if err != nil {
		return nil, err
	}
	admission, err := admitContainer(ctx, node, c, stateDir)
	if err != nil {
		return nil, err
	}
	conn, err := startTenant(node, admission, stateDir)
	if err != nil {
		admission.Close()
		return nil, err
	}
	return &Started{Tenant: admission.Tenant, Dir: admission.Dir, admission: admission, conn: conn, abi: abi}, nil
}

func admitContainer(ctx context.Context, node *Node, c Container, stateDir string) (*tenant.Admission, error) {
	if err := c.Share.Validate(); err != nil {
		return nil, err
	}
	registry, err := tenant.OpenRegistry(stateDir)
	if err != nil {
		return nil, err
	}
	t, err := node.newTenant(c.ID, c.Share, c.Policy, c.Program)
	if err != nil {
		return nil, err
	}
	t.Container, t.Owner = true, c.Owner
	if c.Slices != nil {
		t.Placement = c.Slices
		return registry.AdmitAt(ctx, t, node.PlacementCards())
	}
	cards, err := node.placementCards(c.Card)
	if err != nil {
		return nil, err
	}
	return registry.Admit(ctx, t, cards)
}

// Close gives up the container: its mediator ends, and its place is free.
func (s *Started) Close() {
	s.conn.Close()
	s.admission.Close()
}

// Filter puts the calling thread, which must be locked and which then executes the
// container's runtime, under the tenant's filter. The filter goes to the container's
// processes with all that it does; one that the container has besides only adds to it:
// of two filters' answers the kernel takes the stricter. The tenant ends with the last
// filtered process.
func (s *Started) Filter() error {
	return seccomp.Launch(s.conn, mediator.Filter(s.abi), seccomp.InstallOptions{})
}

// Join puts the calling thread, which must be locked and which then executes a process in
// the container of t, under that tenant's filter.
func Join(ctx context.Context, registry *tenant.Registry, t tenant.Tenant) error {
	version, err := nvabi.ParseVersion(t.Version)
	if err != nil {
		return err
	}
	abi, err := nvabi.For(version)
	if err != nil {
		return err
	}
	conn, err := registry.Join(ctx, t.ID)
	if err != nil {
		return err
	}
	defer conn.Close()
	return seccomp.Launch(conn, mediator.Filter(abi), seccomp.InstallOptions{})
}

// FilterOutsider puts the calling thread, which must be locked and which then executes a
// container's runtime, under the filter of containers without a share in a pod that has
// some: what tenants pass them of the driver's is of no use to them.
func FilterOutsider() error { return seccomp.InstallUnsupervised(mediator.OutsiderFilter()) }

// ContainerView is what a container on slices sees of the node's cards, and does not see
// of others.
func (n *Node) ContainerView(slices []placement.Slice) devfs.View {
	v := n.view(slices, "")
	v.Empty, v.Hide = nil, v.Hide[len(hiddenDevices):] // a container's /dev is its own
	for path := range v.Files {
		if strings.HasPrefix(path, "/sys/module/") {
			delete(v.Files, path) // what loads modules asks for these; a container does not
		}
	}
	return v
}

// MakeNodes makes the device nodes of a view in the folder dir, which is made too and is
// owner's, and returns where each is, by the path that it has in the view.
func MakeNodes(nodes []devfs.Node, dir string, owner int) (map[string]string, error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make device nodes: %w", err)
	}
	made := make(map[string]string, len(nodes))
	for _, n := range nodes {
		const mode = 0o666
		path := filepath.Join(dir, filepath.Base(n.Path))
		if err := unix.Mknod(path, unix.S_IFCHR|mode, int(unix.Mkdev(n.Major, n.Minor))); err != nil {
			return nil, fmt.Errorf("make node %s: %w", n.Path, err)
		}
		if err := os.Chmod(path, mode); err != nil { // past the umask
			return nil, err
		}
		made[n.Path] = path
	}
	return made, os.Chown(dir, owner, owner)
}

// UserSpaceDir is the folder with NVIDIA's programs (bin) and libraries (lib) that go with
// the node's driver, or empty where they are installed on the machine as usual.
func (n *Node) UserSpaceDir() string { return n.userSpace.Dir }
