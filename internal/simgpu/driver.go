package simgpu

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/qgpu-project/qgpu/internal/nvabi"
)

// MaxCards is the largest number of cards of one driver.
const MaxCards = 16

// Bounds on what clients can make the driver keep.
const (
	maxFiles             = 1 << 16 // open device files
	maxClients           = 1 << 14 // RM clients
	maxClientsPerProcess = 1 << 10
	maxObjectsPerClient  = 1 << 16
	maxUsers             = 1 << 12 // processes that are remembered to use one file
)

// Config says what a driver simulates.
type Config struct {
	Version nvabi.Version // what it claims to be; 535 or 550
	Cards   []CardConfig  // 1…MaxCards
	Log     *slog.Logger  // nil discards
}

// Driver is a simulated driver with its cards. Its methods may be called
// concurrently.
type Driver struct {
	abi      *nvabi.ABI
	cards    []*card
	log      *slog.Logger
	unknown  *rateLimit
	controls map[uint32]control
	frontend map[uint8]frontendHandler
	classes  map[nvabi.Kind]constructor
	uvmCalls map[uint32]uvmHandler
	started  time.Time
	events   eventFiles

	// mu guards all that follows, the objects reachable from it, and the cards'
	// framebuffers. Callers' memory is never touched while it is held.
	mu      sync.Mutex
	files   map[FileID]*file
	watch   *watcher
	clients map[uint32]*client
	nextID  uint32 // of client handles
	shared  map[FileID]*exported
	closed  bool
}

// New starts a driver.
func New(cfg Config) (*Driver, error) {
	abi, err := nvabi.For(cfg.Version)
	if err != nil {
		return nil, err
	}
	if abi.Version.Major != 535 && abi.Version.Major != 550 {
		return nil, fmt.Errorf("driver %s cannot be simulated: choose a version of branch 535 or 550", cfg.Version)
	}
	if n := len(cfg.Cards); n < 1 || n > MaxCards {
		return nil, fmt.Errorf("%d cards cannot be simulated: choose 1 to %d", n, MaxCards)
	}
	log := cfg.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	d := &Driver{
		abi:      withVersion(abi, cfg.Version),
		log:      log,
		unknown:  newRateLimit(time.Minute),
		controls: allControls(),
		frontend: frontendHandlers(),
		classes:  constructors(),
		uvmCalls: uvmHandlers(),
		started:  time.Now(),
		files:    map[FileID]*file{},
		clients:  map[uint32]*client{},
		shared:   map[FileID]*exported{},
	}
	if d.watch, err = newWatcher(); err != nil {
		return nil, err
	}
	for i, cc := range cfg.Cards {
		c, err := newCard(cc, i, log)
		if err != nil {
			d.Close()
			return nil, err
		}
		d.cards = append(d.cards, c)
	}
	go d.reap()
	return d, nil
}

// withVersion is abi under the exact version that the driver is to claim.
func withVersion(abi *nvabi.ABI, v nvabi.Version) *nvabi.ABI {
	exact := *abi
	exact.Version = v
	return &exact
}

// Close ends the driver: it frees every client and stops the cards.
func (d *Driver) Close() {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return
	}
	d.closed = true
	for _, f := range d.files {
		d.closeFile(f)
	}
	for _, c := range d.clients {
		d.freeClient(c)
	}
	d.mu.Unlock()
	d.watch.close()
	for _, c := range d.cards {
		c.engine.Close()
	}
	d.events.close()
}

// lock takes the driver's lock, with every file closed whose last holder is gone,
// so that what is counted under the lock is exact.
func (d *Driver) lock() {
	d.mu.Lock()
	d.closeAbandoned()
}

// reap closes abandoned files when nobody calls.
func (d *Driver) reap() {
	for d.watch.wait() {
		d.lock()
		d.mu.Unlock()
	}
}

// closeAbandoned closes the files whose last holder has closed them.
func (d *Driver) closeAbandoned() {
	if d.closed {
		return
	}
	for ids := d.watch.abandoned(); len(ids) > 0; ids = d.watch.abandoned() {
		for _, id := range ids {
			if f := d.files[id]; f != nil {
				d.closeFile(f)
			}
		}
	}
}

// Lookup says which device file a path names.
func (d *Driver) Lookup(path string) (Node, bool) {
	switch path {
	case "/dev/nvidiactl":
		return Node{Kind: NodeControl}, true
	case "/dev/nvidia-uvm":
		return Node{Kind: NodeUVM}, true
	case "/dev/nvidia-uvm-tools":
		return Node{Kind: NodeUVMTools}, true
	}
	for _, c := range d.cards {
		if path == fmt.Sprintf("/dev/nvidia%d", c.minor) {
			return Node{Kind: NodeCard, Minor: c.minor}, true
		}
	}
	return Node{}, false
}

// Open opens a device file for the caller. The result is the caller's to keep;
// whoever called Open closes its own copy once it has handed it over.
func (d *Driver) Open(c Caller, n Node) (*os.File, error) {
	pid, err := c.Process()
	if err != nil {
		return nil, fmt.Errorf("opening a device file: %w", err)
	}
	if n.Kind == NodeCard && (n.Minor < 0 || n.Minor >= len(d.cards)) {
		return nil, unix.ENODEV
	}
	d.lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, unix.ENODEV
	}
	if len(d.files) >= maxFiles {
		return nil, unix.ENFILE
	}
	f, end, err := d.openFile(n, pid)
	if err != nil {
		return nil, err
	}
	d.files[f.id] = f
	return end, nil
}

// Owns reports whether the file is one of the driver's.
func (d *Driver) Owns(id FileID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.files[id] != nil
}

// Ioctl answers ioctl(cmd, arg) on the file id. The error is nil or a unix.Errno;
// what the driver itself says is in the argument.
func (d *Driver) Ioctl(c Caller, id FileID, cmd uint32, arg uint64) error {
	pid, err := c.Process()
	if err != nil {
		return unix.ESRCH
	}
	// An abandoned file is not the caller's, who has this one open: nothing to close.
	d.mu.Lock()
	f := d.files[id]
	if f != nil && len(f.users) < maxUsers {
		f.users[pid] = true
	}
	d.mu.Unlock()
	if f == nil {
		return unix.ENOTTY
	}
	if f.node.Kind == NodeUVM || f.node.Kind == NodeUVMTools {
		err = d.uvmIoctl(c, pid, f, cmd, arg)
	} else {
		err = d.frontendIoctl(c, pid, f, cmd, arg)
	}
	return asErrno(err)
}

// asErrno is the errno of an error; one that has none came of the caller's memory.
func asErrno(err error) error {
	if err == nil {
		return nil
	}
	var errno unix.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return unix.EFAULT
}

func (d *Driver) cardByGPU(gpuID uint32) *card {
	for _, c := range d.cards {
		if c.gpuID == gpuID {
			return c
		}
	}
	return nil
}

func (d *Driver) cardByUUID(uuid [16]byte) *card {
	for _, c := range d.cards {
		if c.uuid == uuid {
			return c
		}
	}
	return nil
}
