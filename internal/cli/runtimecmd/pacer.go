package runtimecmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/qgpu-project/qgpu/internal/launch"
	"github.com/qgpu-project/qgpu/internal/mediator"
	"github.com/qgpu-project/qgpu/internal/nvclient"
	"github.com/qgpu-project/qgpu/internal/pacer"
	"github.com/qgpu-project/qgpu/internal/privilege"
	"github.com/qgpu-project/qgpu/internal/share"
	"github.com/qgpu-project/qgpu/internal/tenant"
	"github.com/qgpu-project/qgpu/internal/timeshare"
)

func pacerCommand() *cobra.Command {
	var record, boards string
	var supervisor int
	c := &cobra.Command{
		Use:    "pacer",
		Short:  "Hold one tenant to its share of compute, beside its mediator",
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE: func(c *cobra.Command, _ []string) error {
			log := slog.New(slog.NewTextHandler(os.Stderr, nil))
			err := confine(log)
			switch {
			case err != nil:
			case supervisor != 0:
				go outlive(supervisor, log)
				err = pace(c.Context(), log, record, boards)
			default:
				err = supervise(c.Context(), log)
			}
			if err != nil {
				log.Error("pacer ends", "err", err)
			}
			return err
		},
	}
	c.Flags().StringVar(&record, "record", "", "the tenant's record, as JSON")
	c.Flags().StringVar(&boards, "boards", "", "folder of the cards' boards")
	c.Flags().IntVar(&supervisor, superviseFlag, 0, "pace, watched over by this process; without it, watch over one that does")
	return c
}

// superviseFlag names the process that starts a pacer again.
const superviseFlag = "supervisor"

// outlive takes the place of this process's supervisor when that ends, so that there always
// are two of them: whichever is killed, the other makes up for it.
func outlive(supervisor int, log *slog.Logger) {
	fd, err := unix.PidfdOpen(supervisor, 0)
	if err == nil && os.Getppid() == supervisor {
		await(fd)
	}
	log.Error("the pacer's supervisor has ended; the pacer begins again as one")
	args := slices.DeleteFunc(slices.Clone(os.Args), func(arg string) bool { return strings.HasPrefix(arg, "--"+superviseFlag) })
	log.Error("the pacer has no supervisor", "err", unix.Exec("/proc/self/exe", args, os.Environ()))
}

// await waits until the process of a pidfd ends.
func await(pidfd int) {
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	for {
		if _, err := unix.Poll(fds, -1); err != unix.EINTR {
			return
		}
	}
}

// supervise has another process pace, and a new one if that fails: its successor puts
// right what it left.
func supervise(ctx context.Context, log *slog.Logger) error {
	link := os.NewFile(uintptr(launch.PacerLinkFD), "link")
	defer link.Close()
	for pause := firstPause; !ended(link); pause *= 2 {
		child := exec.CommandContext(ctx, "/proc/self/exe", append(slices.Clone(os.Args[1:]), fmt.Sprintf("--%s=%d", superviseFlag, os.Getpid()))...)
		child.Stderr = os.Stderr
		child.ExtraFiles = []*os.File{link}
		err := child.Run()
		if err == nil || ctx.Err() != nil {
			return nil // the mediator has ended
		}
		log.Error("the tenant was not paced for a moment", "err", err)
		if pause > lastPause {
			return fmt.Errorf("the tenant is not paced any more: %w", err)
		}
		time.Sleep(pause)
	}
	return nil
}

// Between a pacer that failed and its successor there is a pause, longer each time, until
// it is given up.
const (
	firstPause = 10 * time.Millisecond
	lastPause  = 30 * time.Second
)

// ended reports whether the mediator at the other end of link has ended.
func ended(link *os.File) bool {
	n, _, err := unix.Recvfrom(int(link.Fd()), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
	return n == 0 && err == nil || errors.Is(err, unix.ECONNRESET)
}

func pace(ctx context.Context, log *slog.Logger, record, boards string) error {
	var t tenant.Tenant
	if err := json.Unmarshal([]byte(record), &t); err != nil {
		return fmt.Errorf("read the tenant's record: %w", err)
	}
	link := os.NewFile(uintptr(launch.PacerLinkFD), "link")
	defer link.Close() // not before: it is handed on if this process becomes a supervisor
	conn, err := packets(link)
	if err != nil {
		return err
	}
	defer conn.Close()
	program := firstProcess(t)
	if program != nil {
		defer program.Close()
	}
	return pacer.Run(ctx, pacer.Config{
		ID: t.ID, Policy: t.Policy, Placement: t.Placement, BoardDir: boards,
		Mediator: conn, Program: program, Driver: nvclient.Kernel{}, Limits: timeshare.DefaultLimits(), Log: log,
	})
}

// firstProcess is a pidfd of the tenant's first process, or nil if that has ended.
func firstProcess(t tenant.Tenant) *os.File {
	fd, err := unix.PidfdOpen(t.PID, 0)
	if err != nil {
		return nil
	}
	if started, err := tenant.StartTime(t.PID); err != nil || started != t.Started {
		unix.Close(fd)
		return nil
	}
	return os.NewFile(uintptr(fd), "program")
}

// packets is the socket of sequenced packets behind f.
func packets(f *os.File) (*net.UnixConn, error) {
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("the socket between mediator and pacer is missing: %w", err)
	}
	return conn.(*net.UnixConn), nil
}

// pacerCapabilities is what the driver asks of who restarts a runlist.
var pacerCapabilities = privilege.Of(unix.CAP_SYS_NICE)

// maxBurst is how long in µs a pacer may take a processor at a time. It waits for something
// after much less.
const maxBurst = 500_000

// confine starts this program again as the same user with no other capability than the
// pacer's, and in real time.
func confine(log *slog.Logger) error {
	has, err := privilege.Effective(os.Getpid())
	if err != nil || has == pacerCapabilities {
		return err
	}
	runtime.LockOSThread()
	hurry(log)
	if err := privilege.Bound(pacerCapabilities); err != nil {
		return err
	}
	if err := privilege.User(os.Getuid(), os.Getgid(), pacerCapabilities); err != nil {
		return err
	}
	return fmt.Errorf("start again with fewer privileges: %w", unix.Exec("/proc/self/exe", os.Args, os.Environ()))
}

// hurry has this thread, and the program that it executes, come first for a processor: the
// sooner a pacer runs when a window ends, the better it is kept. Where that is not allowed,
// windows are right on average.
func hurry(log *slog.Logger) {
	err := privilege.BoundRealtime(maxBurst)
	if err == nil {
		err = privilege.SetRealtime(true, true)
	}
	if err != nil {
		log.Warn("windows may open and shut late while the machine is busy", "err", err)
		_ = unix.Setpriority(unix.PRIO_PROCESS, 0, -10)
	}
}

// pacing is a mediator as its tenant's pacer sees it.
type pacing struct {
	m      *mediator.Mediator
	cards  int
	limits timeshare.Limits
	conn   *net.UnixConn
	server *pacer.Server
	log    *slog.Logger
	closed atomic.Bool

	mu    sync.Mutex
	share share.Share
}

// startPacing serves the tenant's pacer.
func startPacing(m *mediator.Mediator, t tenant.Tenant, log *slog.Logger) (*pacing, error) {
	link := os.NewFile(uintptr(launch.PacerFD), "link")
	defer link.Close()
	conn, err := packets(link)
	if err != nil {
		return nil, err
	}
	p := &pacing{m: m, cards: len(t.Placement), limits: timeshare.DefaultLimits(), conn: conn, share: t.Share, log: log}
	p.server = pacer.NewServer(conn, p)
	m.Pace(p.server.Changed)
	go func() {
		err := p.server.Serve()
		if p.closed.Load() {
			return
		}
		log.Error("the tenant's pacer is lost", "err", err)
		p.open()
	}()
	return p, nil
}

// resize changes the tenant's share.
func (p *pacing) resize(to share.Share) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	quotas := make([]uint64, p.cards)
	for i := range quotas {
		quotas[i] = uint64(to.PerCard().Memory)
	}
	if err := p.m.SetQuotas(quotas); err != nil {
		return err
	}
	p.share = to
	p.server.Changed()
	return nil
}

// open lets the tenant on its cards when its pacer is lost for good. That takes effect with
// the next restart of the runlist, by a neighbour.
func (p *pacing) open() {
	for i := range p.cards {
		a, err := p.Apply(pacer.Order{Card: i, Turn: p.limits.MinSlice, Afresh: true})
		if err != nil {
			p.log.Warn("the tenant cannot be let on its card", "err", err)
		}
		a.Close()
	}
}

// Close ends the pacer.
func (p *pacing) Close() error {
	p.closed.Store(true)
	return p.conn.Close()
}

// Tenant implements pacer.Mediator.
func (p *pacing) Tenant() pacer.Tenant {
	p.mu.Lock()
	defer p.mu.Unlock()
	return pacer.Tenant{Share: p.share, Groups: p.m.Groups()}
}

// Apply implements pacer.Mediator.
func (p *pacing) Apply(o pacer.Order) (pacer.Applied, error) {
	a, err := p.m.Apply(mediator.Order{
		Card: o.Card, Turn: o.Turn, Least: p.limits.MinSlice, Most: p.limits.MaxSlice, Gated: o.Gated, Afresh: o.Afresh,
	})
	out := pacer.Applied{Restart: a.Restart, Channel: a.Channel, Channels: a.Channels}
	if err != nil || a.File < 0 {
		return out, err
	}
	file := os.NewFile(uintptr(a.File), "control")
	pidfd, err := unix.PidfdOpen(a.Process, 0)
	if err != nil { // it ended just now
		file.Close()
		return out, nil
	}
	out.File, out.Process = file, os.NewFile(uintptr(pidfd), "process")
	return out, nil
}
