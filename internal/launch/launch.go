// Package launch starts a program as a tenant on this machine: it finds the
// cards, has the share placed, starts the tenant's mediator, and becomes the
// program, filtered, with its own view of the devices and few capabilities. It
// knows the order of these steps; each step is another package's.
package launch

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"github.com/qgpu-project/qgpu/internal/devfs"
	"github.com/qgpu-project/qgpu/internal/mediator"
	"github.com/qgpu-project/qgpu/internal/nvabi"
	"github.com/qgpu-project/qgpu/internal/privilege"
	"github.com/qgpu-project/qgpu/internal/seccomp"
	"github.com/qgpu-project/qgpu/internal/share"
	"github.com/qgpu-project/qgpu/internal/tenant"
	"github.com/qgpu-project/qgpu/internal/userspace"
)

// Request is a program to run and what it may have.
type Request struct {
	Share    share.Share
	Policy   share.Policy // empty: the one of its card's other tenants
	Card     string       // index or UUID of the card to use; empty: the least loaded
	Program  []string
	User     *User // nil: as the caller
	StateDir string
	// Interruptible runs without WAIT_KILLABLE_RECV, as kernels before 5.19 do.
	Interruptible bool
}

// User is whom a program runs as.
type User struct{ UID, GID int }

// keptCapabilities are what a program run as root keeps. Without CAP_SYS_ADMIN
// the driver treats it as any user's; without CAP_SYS_PTRACE, CAP_KILL and
// CAP_SETUID it cannot touch its own or another's mediator.
var keptCapabilities = privilege.Of(unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_FSETID,
	unix.CAP_NET_BIND_SERVICE, unix.CAP_NET_RAW, unix.CAP_AUDIT_WRITE)

// Run becomes the program of req as a tenant on node. It returns only if it
// fails; then the share's place is free again.
func Run(ctx context.Context, node *Node, req Request) error {
	if os.Geteuid() != 0 {
		return errors.New("qgpu run needs root to filter the program and start its mediator; use sudo, and --user to run the program as somebody else")
	}
	if err := req.Share.Validate(); err != nil {
		return err
	}
	env := node.Environ(os.Environ())
	path, err := userspace.LookPath(req.Program[0], env)
	if err != nil {
		return err
	}
	admission, err := admit(ctx, node, req)
	if err != nil {
		return err
	}
	defer admission.Close()
	conn, err := startTenant(node, admission, req.StateDir)
	if err != nil {
		return err
	}
	defer conn.Close()
	abi, err := nvabi.For(node.Version)
	if err != nil {
		return err
	}

	runtime.LockOSThread() // for good: namespace, filter and credentials are this thread's
	view := node.view(admission.Tenant.Placement, req.StateDir)
	view.Scratch = admission.Dir // goes with the tenant, should this process be killed
	if err := devfs.Enter(view); err != nil {
		return err
	}
	if err := privilege.Bound(keptCapabilities); err != nil {
		return err
	}
	if err := seccomp.Launch(conn, mediator.Filter(abi), seccomp.InstallOptions{Interruptible: req.Interruptible}); err != nil {
		return err
	}
	if req.User != nil {
		if err := privilege.User(req.User.UID, req.User.GID, 0); err != nil {
			return err
		}
	}
	return fmt.Errorf("start %s: %w", path, unix.Exec(path, req.Program, env))
}

func admit(ctx context.Context, node *Node, req Request) (*tenant.Admission, error) {
	cards, err := node.placementCards(req.Card)
	if err != nil {
		return nil, err
	}
	registry, err := tenant.OpenRegistry(req.StateDir)
	if err != nil {
		return nil, err
	}
	t, err := node.newTenant(strings.ReplaceAll(uuid.NewString(), "-", "")[:12], req.Share, req.Policy, req.Program)
	if err != nil {
		return nil, err
	}
	return registry.Admit(ctx, t, cards)
}

// newTenant is a tenant that this process is to become, without a place yet.
func (n *Node) newTenant(id string, s share.Share, p share.Policy, program []string) (tenant.Tenant, error) {
	started, err := tenant.StartTime(os.Getpid())
	return tenant.Tenant{
		ID:      id,
		Share:   s,
		Policy:  p,
		Program: program,
		PID:     os.Getpid(),
		Started: started,
		Driver:  n.DriverName(),
		Version: n.Version.String(),
		Since:   time.Now().UTC(),
	}, err
}

// The mediator's inherited descriptors, beside its standard ones.
const (
	LockFD    = 3 // the tenant's lock
	ControlFD = 4 // listens on the control socket
	LaunchFD  = 5 // a socket over which the program's listener comes
	PacerFD   = 6 // a socket to the tenant's pacer, if it has one
	JoinFD    = 7 // listens for processes that join a container
)

// ReadyLine is what a mediator says on its launch socket when it can take the
// program's listener. Anything else is why it cannot.
const ReadyLine = "ready"

// startTenant starts what goes with an admitted tenant.
func startTenant(node *Node, a *tenant.Admission, stateDir string) (*net.UnixConn, error) {
	if a.Tenant.Share.WholeCards() {
		return startMediator(node, a, nil)
	}
	link, pacers, err := packetPair()
	if err != nil {
		return nil, err
	}
	defer pacers.Close()
	conn, err := startMediator(node, a, link)
	link.Close()
	if err != nil {
		return nil, err
	}
	// Nobody waits for it but the tenant's first channel group, for its first order.
	if err := spawnPacer(node, a, pacers, stateDir); err != nil {
		conn.Close()
		return nil, fmt.Errorf("start the tenant's pacer: %w", err)
	}
	return conn, nil
}

// startMediator starts the mediator of an admitted tenant and waits until it is
// ready. The mediator is not this process's child: the program that this process
// becomes has no children that it did not make. link goes to the tenant's pacer, if it
// has one.
func startMediator(node *Node, a *tenant.Admission, link *os.File) (*net.UnixConn, error) {
	ours, theirs, err := seccomp.HandoverPair()
	if err != nil {
		return nil, err
	}
	log, err := os.OpenFile(filepath.Join(a.Dir, tenant.LogFile), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		ours.Close()
		theirs.Close()
		return nil, fmt.Errorf("open the mediator's log: %w", err)
	}
	files, args := []*os.File{a.Lock, a.Control, theirs, link, a.Join}, []string{"mediator", "--dir", a.Dir, "--driver", node.DriverName()}
	if link != nil {
		args = append(args, "--paced")
	}
	err = node.spawn(log, files, args...)
	theirs.Close()
	log.Close()
	if err != nil {
		ours.Close()
		return nil, fmt.Errorf("start the mediator: %w", err)
	}
	line, err := bufio.NewReader(ours).ReadString('\n')
	if line = strings.TrimSpace(line); line == ReadyLine {
		return ours, nil
	}
	ours.Close()
	if line != "" {
		return nil, fmt.Errorf("the mediator cannot start: %s", line)
	}
	text, _ := os.ReadFile(filepath.Join(a.Dir, tenant.LogFile))
	return nil, fmt.Errorf("the mediator ended before it was ready (%w): %s", err, strings.TrimSpace(string(text)))
}
