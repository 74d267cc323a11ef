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

// Host serves one simulated driver.
type Host struct {
	driver *simgpu.Driver
	paths  paths
	log    *slog.Logger
}

// New makes a host of driver with cards card nodes. It lays out the driver's files
// under the folder tree, which must exist and is the caller's to remove.
func New(driver *simgpu.Driver, cards int, tree string, log *slog.Logger) (*Host, error) {
	nodes := []devfs.Node{
		{Path: "/dev/nvidiactl", Major: simgpu.MajorFrontend, Minor: simgpu.MinorControl},
		{Path: "/dev/nvidia-uvm", Major: simgpu.MajorUVM, Minor: 0},
		{Path: "/dev/nvidia-uvm-tools", Major: simgpu.MajorUVM, Minor: 1},
	}
	for i := range cards {
		nodes = append(nodes, devfs.Node{Path: fmt.Sprintf("/dev/nvidia%d", i), Major: simgpu.MajorFrontend, Minor: uint32(i)})
	}
	paths, err := newPaths(nodes, systemFiles(driver), tree)
	if err != nil {
		return nil, err
	}
	return &Host{driver: driver, log: log, paths: paths}, nil
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
	return listener.Serve(ctx, newPrompt(&handler{driver: h.driver, paths: h.paths, log: h.log}))
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
