package seccomp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// programs are what runs under the filter, with arguments.
var programs = map[string]func(args []string) int{
	"calls":      callsProgram,
	"variants":   variantsProgram,
	"threads":    threadsProgram,
	"fork":       forkProgram,
	"exec":       execProgram,
	"orphan":     orphanProgram,
	"x32":        x32Program,
	"open":       openProgram,
	"full":       fullTableProgram,
	"replaced":   replacedProgram,
	"nested":     nestedProgram,
	"privileges": privilegesProgram,
	"mmap":       mmapProgram,
	"edge":       edgeProgram,
	"ioctls":     ioctlsProgram,
}

// call issues the notified ioctl: the first word of the argument is the key the
// handler sees, the second is set by it.
func call(fd int, cmd uintptr, key uint64) (result uintptr, reply uint64, errno unix.Errno) {
	buf := make([]byte, callSize)
	binary.LittleEndian.PutUint64(buf, key)
	result, _, errno = unix.Syscall(unix.SYS_IOCTL, uintptr(fd), cmd, uintptr(unsafe.Pointer(&buf[0])))
	return result, binary.LittleEndian.Uint64(buf[8:]), errno
}

// printCall prints "key: result reply errno".
func printCall(fd int, cmd uintptr, key uint64) {
	result, reply, errno := call(fd, cmd, key)
	fmt.Printf("%d: %d %d %d\n", key, int(result), reply, int(errno))
}

func memfd() int {
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
	if err != nil {
		panic(err)
	}
	return fd
}

// callsProgram calls from one thread: first key, number of calls.
func callsProgram(args []string) int {
	runtime.LockOSThread()
	fd := memfd()
	for i := range arg(args, 1) {
		printCall(fd, testCmd, uint64(arg(args, 0)+i))
	}
	return 0
}

// variantsProgram writes the command in ways the driver would not tell apart,
// and then two it would.
func variantsProgram([]string) int {
	fd := memfd()
	for i, cmd := range []uintptr{
		testCmd&^(0xff<<8) | 'X'<<8, // another type
		callSize<<16 | callNr,       // no type, no direction
		0xdeadbeef<<32 | testCmd,    // bits the kernel drops
		testCmd + 1,                 // another number
		testCmd + 8<<16,             // another size
	} {
		printCall(fd, cmd, uint64(i))
	}
	return 0
}

// threadsProgram calls from n threads at once, and then from the first again.
func threadsProgram(args []string) int {
	fd := memfd()
	n, calls := arg(args, 0), arg(args, 1)
	var wg sync.WaitGroup
	for i := range n {
		wg.Add(1)
		go func() {
			defer wg.Done()
			runtime.LockOSThread()
			for range calls {
				printCall(fd, testCmd, uint64(i))
			}
		}()
	}
	wg.Wait()
	return 0
}

// forkProgram calls from a forked child, with raw system calls alone.
func forkProgram([]string) int {
	runtime.LockOSThread()
	fd := memfd()
	var buf [callSize]byte
	buf[0] = 7
	cmd, p := uintptr(testCmd), uintptr(unsafe.Pointer(&buf[0]))
	child, _, _ := unix.RawSyscall(unix.SYS_FORK, 0, 0, 0)
	if child == 0 {
		result, _, _ := unix.RawSyscall(unix.SYS_IOCTL, uintptr(fd), cmd, p)
		for {
			unix.RawSyscall(unix.SYS_EXIT_GROUP, result, 0, 0)
		}
	}
	var status unix.WaitStatus
	unix.Wait4(int(child), &status, 0, nil)
	fmt.Println("child:", status.ExitStatus())
	return 0
}

// again starts this binary once more as another program (vfork and exec).
func again(program string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), envProgram+"="+program)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd
}

func execProgram([]string) int {
	if err := again("calls 5 1").Run(); err != nil {
		fmt.Println(err)
	}
	return 0
}

// orphanProgram leaves behind a child that calls once its parent is dead. The
// child learns of that by the end of its standard input.
func orphanProgram(args []string) int {
	if len(args) > 0 {
		io.Copy(io.Discard, os.Stdin)
		return callsProgram([]string{"6", "1"})
	}
	r, w, err := os.Pipe()
	if err != nil {
		return 1
	}
	_ = w // closed by this process's end
	cmd := again("orphan child")
	cmd.Stdin = r
	if err := cmd.Start(); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

func x32Program([]string) int {
	_, _, errno := unix.Syscall(x32Bit|unix.SYS_GETPID, 0, 0, 0)
	fmt.Println(int(errno))
	return 0
}

// openProgram opens made-up files and prints what it reads.
func openProgram(args []string) int {
	for _, path := range args {
		fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			fmt.Println(err)
			continue
		}
		flags, _ := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		buf := make([]byte, 64)
		n, err := unix.Pread(fd, buf, 0)
		fmt.Printf("%q %v cloexec=%v\n", buf[:max(n, 0)], err, flags&unix.FD_CLOEXEC != 0)
	}
	return 0
}

// fullTableProgram opens when its table of descriptors is full.
func fullTableProgram([]string) int {
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: 0}); err != nil {
		fmt.Println(err)
	}
	_, err := unix.Open("/made/up", unix.O_RDWR, 0)
	fmt.Println(err, errors.Is(err, unix.EMFILE))
	return 0
}

// replacedProgram makes calls on a file and prints the file's content after each.
func replacedProgram(args []string) int {
	fd := memfd()
	unix.Write(fd, []byte("before"))
	for i := range arg(args, 0) {
		result, reply, _ := call(fd, testCmd, uint64(i))
		for _, fd := range []int{fd, int(reply)} {
			buf := make([]byte, 64)
			n, err := unix.Pread(fd, buf, 0)
			fmt.Printf("%d %q %v\n", result, buf[:max(n, 0)], err)
		}
	}
	return 0
}

// nestedProgram tries to have a listener of its own.
func nestedProgram([]string) int {
	runtime.LockOSThread()
	_, err := Install(testFilter(), InstallOptions{})
	fmt.Println(errors.Is(err, unix.EBUSY), err)
	return 0
}

func privilegesProgram([]string) int {
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		if strings.HasPrefix(line, "NoNewPrivs:") {
			fmt.Print(line)
		}
	}
	return 0
}

func mmapProgram([]string) int {
	fd := memfd()
	for _, offset := range []uintptr{1<<40 - 4096, 1 << 40, 1<<41 + 4096} {
		_, _, errno := unix.Syscall6(unix.SYS_MMAP, 0, 4096, unix.PROT_READ, unix.MAP_SHARED, uintptr(fd), offset)
		fmt.Println(int(errno))
	}
	return 0
}

// edgeText is the length, with its NUL, of the string that edgeProgram passes.
const edgeText = 300

// edgeProgram passes a string that ends where its memory ends.
func edgeProgram([]string) int {
	m, err := unix.Mmap(-1, 0, 2*pageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return 1
	}
	if err := unix.Mprotect(m[pageSize:], unix.PROT_NONE); err != nil {
		return 1
	}
	text := m[pageSize-edgeText : pageSize]
	copy(text, strings.Repeat("x", edgeText-1))
	unix.Syscall(unix.SYS_IOCTL, uintptr(memfd()), testCmd, uintptr(unsafe.Pointer(&text[0])))
	return 0
}

// ioctlsProgram measures: "test" or "other" (a command that is not notified), and
// the number of ioctls. It prints the nanoseconds that one takes, by the median
// of small batches: a busy machine disturbs it less than the mean.
func ioctlsProgram(args []string) int {
	runtime.LockOSThread()
	const batch = 32
	fd := memfd()
	cmd := uintptr(testCmd)
	if args[0] == "other" {
		cmd++
	}
	buf := make([]byte, callSize)
	var batches []time.Duration
	for left := arg(args, 1); left > 0; left -= batch {
		began := time.Now()
		for range batch {
			unix.Syscall(unix.SYS_IOCTL, uintptr(fd), cmd, uintptr(unsafe.Pointer(&buf[0])))
		}
		batches = append(batches, time.Since(began)/batch)
	}
	slices.Sort(batches)
	fmt.Println(batches[len(batches)/2].Nanoseconds())
	return 0
}
