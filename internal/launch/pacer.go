package launch

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/qgpu-project/qgpu/internal/tenant"
)

// PacerLinkFD is the pacer's inherited descriptor: a socket to the tenant's mediator.
const PacerLinkFD = 3

// startPacer starts the pacer of an admitted tenant and returns the socket through which
// its mediator reaches it. It does not wait: the mediator has the tenant's first channel
// group wait for the pacer's first order.
func startPacer(node *Node, a *tenant.Admission, stateDir string) (*os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make a socket pair: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "pacer"), os.NewFile(uintptr(fds[1]), "mediator")
	defer theirs.Close()
	if err := spawnPacer(node, a, theirs, stateDir); err != nil {
		ours.Close()
		return nil, fmt.Errorf("start the tenant's pacer: %w", err)
	}
	return ours, nil
}

func spawnPacer(node *Node, a *tenant.Admission, link *os.File, stateDir string) error {
	log, err := os.OpenFile(filepath.Join(a.Dir, "pacer.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	t := a.Tenant
	t.Program = nil // as long as it likes
	record, err := json.Marshal(t)
	if err != nil {
		return err
	}
	return node.spawn(log, []*os.File{link}, "pacer", "--record", string(record), "--boards", filepath.Join(stateDir, "cards"))
}

// spawn starts qgpu-runtime with args on the node's driver, as nobody's child. It inherits
// files from descriptor 3 on.
func (n *Node) spawn(log *os.File, files []*os.File, args ...string) error {
	line := append([]string{"spawn", "--files", strconv.Itoa(len(files)), "--"}, n.onDriver(append([]string{n.Runtime}, args...)...)...)
	cmd := exec.Command(n.Runtime, line...)
	cmd.ExtraFiles = files
	cmd.Stderr = log
	return cmd.Run()
}
