// Package mediator answers one tenant's calls on NVIDIA device files. It decides
// by one table of dispositions what each driver call may do, executes the call
// itself on its own copy of the arguments and on a duplicate of the descriptor,
// keeps the ledger of the tenant's video memory, and shows the tenant its share
// as if it were the card. It knows neither how notifications arrive nor which
// driver answers, but for three small hooks that a simulated driver needs.
package mediator

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/qgpu-project/qgpu/internal/nvabi"
	"github.com/qgpu-project/qgpu/internal/nvclient"
	"github.com/qgpu-project/qgpu/internal/seccomp"
	"golang.org/x/sys/unix"
)

// Notification is a system call of the tenant that waits for an answer. A
// *seccomp.Notification is one.
type Notification interface {
	ID() uint64
	Thread() int
	Process() (int, error)
	Nr() int
	Arg(i int) uint64
	ReadMemory(p []byte, addr uint64) error
	WriteMemory(p []byte, addr uint64) error
	ReadString(addr uint64, max int) (string, error)
	Dup(fd int32) (int, error)
	Replace(fd int, target int32, cloexec bool) error
}

var _ Notification = (*seccomp.Notification)(nil)

// Card is a card of the tenant.
type Card struct {
	Minor int    // of /dev/nvidiaN
	Quota uint64 // bytes of its memory that the tenant may hold
}

// Config says what the tenant has and through what the mediator acts.
type Config struct {
	ABI       *nvabi.ABI
	Cards     []Card
	Driver    Driver    // nil: the kernel's
	Processes Processes // nil: the kernel's
	// Simulated: the driver behind Driver is the simulated one. It keeps the state
	// of a descriptor by replacing the file behind it, and is told by an ioctl of
	// its own whose pages are to be pinned.
	Simulated bool
	// MayUse says why a process may have no device file, or nil; it is asked at every
	// open. Its errors are few, since they are counted by their text. Without it all may.
	MayUse func(process int) error
	Log    *slog.Logger // nil: slog.Default()
}

// Mediator answers the calls of one tenant. It is safe for concurrent use.
type Mediator struct {
	abi       *nvabi.ABI
	driver    Driver
	processes Processes
	simulated bool
	mayUse    func(process int) error
	log       *slog.Logger
	self      int // this process's id, under which the driver knows the tenant's clients

	cards    []card
	files    files
	ledger   *ledger
	tenants  *processTable
	frontend map[uint8]frontendRule
	controls map[uint32]controlRule
	uvm      map[uint32]uvmRule

	calls  callPool
	lost   lostCalls
	counts counters

	// The mediator's own RM client. It keeps the device files of the tenant's cards
	// open, without which RM admits no client of this process to them.
	clientMu sync.Mutex
	client   *nvclient.Client

	schedule  *schedule // nil: nobody paces the tenant
	duplicate func(pid int, number int32) (int, error)
	numbers   func(pid int) []int32

	reconciling sync.Mutex
	patience    time.Duration // reconcileWait, but in tests
	executed    atomic.Uint64

	interruptible atomic.Bool
}

// card is a card of the tenant, as the driver describes it.
type card struct {
	nvclient.Card
	uuid [16]byte
}

// New makes a mediator. It opens the device files of the tenant's cards and fails
// if the driver does not have one of them.
func New(cfg Config) (*Mediator, error) {
	if cfg.ABI == nil {
		return nil, errors.New("a mediator needs the ABI of the driver's version")
	}
	if len(cfg.Cards) == 0 {
		return nil, errors.New("a tenant needs at least one card")
	}
	m := &Mediator{
		abi:       cfg.ABI,
		driver:    cfg.Driver,
		processes: cfg.Processes,
		simulated: cfg.Simulated,
		mayUse:    cfg.MayUse,
		log:       cfg.Log,
		self:      os.Getpid(),
		patience:  reconcileWait,
		frontend:  frontendRules(),
		controls:  controlRules(),
		uvm:       uvmRules(),
		duplicate: duplicateOf,
		numbers:   numbersOf,
	}
	if m.driver == nil {
		m.driver = Kernel{}
	}
	if m.processes == nil {
		m.processes = newProcFS()
	}
	if m.log == nil {
		m.log = slog.Default()
	}
	if m.mayUse == nil {
		m.mayUse = func(int) error { return nil }
	}
	if err := checkLayout(cfg.ABI); err != nil {
		return nil, err
	}
	if err := m.openCards(cfg.Cards); err != nil {
		return nil, err
	}
	quotas := make([]uint64, len(cfg.Cards))
	for i, c := range cfg.Cards {
		quotas[i] = c.Quota
	}
	m.ledger = newLedger(quotas)
	m.tenants = newProcessTable(m)
	return m, nil
}

// openCards makes the mediator's own client and takes the cards in Config's order,
// so that the i-th account of the ledger is the i-th card.
func (m *Mediator) openCards(want []Card) error {
	client, err := nvclient.Open(m.driver, func(minor int) bool {
		for _, c := range want {
			if c.Minor == minor {
				return true
			}
		}
		return false
	})
	if err != nil {
		return fmt.Errorf("open the tenant's cards: %w", err)
	}
	for _, w := range want {
		found := false
		for _, c := range client.Cards() {
			if c.Minor != w.Minor {
				continue
			}
			uuid, err := parseUUID(c.UUID)
			if err != nil {
				_ = client.Close()
				return fmt.Errorf("card /dev/nvidia%d: %w", c.Minor, err)
			}
			m.cards = append(m.cards, card{Card: c, uuid: uuid})
			found = true
			break
		}
		if !found {
			_ = client.Close()
			return fmt.Errorf("the driver has no card /dev/nvidia%d", w.Minor)
		}
	}
	m.client = client
	return nil
}

// Close frees what the mediator itself holds at the driver. The tenant's own files
// stay as they are.
func (m *Mediator) Close() error {
	m.tenants.close()
	m.clientMu.Lock()
	defer m.clientMu.Unlock()
	return m.client.Close()
}

// Handle answers a call. It never answers "continue" for a call that reads
// arguments from memory, but for those listed at continuable.
func (m *Mediator) Handle(n Notification) seccomp.Answer {
	switch n.Nr() {
	case unix.SYS_IOCTL:
		return m.ioctl(n)
	case unix.SYS_MMAP:
		return m.mmap(n)
	case unix.SYS_OPEN:
		return m.open(n, unix.AT_FDCWD, n.Arg(0), int(n.Arg(1)))
	case unix.SYS_OPENAT:
		return m.open(n, int32(n.Arg(0)), n.Arg(1), int(n.Arg(2)))
	}
	return fail(unix.ENOSYS)
}

// cardByMinor is the index of the tenant's card with a minor number.
func (m *Mediator) cardByMinor(minor int) (int, bool) {
	for i := range m.cards {
		if m.cards[i].Minor == minor {
			return i, true
		}
	}
	return 0, false
}

// cardByID is the index of the tenant's card with the driver's id.
func (m *Mediator) cardByID(id uint32) (int, bool) {
	for i := range m.cards {
		if m.cards[i].GPUID == id {
			return i, true
		}
	}
	return 0, false
}

// cardByInstance is the index of the tenant's card with a device instance.
func (m *Mediator) cardByInstance(instance uint32) (int, bool) {
	for i := range m.cards {
		if m.cards[i].Instance == instance {
			return i, true
		}
	}
	return 0, false
}

// Answers.

func succeed() seccomp.Answer              { return seccomp.Answer{} }
func fail(errno unix.Errno) seccomp.Answer { return seccomp.Answer{Errno: int(errno)} }

// letThrough lets the kernel execute a call as it stands. The callers are:
//
//   - open of a path that is no NVIDIA device file. The nodes in the tenant's /dev
//     lie on a mount without devices, so that a path changed after the check opens none;
//   - mmap, whose arguments are registers. That the descriptor may be swapped after
//     the check is dealt with in mmap.go;
//   - NV_ESC_RM_ALLOC_MEMORY of class NV01_MEMORY_SYSTEM_OS_DESCRIPTOR on the kernel's
//     driver, which pins pages of the caller and so must see the tenant as its caller.
//     Nothing that a racing thread can make of this call takes video memory: for an
//     unprivileged caller the driver's other classes of it give none.
func letThrough() seccomp.Answer { return seccomp.Answer{Continue: true} }

// none is the number of no descriptor.
const none = -1

// errnoOf is the errno in err.
func errnoOf(err error) unix.Errno {
	var errno unix.Errno
	if errors.As(err, &errno) && errno != 0 {
		return errno
	}
	return unix.EIO
}

// parseUUID reads a UUID as the driver writes it: GPU- and 32 hexadecimal digits
// in groups.
func parseUUID(s string) ([16]byte, error) {
	var u [16]byte
	n := 0
	digits := s
	if len(s) > 4 && s[:4] == "GPU-" {
		digits = s[4:]
	}
	for i := 0; i < len(digits); i++ {
		c := digits[i]
		var d byte
		switch {
		case c == '-':
			continue
		case c >= '0' && c <= '9':
			d = c - '0'
		case c >= 'a' && c <= 'f':
			d = c - 'a' + 10
		default:
			return u, fmt.Errorf("the driver's UUID %.60q is not hexadecimal", s)
		}
		if n == 32 {
			return u, fmt.Errorf("the driver's UUID %.60q is longer than 16 bytes", s)
		}
		u[n/2] = u[n/2]<<4 | d
		n++
	}
	if n != 32 {
		return u, fmt.Errorf("the driver's UUID %.60q is shorter than 16 bytes", s)
	}
	return u, nil
}
