package main

import (
	"os"
	"os/signal"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/nvgpu"

	"github.com/qgpu-project/qgpu/internal/nvabi"
)

// storm allocates and frees while signals arrive every half millisecond, so many
// times as its first argument says. With a second argument, "plain", handlers do not
// have calls restarted, and this program repeats them itself.
func storm(r *report, args []string) error {
	n, c, err := begin(args)
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGALRM)
	if len(args) > 1 && args[1] == "plain" {
		if err := clearRestart(unix.SIGALRM); err != nil {
			return err
		}
	}
	const period = 500 // µs
	if err := setTimer(period); err != nil {
		return err
	}
	for i := range n {
		r.Tries++
		params := c.memoryParams(uint64(1+i%4) * mib)
		c.next++
		arg := c.allocArg(device, nvgpu.NV01_MEMORY_LOCAL_USER, c.next, params)
		o := r.repeated(c, nvabi.EscRMAlloc, arg, 28)
		runtime.KeepAlive(params)
		r.allowed(o.ok(), "allocation %d: %v", i, o)
		free := make(block, 16)
		free.set32(nvabi.NVOS00Root, c.root)
		free.set32(nvabi.NVOS00Old, c.next)
		o = r.repeated(c, nvabi.EscRMFree, free, 12)
		r.allowed(o.ok(), "free %d: %v", i, o)
	}
	if err := setTimer(0); err != nil {
		return err
	}
	r.Held, _ = c.fill(16*mib, 128*mib)
	return nil
}

// repeated makes a call until no signal interrupts it, as libcuda does.
func (r *report) repeated(c *client, nr uint8, arg block, statusAt int) outcome {
	for {
		o := call(c.ctl, nr, arg, statusAt)
		if o.errno != unix.EINTR {
			return o
		}
		r.Interrupted++
	}
}

// setTimer has SIGALRM sent to this process every so many µs; 0 ends that.
func setTimer(period int64) error {
	every := unix.NsecToTimeval(period * 1000)
	_, err := unix.Setitimer(unix.ItimerReal, unix.Itimerval{Interval: every, Value: every})
	return err
}

// clearRestart makes calls that the signal interrupts fail with EINTR.
func clearRestart(s unix.Signal) error {
	var action struct{ handler, flags, restorer, mask uint64 } // struct kernel_sigaction
	at := uintptr(unsafe.Pointer(&action))
	if _, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(s), 0, at, 8, 0, 0); errno != 0 {
		return errno
	}
	const restart = 0x10000000
	action.flags &^= restart
	if _, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(s), at, 0, 8, 0, 0); errno != 0 {
		return errno
	}
	return nil
}
