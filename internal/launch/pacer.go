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

// packetPair is a connection between a mediator and its pacer.
func packetPair() (mediators, pacers *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make a socket pair: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "pacer"), os.NewFile(uintptr(fds[1]), "mediator"), nil
}

// spawnPacer starts the pacer of an admitted tenant, which reaches its mediator by link.
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
// files from descriptor 3 on; in the place of a nil file it has /dev/null.
func (n *Node) spawn(log *os.File, files []*os.File, args ...string) error {
	line := append([]string{"spawn", "--files", strconv.Itoa(len(files)), "--"}, n.onDriver(append([]string{n.Runtime}, args...)...)...)
	cmd := exec.Command(n.Runtime, line...)
	for _, f := range files {
		if f == nil {
			null, err := os.Open(os.DevNull)
			if err != nil {
				return err
			}
			defer null.Close()
			f = null
		}
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
	}
	cmd.Stderr = log
	return cmd.Run()
}
