package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/nvgpu"
)

// fill takes memory in pieces until the card is full or most bytes are held.
func (c *client) fill(piece, most uint64) (held uint64, last outcome) {
	for held+piece <= most {
		_, o := c.take(piece)
		if !o.ok() {
			return held, o
		}
		held += piece
	}
	return held, outcome{}
}

func bytesArg(args []string, i int) (uint64, error) {
	if len(args) <= i {
		return 0, fmt.Errorf("say how many MiB")
	}
	n, err := strconv.ParseUint(args[i], 10, 32)
	return n * mib, err
}

// hold takes so many MiB, makes a group, and answers each line of its input with a
// report on whether its objects still work.
func hold(r *report, args []string) error {
	size, err := bytesArg(args, 0)
	if err != nil {
		return err
	}
	c, err := newClient()
	if err != nil {
		return err
	}
	r.Client = c.root
	var o outcome
	if r.Held, o = c.fill(size, size); !o.ok() {
		return o.err("take memory")
	}
	const group = 0xd0000010
	if o := c.newGroup(group); !o.ok() {
		return o.err("make a group")
	}
	slice, _ := c.timeslice(group)
	if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
		return err
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		now := report{Process: r.Process, Held: r.Held, Client: c.root}
		after, o := c.timeslice(group)
		now.forbidden(o.ok() && after != slice, "the time slice became %d µs", after)
		now.allowed(o.ok(), "read the group's time slice: %v", o)
		handle, o := c.take(little)
		now.allowed(o.ok(), "take memory: %v", o)
		if o.ok() {
			o = c.free(handle)
			now.allowed(o.ok(), "free memory: %v", o)
		}
		fd, err := openFile("/dev/nvidiactl")
		now.allowed(err == nil, "open: %v", err)
		unix.Close(fd)
		if err := json.NewEncoder(os.Stdout).Encode(now); err != nil {
			return err
		}
	}
	os.Exit(0)
	return nil
}

// child takes memory itself and has a child process take some, too; both keep it.
func child(r *report, args []string) error {
	size, err := bytesArg(args, 0)
	if err != nil {
		return err
	}
	c, err := newClient()
	if err != nil {
		return err
	}
	var o outcome
	if r.Held, o = c.fill(size, size); !o.ok() {
		return o.err("take memory")
	}
	theirs, err := spawn(false, "hold", args[0])
	if err != nil {
		return err
	}
	r.Child = theirs.Process
	r.Held += theirs.Held
	return nil
}

// spawn starts this program again and reads its report. It goes on until this
// process ends, or longer with detach.
func spawn(detach bool, args ...string) (report, error) {
	var theirs report
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: detach}
	if _, err := cmd.StdinPipe(); err != nil {
		return theirs, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return theirs, err
	}
	if err := cmd.Start(); err != nil {
		return theirs, err
	}
	return theirs, json.NewDecoder(out).Decode(&theirs)
}

// generations has a child by fork, children by exec, and a daemon that belongs to
// nobody take all they can get: together they get what one would.
func generations(r *report, args []string) error {
	quota, err := bytesArg(args, 0)
	if err != nil {
		return err
	}
	c, err := newClient()
	if err != nil {
		return err
	}
	forked, err := c.forkAndTake(quota / 8)
	if err != nil {
		return err
	}
	r.allowed(forked, "take memory in a forked child")
	r.Held = quota / 8
	for _, detach := range []bool{false, true} {
		theirs, err := spawn(detach, "hold", fmt.Sprint(quota/4/mib))
		if err != nil {
			return err
		}
		r.allowed(theirs.Held == quota/4, "take memory in a child")
		r.Held += theirs.Held
	}
	own, last := c.fill(mib, quota)
	r.Held += own
	r.forbidden(last.ok() || r.Held > quota, "all generations together hold %d bytes", r.Held)
	_, err = spawn(true, "hold", "1")
	r.forbidden(err == nil, "one more generation took memory")
	return nil
}

// forkAndTake forks, without exec, and has the child take memory through the file
// it inherited. The child goes on until this process ends.
func (c *client) forkAndTake(size uint64) (bool, error) {
	c.next++
	params := c.memoryParams(size)
	arg := c.allocArg(device, nvgpu.NV01_MEMORY_LOCAL_USER, c.next, params)
	ctl, cmd, at := uintptr(c.ctl), uintptr(number(0x2b, len(arg))), uintptr(arg.address())
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return false, err
	}
	answer := []byte{1}
	from, to := uintptr(p[0]), uintptr(p[1])
	pid, _, errno := unix.RawSyscall(unix.SYS_FORK, 0, 0, 0)
	if errno != 0 {
		return false, errno
	}
	if pid == 0 { // with this thread alone: nothing but system calls from here on
		unix.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0)
		_, _, errno := unix.RawSyscall(unix.SYS_IOCTL, ctl, cmd, at)
		if errno == 0 && arg[28] == 0 && arg[29] == 0 {
			answer[0] = 0
		}
		unix.RawSyscall(unix.SYS_WRITE, to, uintptr(block(answer).address()), 1)
		unix.RawSyscall(unix.SYS_CLOSE, from, 0, 0)
		for {
			unix.RawSyscall(unix.SYS_PAUSE, 0, 0, 0)
		}
	}
	if _, err := unix.Read(p[0], answer); err != nil {
		return false, err
	}
	return answer[0] == 0, nil
}

// closes takes memory and closes its files without freeing anything, again and again,
// in the same process. The memory must come back for the next round.
func closes(r *report, args []string) error {
	quota, err := bytesArg(args, 0)
	if err != nil {
		return err
	}
	for range 32 {
		c, err := newClient()
		if err != nil {
			return err
		}
		held, o := c.fill(quota/4, quota*3/4)
		r.Tries++
		r.allowed(held == quota*3/4, "take memory that closed files gave back: %v", o)
		unix.Close(c.ctl)
		unix.Close(c.card)
	}
	return nil
}

// parents takes memory and frees what is above it.
func parents(r *report, _ []string) error {
	for round := range 30 {
		c, err := newClient()
		if err != nil {
			return err
		}
		if held, o := c.fill(16*mib, 256*mib); !o.ok() {
			return fmt.Errorf("round %d: after %d MiB: %v", round, held/mib, o)
		}
		r.Tries++
		switch round % 3 {
		case 0:
			r.allowed(c.free(device).ok(), "free the device")
		case 1:
			r.allowed(c.free(c.root).ok(), "free the client")
		default: // a duplicate keeps the memory
			other, err := clientOn(c.abi, c.ctl, c.card)
			if err != nil {
				return err
			}
			o := other.duplicate(0xd000b000, c.root, c.next)
			r.allowed(o.ok(), "duplicate: %v", o)
			r.allowed(c.free(c.root).ok(), "free the client")
			_, o = other.take(512*mib - 8*mib) // of 512: what is duplicated still counts
			r.forbidden(o.ok(), "took memory that a duplicate keeps")
			r.allowed(other.free(other.root).ok(), "free the other client")
		}
		unix.Close(c.ctl)
		unix.Close(c.card)
	}
	c, err := newClient()
	if err != nil {
		return err
	}
	_, o := c.take(512 * mib)
	r.allowed(o.ok(), "take the whole quota at the end: %v", o)
	r.Held = 512 * mib
	return nil
}

// managed maps managed memory within and beyond the quota.
func managed(r *report, args []string) error {
	quota, err := bytesArg(args, 0)
	if err != nil {
		return err
	}
	file, err := newUVM()
	if err != nil {
		return err
	}
	const base = uintptr(0x600000000000)
	mapAt := func(at, size uintptr) unix.Errno {
		_, _, errno := unix.Syscall6(unix.SYS_MMAP, at, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_FIXED, uintptr(file), at)
		return errno
	}
	piece := uintptr(quota / 8)
	for range 16 {
		for i := range uintptr(8) {
			r.allowed(mapAt(base+i*piece, piece) == 0, "map managed memory within the quota")
		}
		for i := range uintptr(8) {
			r.forbidden(mapAt(base+(8+i)*piece, piece) == 0, "mapped managed memory beyond the quota")
		}
		r.forbidden(mapAt(base, 16*piece) == 0, "mapped twice the quota")
		r.allowed(mapAt(base, 4*piece) == 0, "map the same place again")
		for i := range uintptr(8) {
			unix.RawSyscall(unix.SYS_MUNMAP, base+i*piece, piece, 0)
		}
	}
	r.allowed(mapAt(base, uintptr(quota)/2) == 0, "map half of the quota at the end")
	// What was unmapped comes back when there would not be enough without it.
	r.forbidden(mapAt(base+uintptr(quota), uintptr(quota)) == 0, "mapped more than the quota at the end")
	r.Held = quota / 2
	return nil
}

// threads has many threads take and give back memory at the same time.
func threads(r *report, args []string) error {
	quota, err := bytesArg(args, 0)
	if err != nil {
		return err
	}
	c, err := newClient()
	if err != nil {
		return err
	}
	const workers, rounds = 32, 40
	var mu sync.Mutex
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			own := *c
			own.next = 0xd1000000 + uint32(w)<<16
			mine := report{}
			for range rounds {
				_, o := own.take(2 * quota)
				mine.forbidden(o.ok(), "took twice the quota")
				handle, o := own.take(quota / workers)
				mine.allowed(o.ok(), "take a thread's part: %v", o)
				mine.allowed(!o.ok() || own.free(handle).ok(), "free it")
			}
			mu.Lock()
			defer mu.Unlock()
			r.Tries += mine.Tries
			r.Through += mine.Through
			r.Worked += mine.Worked
			r.Notes = append(r.Notes, mine.Notes...)
		})
	}
	wg.Wait()
	return nil
}

// churn goes through all stages of a program's life again and again, to be killed in
// any of them.
func churn(_ *report, _ []string) error {
	for {
		c, err := newClient()
		if err != nil {
			return err
		}
		file, err := newUVM()
		if err != nil {
			return err
		}
		c.newGroup(0xd0000010)
		for range 1 + rand.N(8) {
			c.take(uint64(1+rand.N(8)) * 8 * mib)
		}
		const at = uintptr(0x600000000000)
		unix.Syscall6(unix.SYS_MMAP, at, 16*mib, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_FIXED, uintptr(file), at)
		if rand.N(2) == 0 {
			c.free(c.root)
		}
		unix.RawSyscall(unix.SYS_MUNMAP, at, 16*mib, 0)
		for _, fd := range []int{c.ctl, c.card, file} {
			unix.Close(fd)
		}
	}
}
