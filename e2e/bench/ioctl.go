package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/nvgpu"

	"github.com/qgpu-project/qgpu/internal/nvabi"
)

// ioctlTimes is what one ioctl takes, in nanoseconds: medians over small batches,
// which other programs on the machine disturb less than a mean.
type ioctlTimes struct {
	// Kernel: FIONREAD on a pipe, which the kernel answers.
	Kernel float64 `json:"kernel_ns"`
	// Share: NV_ESC_RM_SHARE, which a mediator reads, checks and answers itself.
	Share float64 `json:"share_ns"`
	// Params: NV_ESC_SYS_PARAMS, the driver's simplest call.
	Params float64 `json:"params_ns"`
}

const (
	ioctlBatches = 64
	ioctlBatch   = 64
)

// measureKernelIoctl measures what needs no card.
func measureKernelIoctl(w io.Writer) error {
	runtime.LockOSThread()
	kernel, err := timeKernelIoctl()
	if err != nil {
		return err
	}
	return json.NewEncoder(w).Encode(ioctlTimes{Kernel: kernel})
}

// measureIoctls measures a client of the driver.
func measureIoctls(w io.Writer) error {
	runtime.LockOSThread()
	f, err := os.OpenFile("/dev/nvidiactl", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	ctl := int(f.Fd())
	root := make([]byte, unsafe.Sizeof(nvgpu.NVOS21_PARAMETERS{}))
	binary.NativeEndian.PutUint32(root[12:], nvgpu.NV01_ROOT_CLIENT)
	if err := ioctl(ctl, driverCommand(nvabi.EscRMAlloc, root), root); err != nil {
		return fmt.Errorf("make an RM client: %w", err)
	}
	share := make([]byte, 24)   // NVOS57_PARAMETERS
	copy(share, root[8:12])     // hClient
	copy(share[4:], root[8:12]) // hObject
	params := make([]byte, unsafe.Sizeof(nvgpu.IoctlSysParams{}))

	var t ioctlTimes
	if t.Kernel, err = timeKernelIoctl(); err != nil {
		return err
	}
	if t.Share, err = timeIoctl(ctl, driverCommand(nvabi.EscRMShare, share), share); err != nil {
		return err
	}
	if t.Params, err = timeIoctl(ctl, driverCommand(nvabi.EscSysParams, params), params); err != nil {
		return err
	}
	return json.NewEncoder(w).Encode(t)
}

func timeKernelIoctl() (float64, error) {
	var ends [2]int
	if err := unix.Pipe(ends[:]); err != nil {
		return 0, err
	}
	defer unix.Close(ends[0])
	defer unix.Close(ends[1])
	return timeIoctl(ends[0], unix.TIOCINQ, make([]byte, 4)) // FIONREAD
}

// driverCommand is _IOWR('F', nr, size of arg).
func driverCommand(nr uint8, arg []byte) uint32 {
	return 3<<30 | uint32(len(arg))<<16 | 'F'<<8 | uint32(nr)
}

func ioctl(fd int, cmd uint32, arg []byte) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(cmd), uintptr(unsafe.Pointer(&arg[0]))); errno != 0 {
		return fmt.Errorf("ioctl %#x: %w", cmd, errno)
	}
	return nil
}

func timeIoctl(fd int, cmd uint32, arg []byte) (float64, error) {
	var batches [ioctlBatches]time.Duration
	for i := range batches {
		start := time.Now()
		for range ioctlBatch {
			if err := ioctl(fd, cmd, arg); err != nil {
				return 0, err
			}
		}
		batches[i] = time.Since(start)
	}
	slices.Sort(batches[:])
	return float64(batches[ioctlBatches/2].Nanoseconds()) / ioctlBatch, nil
}
