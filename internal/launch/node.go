package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/qgpu-project/qgpu/internal/devfs"
	"github.com/qgpu-project/qgpu/internal/discovery"
	"github.com/qgpu-project/qgpu/internal/nvabi"
	"github.com/qgpu-project/qgpu/internal/nvclient"
	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/share"
	"github.com/qgpu-project/qgpu/internal/simgpu/host"
	"github.com/qgpu-project/qgpu/internal/userspace"
)

// Names of drivers, as on the command line.
const (
	DriverAuto      = "auto"
	DriverKernel    = "kernel"
	DriverSimulated = "simulated"
)

// Node is this machine as tenants see it: a driver and its cards.
type Node struct {
	Version nvabi.Version
	Cards   []nvclient.Card
	Runtime string // path of qgpu-runtime

	sim       *host.Info // of a simulated driver; nil: the kernel's
	simDir    string
	simulator string              // path of qgpu-sim
	userSpace userspace.UserSpace // of a simulated driver
}

// Open finds the driver and cards of this machine. driver is DriverAuto,
// DriverKernel or DriverSimulated; simDir is the folder of the simulator, which
// is started if none runs there.
func Open(ctx context.Context, driver, simDir string) (*Node, error) {
	n := &Node{simDir: simDir}
	var err error
	if n.Runtime, err = sibling("qgpu-runtime"); err != nil {
		return nil, err
	}
	switch driver {
	case DriverAuto:
		if _, err := os.Stat("/dev/nvidiactl"); err != nil {
			return nil, errors.New("this machine has no NVIDIA driver (/dev/nvidiactl is missing): load it, or use --driver simulated for simulated cards")
		}
	case DriverKernel:
	case DriverSimulated:
		if err := n.openSimulator(ctx); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("--driver %s: choose auto, kernel or simulated", driver)
	}
	return n, n.readInventory(ctx)
}

// Attach is Open for who must not start a simulator. DriverAuto is the kernel's driver
// where there is one, and else a simulator that runs in simDir.
func Attach(ctx context.Context, driver, simDir string) (*Node, error) {
	if driver == DriverAuto {
		if _, err := os.Stat("/dev/nvidiactl"); err != nil {
			driver = DriverSimulated
		}
	}
	if driver == DriverSimulated {
		client := host.Client{Dir: simDir}
		if _, err := client.Info(); err != nil {
			return nil, err
		}
	}
	return Open(ctx, driver, simDir)
}

// sibling finds a program that is installed beside this one.
func sibling(name string) (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", err
	}
	path := filepath.Join(filepath.Dir(exe), name)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%s belongs beside %s: %w", name, filepath.Base(exe), err)
	}
	return path, nil
}

func (n *Node) openSimulator(ctx context.Context) (err error) {
	if n.simulator, err = sibling("qgpu-sim"); err != nil {
		return err
	}
	client := host.Client{Dir: n.simDir}
	n.sim, err = client.Info()
	if errors.Is(err, host.ErrNotRunning) {
		start := exec.CommandContext(ctx, n.simulator, "start", "--dir", n.simDir)
		if out, err := start.CombinedOutput(); err != nil {
			return fmt.Errorf("start the simulator: %s", strings.TrimSpace(string(out)))
		}
		n.sim, err = client.Info()
	}
	if err != nil {
		return err
	}
	n.userSpace, err = userspace.Find(n.sim.Version)
	return err
}

// readInventory asks the driver for its cards. Those that do not work serve nobody.
func (n *Node) readInventory(ctx context.Context) error {
	inv, err := n.source().Read(ctx)
	if err != nil {
		return err
	}
	n.Cards = inv.Cards
	n.Version, err = inv.DriverVersion()
	return err
}

func (n *Node) source() discovery.Source {
	s := discovery.Source{Runtime: n.Runtime}
	if n.sim != nil {
		s.Simulator, s.SimDir = n.simulator, n.simDir
	}
	return s
}

// onDriver is the command line that runs args as a client of the node's driver.
func (n *Node) onDriver(args ...string) []string { return n.source().OnDriver(args...) }

// DriverName is DriverKernel or DriverSimulated.
func (n *Node) DriverName() string {
	if n.sim == nil {
		return DriverKernel
	}
	return DriverSimulated
}

// Environ is env for a program on the node's cards: on simulated ones, NVIDIA's
// user space is in its paths.
func (n *Node) Environ(env []string) []string {
	if n.sim == nil {
		return env
	}
	return n.userSpace.Environ(env)
}

// PlacementCards are the node's cards as placement sees them.
func (n *Node) PlacementCards() []placement.Card {
	cards := make([]placement.Card, len(n.Cards))
	for i, c := range n.Cards {
		cards[i] = placement.Card{Index: c.Minor, UUID: c.UUID, Memory: share.Memory(c.Total - c.Reserved)}
	}
	return cards
}

// placementCards are the cards that a request may use: the one named by index
// or UUID, or all.
func (n *Node) placementCards(name string) ([]placement.Card, error) {
	cards := n.PlacementCards()
	if name == "" {
		return cards, nil
	}
	var known []string
	for _, c := range cards {
		if c.UUID == name || strconv.Itoa(c.Index) == name {
			return []placement.Card{c}, nil
		}
		known = append(known, fmt.Sprintf("%d (%s)", c.Index, c.UUID))
	}
	return nil, fmt.Errorf("--card %s: there is no such card; there are %s", name, strings.Join(known, ", "))
}

// hiddenDevices are what a tenant must not see of the machine's /dev.
var hiddenDevices = []string{"/dev/nvidia*", "/dev/dri"}

// view is the device view of a tenant on slices: its own cards' nodes and files.
func (n *Node) view(slices []placement.Slice, stateDir string) devfs.View {
	v := devfs.View{Files: map[string]string{}, Hide: hiddenDevices[:len(hiddenDevices):len(hiddenDevices)], Empty: []string{stateDir}}
	own := map[string]bool{"/dev/nvidiactl": true, "/dev/nvidia-uvm": true, "/dev/nvidia-uvm-tools": true}
	var foreign []string
	for _, c := range n.Cards {
		mine := false
		for _, s := range slices {
			mine = mine || s.UUID == c.UUID
		}
		if mine {
			own[fmt.Sprintf("/dev/nvidia%d", c.Minor)] = true
		} else {
			foreign = append(foreign, "/proc/driver/nvidia/gpus/"+c.Address, "/sys/bus/pci/devices/"+c.Address)
		}
	}
	if n.sim != nil {
		n.simulatedView(&v, own, foreign)
		return v
	}
	for path := range own {
		var st unix.Stat_t
		if unix.Stat(path, &st) == nil {
			v.Nodes = append(v.Nodes, devfs.Node{Path: path, Major: unix.Major(st.Rdev), Minor: unix.Minor(st.Rdev)})
		}
	}
	v.Hide = append(v.Hide, foreign...)
	return v
}

func (n *Node) simulatedView(v *devfs.View, own map[string]bool, foreign []string) {
	v.Empty = append(v.Empty, n.simDir)
	for _, node := range n.sim.Nodes {
		if own[node.Path] {
			v.Nodes = append(v.Nodes, node)
		}
	}
files:
	for path, content := range n.sim.Files {
		for _, dir := range foreign {
			if strings.HasPrefix(path, dir+"/") {
				continue files
			}
		}
		v.Files[path] = string(content)
	}
}
