package gpucheck

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/nvgpu"

	"github.com/qgpu-project/qgpu/internal/nvabi"
	"github.com/qgpu-project/qgpu/internal/nvclient"
	"github.com/qgpu-project/qgpu/internal/privilege"
)

// Deed is what is to be done to another process's channels from outside.
type Deed struct {
	PID       int
	Timeslice uint64 // µs, for each of its groups; 0: leave it
	Gate      Gate
	Restart   bool // the runlists of its channels
	// User is whom the controls are called as, without any capability; 0: as root. The
	// process's files are duplicated as root in any case.
	User int
}

// Gate is what to do with a process's channels.
type Gate string

// Gates. The zero Gate leaves channels as they are.
const (
	Shut Gate = "shut"
	Open Gate = "open"
)

// Action is what came of a deed. The statuses are the driver's (NV_STATUS), one a channel
// group, list of channels or channel.
type Action struct {
	Client   uint32   `json:"client"`
	Groups   []uint32 `json:"groups"` // handles
	Channels []uint32 `json:"channels"`
	Before   []uint64 `json:"before"` // time slices, µs
	Set      []uint32 `json:"set_timeslice,omitempty"`
	Gated    []uint32 `json:"disable_channels,omitempty"`
	Restart  []uint32 `json:"restart_runlist,omitempty"`
	Error    string   `json:"error,omitempty"`
}

// Where handles lie: the driver numbers clients from clientBase (rs_client.h), and
// libcuda numbers its objects from objectBase, as seen of drivers 535 and 550.
const (
	clientBase = 0xc1d00000
	clientEnd  = clientBase + 1<<13
	objectBase = 0x5c000000
	objectEnd  = objectBase + 1<<10
)

const (
	setTimeslice   = 0xa06c0103
	getTimeslice   = 0xa06c0104
	submitToken    = 0xc36f0108 // GET_WORK_SUBMIT_TOKEN, which channels since Volta answer
	restartRunlist = 0xa06f0111
	attachedIDs    = 0x0201 // NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS, which any client may ask
	attachedIDsLen = 128

	invalidState = 0x40 // NV_ERR_INVALID_STATE, of a runlist that is being changed
)

// Act does a deed through duplicates of the process's control files, and to its channels by
// a client of its own, which names them. It finds out the process's handles by trying, so
// that need not be one that this program knows. It must be called on a thread that does
// nothing else afterwards.
func Act(d Deed) Action {
	var a Action
	files, err := controlFiles(d.PID)
	if err == nil && d.User != 0 {
		err = privilege.User(d.User, d.User, 0)
	}
	if err != nil {
		a.Error = err.Error()
		return a
	}
	for _, fd := range files {
		a.file(fd, d)
		unix.Close(fd)
	}
	if len(a.Groups) == 0 {
		a.Error = fmt.Sprintf("process %d has no channel group that could be found, in %d files", d.PID, len(files))
	}
	return a
}

// controlFiles duplicates the descriptors of a process that may be of
// /dev/nvidiactl; on the simulated driver these are pipes.
func controlFiles(pid int) ([]int, error) {
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, fmt.Errorf("open process %d: %w", pid, err)
	}
	defer unix.Close(pidfd)
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var files []int
	for _, entry := range entries {
		target, err := os.Readlink(dir + "/" + entry.Name())
		if err != nil || target != "/dev/nvidiactl" && !strings.HasPrefix(target, "pipe:") {
			continue
		}
		number, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		fd, err := unix.PidfdGetfd(pidfd, number, 0)
		if err != nil {
			return files, fmt.Errorf("duplicate descriptor %d of process %d: %w", number, pid, err)
		}
		if _, err := nvclient.Version(nvclient.Kernel{}, fd); err != nil {
			unix.Close(fd)
			continue
		}
		files = append(files, fd)
	}
	return files, nil
}

// file does d to the clients on one control file.
func (a *Action) file(fd int, d Deed) {
	ids := make([]byte, attachedIDsLen)
	for client := uint32(clientBase); client < clientEnd; client++ {
		if !succeeds(fd, client, client, attachedIDs, ids) {
			continue
		}
		a.Client = client
		a.client(fd, client, d)
	}
}

func (a *Action) client(fd int, client uint32, d Deed) {
	var us [8]byte
	value := (*uint64)(unsafe.Pointer(&us))
	var token [4]byte
	var channels []uint32
	for object := uint32(objectBase); object < objectEnd; object++ {
		if succeeds(fd, client, object, getTimeslice, us[:]) {
			a.Groups, a.Before = append(a.Groups, object), append(a.Before, *value)
			if d.Timeslice != 0 {
				*value = d.Timeslice
				a.Set = append(a.Set, statusOf(control(fd, client, object, setTimeslice, us[:])))
			}
		} else if succeeds(fd, client, object, submitToken, token[:]) {
			channels = append(channels, object)
		}
	}
	a.Channels = append(a.Channels, channels...)
	if d.Gate != "" {
		a.Gated = append(a.Gated, gate(client, channels, d.Gate)...)
	}
	if !d.Restart {
		return
	}
	// The groups of a client may be on several runlists: a restart for each channel.
	for _, object := range channels {
		a.Restart = append(a.Restart, restart(fd, client, object))
	}
}

// gate shuts channels of another client off, or lets them on again, from the next restart
// on, by a client of this process.
func gate(client uint32, channels []uint32, g Gate) []uint32 {
	own, err := nvclient.Open(nvclient.Kernel{}, nil)
	if err != nil {
		return []uint32{statusOf(0, err)}
	}
	defer own.Close()
	var list []nvclient.Channel
	for _, ch := range channels {
		list = append(list, nvclient.Channel{Client: client, Handle: ch})
	}
	best := []uint32{noCard}
	for i := range own.Cards() { // a card refuses channels that are not on it
		err := own.Disable(i, g == Shut, list)
		if err == nil {
			return []uint32{nvgpu.NV_OK}
		}
		var s nvclient.Status
		if errors.As(err, &s) {
			best = []uint32{uint32(s)}
		}
	}
	return best
}

// noCard stands for the status of a driver that shows no card.
const noCard = 0xffff

// restart asks for a restart of a channel's runlist, again if it is being changed.
func restart(fd int, client, object uint32) (status uint32) {
	for range 20 {
		params := []byte{0, 0} // bForceRestart, bBypassWait
		status = statusOf(control(fd, client, object, restartRunlist, params))
		if status != invalidState {
			break
		}
		time.Sleep(time.Millisecond)
	}
	return status
}

func succeeds(fd int, client, object, cmd uint32, params []byte) bool {
	s, err := control(fd, client, object, cmd, params)
	return err == nil && s == nvgpu.NV_OK
}

func statusOf(s uint32, err error) uint32 {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return 1<<31 | uint32(errno) // no NV_STATUS
	}
	return s
}

// control performs NV_ESC_RM_CONTROL.
func control(fd int, client, object, cmd uint32, params []byte) (status uint32, err error) {
	var pins runtime.Pinner
	defer pins.Unpin()
	pins.Pin(&params[0])
	arg := nvgpu.NVOS54_PARAMETERS{
		HClient: nvgpu.Handle{Val: client}, HObject: nvgpu.Handle{Val: object}, Cmd: cmd,
		Params: nvgpu.P64(uintptr(unsafe.Pointer(&params[0]))), ParamsSize: uint32(len(params)),
	}
	number := 3<<30 | uint32(unsafe.Sizeof(arg))<<16 | 'F'<<8 | uint32(nvabi.EscRMControl)
	err = nvclient.Kernel{}.Ioctl(fd, number, unsafe.Pointer(&arg))
	return arg.Status, err
}
