package main

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/nvgpu"

	"github.com/qgpu-project/qgpu/internal/nvabi"
)

// The races take far more than the quota by a call whose arguments another thread
// changes all the while between harmless and harmful ones: what is checked may
// differ from what is executed. Each makes as many tries as its argument says.

const (
	little = 1 * mib
	much   = 1 << 30 // more than any quota that these attacks are run with
)

func tries(args []string) (int, error) {
	if len(args) == 0 {
		return 0, fmt.Errorf("say how many tries")
	}
	return strconv.Atoi(args[0])
}

// begin reads the number of tries and makes a client.
func begin(args []string) (n int, c *client, err error) {
	if n, err = tries(args); err != nil {
		return 0, nil, err
	}
	c, err = newClient()
	return n, c, err
}

// during runs flip again and again in another thread while f runs, at moments that
// are random against the calls. It rests a third of the time: others need the
// processors, too.
func during(flip func(odd bool), f func()) {
	var stop atomic.Bool
	done := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer close(done)
		for odd := false; !stop.Load(); time.Sleep(time.Microsecond) {
			for range rand.N(400) {
				odd = !odd
				flip(odd)
				for spin := rand.N(1000); spin > 0 && !stop.Load(); spin-- {
				}
			}
		}
	}()
	f()
	stop.Store(true)
	<-done
}

func word32(b block, off int) *uint32 { return (*uint32)(unsafe.Pointer(&b[off])) }
func word64(b block, off int) *uint64 { return (*uint64)(unsafe.Pointer(&b[off])) }

// flipSize flips the size in the parameters that the argument points to.
func flipSize(r *report, args []string) error {
	n, c, err := begin(args)
	if err != nil {
		return err
	}
	params := c.memoryParams(little)
	during(func(odd bool) {
		size := uint64(little)
		if odd {
			size = much
		}
		atomic.StoreUint64(word64(params, nvabi.MemorySize), size)
	}, func() {
		for range n {
			c.next++
			o := c.alloc(device, nvgpu.NV01_MEMORY_LOCAL_USER, c.next, params)
			taken := o.ok() && params.u64(nvabi.MemoryLimit)+1 > little
			r.forbidden(taken, "took %d bytes", params.u64(nvabi.MemoryLimit)+1)
			r.settle(c, o, taken)
		}
	})
	return nil
}

// settle frees what was taken rightly. What was not stays, for the driver to count.
func (r *report) settle(c *client, o outcome, wrong bool) {
	if !o.ok() || wrong {
		return
	}
	r.Worked++
	if o := c.free(c.next); !o.ok() {
		r.note("free: %v", o)
	}
}

// flipClass flips the class in the argument itself, between memory of the host, which
// is not charged, and the card's.
func flipClass(r *report, args []string) error {
	n, c, err := begin(args)
	if err != nil {
		return err
	}
	const size = much // no burden to the host: it is not touched
	params := c.memoryParams(size)
	arg := c.allocArg(device, nvgpu.NV01_MEMORY_SYSTEM, 0, params)
	const location = nvabi.AttrLocationPCI << nvabi.AttrLocationShift
	during(func(odd bool) {
		class, attr := uint32(nvgpu.NV01_MEMORY_SYSTEM), uint32(location)
		if odd {
			class, attr = nvgpu.NV01_MEMORY_LOCAL_USER, 0
		}
		atomic.StoreUint32(word32(params, nvabi.MemoryAttr), attr)
		atomic.StoreUint32(word32(arg, nvabi.NVOS64Class), class)
	}, func() {
		for range n {
			c.next++
			arg.set32(nvabi.NVOS64New, c.next)
			o := call(c.ctl, nvabi.EscRMAlloc, arg, 28, params)
			// Of host memory it succeeds: which it was is for the driver's count to tell,
			// so some are kept.
			r.Tries++
			if o.ok() {
				r.Worked++
			}
			if o.ok() && r.Worked%50 != 0 {
				c.free(c.next)
			}
		}
	})
	return nil
}

// flipControl flips a control between reading a group's time slice, which is allowed,
// and setting it.
func flipControl(r *report, args []string) error {
	n, c, err := begin(args)
	if err != nil {
		return err
	}
	const group, want = 0xd0000010, 77777
	if o := c.newGroup(group); !o.ok() {
		return o.err("make a group")
	}
	before, o := c.timeslice(group)
	if !o.ok() {
		return o.err("read the time slice")
	}
	params := make(block, 8)
	arg := c.controlArg(group, 0, params)
	during(func(odd bool) {
		cmd := uint32(nvgpu.NVA06C_CTRL_CMD_GET_TIMESLICE)
		if odd {
			cmd = nvgpu.NVA06C_CTRL_CMD_SET_TIMESLICE
		}
		atomic.StoreUint32(word32(arg, nvabi.NVOS54Cmd), cmd)
	}, func() {
		for range n {
			params.set64(0, want)
			if o := call(c.ctl, nvabi.EscRMControl, arg, 28, params); o.ok() {
				r.Worked++
			}
			if r.Tries%100 == 0 {
				now, o := c.timeslice(group)
				r.forbidden(!o.ok() || now != before, "the group's time slice became %d µs (%v)", now, o)
				continue
			}
			r.Tries++
		}
	})
	now, o := c.timeslice(group)
	r.forbidden(!o.ok() || now != before, "the group's time slice became %d µs (%v)", now, o)
	r.Tries-- // that was none
	return nil
}

// flipFile swaps the descriptor of the call between the control file and others.
func flipFile(r *report, args []string) error {
	n, c, err := begin(args)
	if err != nil {
		return err
	}
	null, err := openFile("/dev/null")
	if err != nil {
		return err
	}
	ctl := c.ctl
	const swapped = 100
	if err := unix.Dup3(ctl, swapped, unix.O_CLOEXEC); err != nil {
		return err
	}
	files := []int{ctl, null, c.card}
	at := 0
	during(func(bool) {
		at++
		unix.Dup3(files[at%len(files)], swapped, unix.O_CLOEXEC)
	}, func() {
		c.ctl = swapped
		for i := range n {
			size := uint64(little)
			if i%2 == 0 {
				size = much
			}
			_, o := c.take(size)
			r.forbidden(o.ok() && size == much, "took %d bytes", size)
			if o.ok() && size == little {
				// By the file that does not change, so that all comes back.
				r.Worked++
				c.ctl = ctl
				r.allowed(c.free(c.next).ok(), "free")
				c.ctl = swapped
			}
		}
	})
	return nil
}

// flipMapping swaps the descriptor of an mmap between a UVM file and an ordinary one.
// More managed memory than the quota must never be mapped.
func flipMapping(r *report, args []string) error {
	n, err := tries(args)
	if err != nil {
		return err
	}
	uvmFile, err := newUVM()
	if err != nil {
		return err
	}
	plain, err := unix.MemfdCreate("plain", unix.MFD_CLOEXEC)
	if err != nil {
		return err
	}
	if err := unix.Ftruncate(plain, 1<<46); err != nil {
		return err
	}
	const swapped, at = 100, 0x6000_0000_0000 >> 4
	if err := unix.Dup3(plain, swapped, unix.O_CLOEXEC); err != nil {
		return err
	}
	during(func(odd bool) {
		f := plain
		if odd {
			f = uvmFile
		}
		unix.Dup3(f, swapped, unix.O_CLOEXEC)
	}, func() {
		for i := range n {
			flags := uintptr(unix.MAP_SHARED)
			if i%2 == 0 {
				flags |= unix.MAP_FIXED_NOREPLACE
			}
			addr, _, errno := unix.Syscall6(unix.SYS_MMAP, at, much, unix.PROT_READ|unix.PROT_WRITE, flags, swapped, at)
			r.Tries++
			if errno != 0 {
				continue
			}
			managed, err := mappedUVM(uint64(addr))
			if err != nil || managed && addr == at {
				r.Through++
				r.note("mapped %d bytes of managed memory (%v)", uint64(much), err)
			}
			unix.RawSyscall(unix.SYS_MUNMAP, addr, much, 0)
		}
	})
	return nil
}

// mappedUVM reports whether a UVM file is mapped at an address.
func mappedUVM(addr uint64) (bool, error) {
	maps, err := readFile("/proc/self/maps")
	if err != nil {
		return false, err
	}
	for line := range strings.Lines(maps) {
		if strings.HasPrefix(line, fmt.Sprintf("%x-", addr)) {
			return strings.Contains(line, "nvidia-uvm"), nil
		}
	}
	return false, nil
}
