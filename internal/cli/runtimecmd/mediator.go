package runtimecmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"runtime"
	"slices"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/qgpu-project/qgpu/internal/launch"
	"github.com/qgpu-project/qgpu/internal/mediator"
	"github.com/qgpu-project/qgpu/internal/nvabi"
	"github.com/qgpu-project/qgpu/internal/nvclient"
	"github.com/qgpu-project/qgpu/internal/privilege"
	"github.com/qgpu-project/qgpu/internal/seccomp"
	"github.com/qgpu-project/qgpu/internal/share"
	"github.com/qgpu-project/qgpu/internal/tenant"
)

func mediatorCommand() *cobra.Command {
	var dir, driver string
	var paced bool
	c := &cobra.Command{
		Use:    "mediator",
		Short:  "Mediate one tenant, whose folder and descriptors are given",
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE: func(c *cobra.Command, _ []string) error {
			log := slog.New(slog.NewTextHandler(os.Stderr, nil))
			err := serveTenant(c.Context(), log, dir, driver == launch.DriverSimulated, paced)
			if err != nil {
				log.Error("mediator ends", "err", err)
			}
			return err
		},
	}
	c.Flags().StringVar(&dir, "dir", "", "the tenant's folder")
	c.Flags().StringVar(&driver, "driver", launch.DriverKernel, "kernel or simulated")
	c.Flags().BoolVar(&paced, "paced", false, "the tenant has a pacer")
	return c
}

// inherited is the socket that this process inherited as descriptor fd.
func inherited(fd int) (*net.UnixConn, error) {
	f := os.NewFile(uintptr(fd), "launch")
	defer f.Close()
	return seccomp.HandoverConn(f)
}

// serveTenant mediates until the tenant's last process has ended and its memory is
// free. Until then its lock is held, and so its place taken.
func serveTenant(ctx context.Context, log *slog.Logger, dir string, simulated, paced bool) (err error) {
	t, err := tenant.ReadRecord(dir)
	if err != nil {
		return err
	}
	if err := dropPrivileges(t.UID); err != nil {
		return err
	}
	defer func() {
		if err == nil { // else the folder stays, and the log in it
			err = tenant.Leave(dir)
		}
	}()
	conn, err := inherited(launch.LaunchFD)
	if err != nil {
		return err
	}
	m, err := newMediator(t, simulated, log)
	if err != nil {
		fmt.Fprintln(conn, err)
		return err
	}
	defer m.Close()
	unix.CloseOnExec(launch.LockFD)
	var p *pacing
	if paced {
		if p, err = startPacing(m, t, log); err != nil {
			return err
		}
		defer p.Close()
	}
	control, err := listenerOf(launch.ControlFD, "control")
	if err != nil {
		return err
	}
	defer control.Close()
	go tenant.ServeControl(control, stater{m, p, log}, log)
	if _, err := fmt.Fprintln(conn, launch.ReadyLine); errors.Is(err, unix.EPIPE) {
		return nil // the launcher was killed
	} else if err != nil {
		return fmt.Errorf("tell the launcher: %w", err)
	}
	if err := serveProcesses(ctx, m, conn, t.Container, log); err != nil && !errors.Is(err, errNobody) {
		return err
	}
	return drain(ctx, m, log)
}

// serveProcesses answers the calls of the tenant's processes until they have ended.
func serveProcesses(ctx context.Context, m *mediator.Mediator, conn *net.UnixConn, container bool, log *slog.Logger) error {
	s := newSessions(m, log)
	check := admissible
	if container {
		join, err := listenerOf(launch.JoinFD, "join")
		if err != nil {
			return err
		}
		go s.join(ctx, join)
		// Whoever connects is the container's runtime and not yet its program, which is
		// looked at when it opens a device file.
		check = func(int) error { return nil }
	}
	return s.serve(ctx, conn, check)
}

// dropPrivileges starts this program again as user uid, with CAP_SYS_PTRACE
// alone, to reach the tenant. The driver grants rights by what its caller has.
func dropPrivileges(uid int) error {
	if os.Geteuid() == uid {
		return nil
	}
	keep := privilege.Of(unix.CAP_SYS_PTRACE)
	runtime.LockOSThread()
	if err := privilege.Bound(keep); err != nil {
		return err
	}
	if err := privilege.User(uid, uid, keep); err != nil {
		return err
	}
	return fmt.Errorf("start again without privileges: %w", unix.Exec("/proc/self/exe", os.Args, os.Environ()))
}

func newMediator(t tenant.Tenant, simulated bool, log *slog.Logger) (*mediator.Mediator, error) {
	kernel := mediator.Kernel{}
	ctl, err := kernel.Open("/dev/nvidiactl", unix.O_RDWR)
	if err != nil {
		return nil, fmt.Errorf("open /dev/nvidiactl: %w", err)
	}
	version, err := nvclient.Version(kernel, ctl)
	kernel.Close(ctl)
	if err != nil {
		return nil, err
	}
	abi, err := nvabi.For(version)
	if err != nil {
		return nil, err
	}
	var cards []mediator.Card
	for _, s := range t.Placement {
		cards = append(cards, mediator.Card{Minor: s.Index, Quota: uint64(s.Memory)})
	}
	return mediator.New(mediator.Config{ABI: abi, Cards: cards, Simulated: simulated, MayUse: admissible, Log: log})
}

// listenerOf is the listening socket that this process inherited as descriptor fd.
func listenerOf(fd int, name string) (*net.UnixListener, error) {
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("the %s socket is missing: %w", name, err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	return l.(*net.UnixListener), nil
}

// errAdministrator refuses a process that is or can become an administrator.
var errAdministrator = errors.New("the program may have CAP_SYS_ADMIN, which the driver treats as its administrator; drop it from the bounding set (a privileged container cannot be a tenant)")

// admissible refuses an administrator: the driver would grant it what no filter of calls
// holds back. Capabilities in a user namespace are none to the driver; and who is in one
// does not come out of it.
func admissible(thread int) error {
	same, err := privilege.SameUserNamespace(thread)
	if err != nil {
		return errors.New("the program's user namespace cannot be told")
	}
	caps, err := privilege.Bounding(thread)
	if err != nil {
		return errors.New("the program's capabilities cannot be told")
	}
	if same && caps.Has(unix.CAP_SYS_ADMIN) {
		return errAdministrator
	}
	return nil
}

// stater tells a mediator's state in the registry's words.
type stater struct {
	m      *mediator.Mediator
	pacing *pacing // nil for a tenant of whole cards
	log    *slog.Logger
}

// Resize implements tenant.Resizer.
func (s stater) Resize(to share.Share) error {
	if s.pacing == nil {
		return errors.New("a tenant of whole cards has no limits that could be changed")
	}
	return s.pacing.resize(to)
}

func (s stater) State() tenant.State {
	usage, stats := s.m.Usage(), s.m.Stats()
	state := tenant.State{Mediator: os.Getpid(), Calls: stats.Executed, Processes: []int{}}
	counted, err := s.m.Counted()
	if err != nil {
		s.log.Warn("the driver does not tell its count", "err", err)
		counted = make([]uint64, len(usage.Cards))
	}
	groups := s.m.Groups()
	for i, c := range usage.Cards {
		state.Cards = append(state.Cards, tenant.CardState{
			UUID: c.UUID, Quota: share.Memory(c.Quota), Used: share.Memory(c.Used),
			Counted: share.Memory(counted[i]), Managed: share.Memory(c.Managed),
			Groups: groups[i], Compute: s.compute(i),
		})
	}
	for _, p := range usage.Processes {
		state.Processes = append(state.Processes, p.PID)
	}
	for _, call := range slices.Sorted(maps.Keys(stats.Refused)) {
		state.Refused = append(state.Refused, tenant.Refusal{Call: call, Count: stats.Refused[call]})
	}
	return state
}

// compute is the use of the tenant's i-th card, or nil where the driver does not tell.
func (s stater) compute(i int) *tenant.Compute {
	c, ok, err := s.m.Compute(i)
	if err != nil {
		s.log.Debug("the driver does not tell utilisation", "err", err)
	}
	if !ok {
		return nil
	}
	return &tenant.Compute{Busy: c.Busy, Own: c.Own}
}
