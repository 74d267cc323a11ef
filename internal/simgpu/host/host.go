// Package host lets processes use a simulated driver: it answers the system
// calls of seccomp-filtered processes from a simgpu.Driver, in one process or as
// a service that others attach to through a socket. It knows processes, files
// and paths; what the calls mean is the driver's.
package host

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/qgpu-project/qgpu/internal/devfs"
	"github.com/qgpu-project/qgpu/internal/nvabi"
	"github.com/qgpu-project/qgpu/internal/seccomp"
	"github.com/qgpu-project/qgpu/internal/simgpu"
)

// Device numbers of the nodes: nvidia-frontend's registered major, and one from
// the range that Linux assigns dynamically, as nvidia-uvm gets.
const (
	frontendMajor = 195
	controlMinor  = 255
	uvmMajor      = 510
)

// Host serves one simulated driver.
type Host struct {
	driver *simgpu.Driver
	paths  paths
	log    *slog.Logger
}

// New makes a host of driver with cards card nodes.
func New(driver *simgpu.Driver, cards int, log *slog.Logger) *Host {
	nodes := []devfs.Node{
		{Path: "/dev/nvidiactl", Major: frontendMajor, Minor: controlMinor},
		{Path: "/dev/nvidia-uvm", Major: uvmMajor, Minor: 0},
		{Path: "/dev/nvidia-uvm-tools", Major: uvmMajor, Minor: 1},
	}
	for i := range cards {
		nodes = append(nodes, devfs.Node{Path: fmt.Sprintf("/dev/nvidia%d", i), Major: frontendMajor, Minor: uint32(i)})
	}
	h := &Host{driver: driver, log: log, paths: paths{nodes: map[string]devfs.Node{}, files: systemFiles(driver)}}
	for _, n := range nodes {
		h.paths.nodes[n.Path] = n
	}
	return h
}

// systemFiles are the driver's files as this machine would show them:
// /proc/devices is the machine's own with the driver's lines added.
func systemFiles(driver *simgpu.Driver) map[string]string {
	const devices = "/proc/devices"
	files := maps.Clone(driver.Files())
	current, err := os.ReadFile(devices)
	if err != nil {
		current = []byte("Character devices:\n\nBlock devices:\n")
	}
	const head = "Character devices:\n"
	files[devices] = strings.Replace(string(current), head, head+files[devices], 1)
	return files
}

// View is the host's nodes and files as a device view for mount namespaces.
func (h *Host) View() devfs.View {
	return devfs.View{
		Nodes: slices.SortedFunc(maps.Values(h.paths.nodes), func(a, b devfs.Node) int { return strings.Compare(a.Path, b.Path) }),
		Files: h.paths.files,
	}
}

// Supervise answers the calls that listener reports until the last filtered
// process is gone or ctx ends.
func (h *Host) Supervise(ctx context.Context, listener *seccomp.Listener) error {
	return listener.Serve(ctx, &handler{driver: h.driver, paths: h.paths, log: h.log})
}

// Filter is the filter for processes that a host answers: calls on NVIDIA's
// device files. With paths, calls on file names too, for processes without a
// device view of their own.
func Filter(abi *nvabi.ABI, withPaths bool) seccomp.Filter {
	const pinFor = uint32(unsafe.Sizeof(simgpu.PinFor{}))<<16 | simgpu.IoctlPinFor
	numbers := append(abi.IoctlNumbers(), pinFor)
	rules := []seccomp.Rule{
		{Nr: unix.SYS_IOCTL, When: []seccomp.Condition{seccomp.MaskedIn(1, nvabi.IoctlMask, numbers...)}, Action: seccomp.Notify},
		{Nr: unix.SYS_IOCTL, When: []seccomp.Condition{seccomp.In(1, abi.UVMNumbers()...)}, Action: seccomp.Notify},
	}
	if withPaths {
		for _, nr := range slices.Sorted(maps.Keys(pathCalls)) {
			rules = append(rules, seccomp.Rule{Nr: nr, Action: seccomp.Notify})
		}
		return seccomp.Filter{Rules: rules}
	}
	const mode = unix.O_ACCMODE | unix.O_CREAT
	return seccomp.Filter{Rules: append(rules,
		seccomp.Rule{Nr: unix.SYS_OPENAT, When: []seccomp.Condition{seccomp.MaskedIn(2, mode, unix.O_RDWR)}, Action: seccomp.Notify},
		seccomp.Rule{Nr: unix.SYS_OPEN, When: []seccomp.Condition{seccomp.MaskedIn(1, mode, unix.O_RDWR)}, Action: seccomp.Notify},
	)}
}
