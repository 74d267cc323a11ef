package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// opening is a way to open a path.
type opening struct {
	name string
	open func(path string) (int, error)
}

func openings() []opening {
	with := func(flags int) func(string) (int, error) {
		return func(path string) (int, error) { return unix.Open(path, flags|unix.O_CLOEXEC, 0o600) }
	}
	return []opening{
		{"openat O_RDWR", with(unix.O_RDWR)},
		{"openat O_RDONLY", with(unix.O_RDONLY)},
		{"openat O_WRONLY", with(unix.O_WRONLY)},
		{"openat O_CREAT", with(unix.O_RDWR | unix.O_CREAT)},
		{"openat O_ACCMODE", with(unix.O_ACCMODE)},
		{"open", func(path string) (int, error) { return rawOpen(unix.SYS_OPEN, path, unix.O_RDWR) }},
		{"open O_RDONLY", func(path string) (int, error) { return rawOpen(unix.SYS_OPEN, path, unix.O_RDONLY) }},
		{"creat", func(path string) (int, error) { return rawOpen(unix.SYS_CREAT, path, 0o600) }},
		{"openat2", func(path string) (int, error) {
			return unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: unix.O_RDWR | unix.O_CLOEXEC})
		}},
		{"relative to a folder", relative},
		{"O_PATH and again by /proc/self/fd", reopened},
		{"a handle", byHandle},
	}
}

func rawOpen(nr uintptr, path string, flags uintptr) (int, error) {
	p, err := unix.BytePtrFromString(path)
	if err != nil {
		return -1, err
	}
	fd, _, errno := unix.Syscall(nr, uintptr(unsafe.Pointer(p)), flags, 0)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}

func relative(path string) (int, error) {
	dir, err := unix.Open(filepath.Dir(path), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(dir)
	return unix.Openat(dir, filepath.Base(path), unix.O_RDWR|unix.O_CLOEXEC, 0)
}

func reopened(path string) (int, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(fd)
	return unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDWR|unix.O_CLOEXEC, 0)
}

func byHandle(path string) (int, error) {
	h, _, err := unix.NameToHandleAt(unix.AT_FDCWD, path, 0)
	if err != nil {
		return -1, err
	}
	root, err := unix.Open("/", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(root)
	return unix.OpenByHandleAt(root, h, unix.O_RDWR)
}

// nodes tries to open device files: another card's in any way, and its own in any way
// that does not pass the mediator. Its argument is a folder to write in.
func nodes(r *report, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("name a folder")
	}
	const foreign, own = "/dev/nvidia1", "/dev/nvidia0"
	for _, path := range []string{foreign, "/dev/../dev/nvidia1", "/proc/self/root" + foreign, "/proc/1/root" + foreign,
		"//dev//nvidia1", "/dev/./nvidia1", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset", "/dev/nvidia01", "/dev/char/195:1",
		"/dev/nvidia-caps/nvidia-cap1", "/dev/dri/renderD128"} {
		for _, o := range openings() {
			fd, err := o.open(path)
			// O_CREAT makes an ordinary file, which is no way to a card.
			r.forbidden(err == nil && reachesCard(fd), "opened %s by %s", path, o.name)
			if err == nil {
				unix.Close(fd)
				os.Remove(path)
			}
		}
	}
	for _, o := range openings() {
		for _, path := range []string{own, "/dev/nvidiactl", "/dev/nvidia-uvm", "/proc/self/root" + own} {
			fd, err := o.open(path)
			r.forbidden(err == nil && isCharacterDevice(fd), "opened the node %s itself by %s", path, o.name)
			if err == nil {
				unix.Close(fd)
			}
		}
	}
	for i, major := range []uint32{195, 195, 195, 508, 510, 235} {
		minor := []uint32{0, 1, 255, 0, 0, 0}[i]
		for _, dir := range []string{args[0], "/dev", "/dev/shm", "/run"} {
			path := filepath.Join(dir, fmt.Sprintf("made-%d-%d", major, minor))
			err := unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(major, minor)))
			r.forbidden(err == nil, "made a node in %s", dir)
			os.Remove(path)
		}
	}
	links(r, args[0])
	fd, err := openFile(own)
	r.allowed(err == nil, "open the own card: %v", err)
	unix.Close(fd)
	return nil
}

// links opens nodes under other names, so that the mediator does not see what is meant.
func links(r *report, dir string) {
	for i, target := range []string{"/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl", "/dev/nvidia-uvm"} {
		link := filepath.Join(dir, fmt.Sprint("link", i))
		if err := os.Symlink(target, link); err != nil {
			r.note("link to %s: %v", target, err)
			continue
		}
		fd, err := unix.Open(link, unix.O_RDWR|unix.O_CLOEXEC, 0)
		r.forbidden(err == nil, "opened %s by a link", target)
		if err == nil {
			unix.Close(fd)
		}
		os.Remove(link)
	}
}

// reachesCard reports whether a file is a device file, the simulated driver's
// included, which are pipes and nameless files.
func reachesCard(fd int) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink == 0
}

func isCharacterDevice(fd int) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT == unix.S_IFCHR
}

// surroundings tries to undo the view and to reach mediators, its own and others'.
// Its argument is the state folder.
func surroundings(r *report, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("name the state folder")
	}
	state := args[0]
	for _, path := range []string{"/dev", "/proc/devices", "/proc/driver/nvidia", "/dev/nvidia0", state} {
		for _, flags := range []int{0, unix.MNT_DETACH, unix.MNT_FORCE} {
			r.forbidden(unix.Unmount(path, flags) == nil, "unmounted %s", path)
		}
	}
	r.forbidden(unix.Mount("/dev", "/mnt", "", unix.MS_BIND, "") == nil, "bound /dev elsewhere")
	r.forbidden(unix.Mount("", "/dev", "", unix.MS_REMOUNT|unix.MS_BIND, "") == nil, "mounted /dev with devices")
	hidden(r, state)
	found := mediators()
	r.allowed(len(found) > 0, "find the mediators' processes")
	for _, pid := range found {
		reach(r, pid)
	}
	for _, uid := range []int{2_000_000_000, 2_000_000_001} {
		_, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid))
		r.forbidden(errno == 0, "became the mediator's user %d", uid)
	}
	return userNamespace(r, state)
}

// mediators are the processes of mediators; who they are is no secret.
func mediators() []int {
	names, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	var pids []int
	for _, name := range names {
		line, err := os.ReadFile(name)
		if err != nil || !strings.Contains(string(line), "qgpu-runtime\x00mediator\x00") {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// reach tries to signal, trace and read a mediator.
func reach(r *report, mediator int) {
	r.forbidden(unix.Kill(mediator, 0) == nil, "may signal the mediator")
	r.forbidden(unix.PtraceAttach(mediator) == nil, "traces the mediator")
	if fd, err := unix.PidfdOpen(mediator, 0); err == nil {
		for target := range 16 {
			_, err := unix.PidfdGetfd(fd, target, 0)
			r.forbidden(err == nil, "took file %d of the mediator", target)
		}
		r.forbidden(unix.PidfdSendSignal(fd, 0, nil, 0) == nil, "may signal the mediator")
		unix.Close(fd)
	}
	for _, name := range []string{"mem", "maps", "environ", "root/etc/passwd", "cwd/etc/passwd", "fd/3", "fd/4", "fd/5", "fd/6"} {
		f, err := os.Open(fmt.Sprintf("/proc/%d/%s", mediator, name))
		if err != nil {
			r.forbidden(false, "")
			continue
		}
		_, err = f.Read(make([]byte, 1)) // some open for anybody and then give nothing
		r.forbidden(err == nil, "read %s of the mediator", name)
		f.Close()
	}
}

// hidden looks for other tenants' state.
func hidden(r *report, state string) {
	entries, err := os.ReadDir(state)
	r.forbidden(err == nil && len(entries) > 0, "sees the state folder")
	for _, root := range []string{"", "/proc/self/root", "/proc/1/root", fmt.Sprintf("/proc/%d/root", os.Getppid())} {
		found, _ := filepath.Glob(root + state + "/tenants/*")
		r.forbidden(len(found) > 0, "sees tenants under %s/", root)
		for _, dir := range found {
			conn, err := net.Dial("unix", filepath.Join(dir, "control.sock"))
			r.forbidden(err == nil, "reached a control socket")
			if err == nil {
				conn.Close()
			}
		}
	}
	text, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		return
	}
	for line := range bytes.Lines(text) {
		if _, path, ok := strings.Cut(strings.TrimSpace(string(line)), " "+state); ok {
			_, err := net.Dial("unix", state+path)
			r.forbidden(err == nil, "reached the socket %s", state+path)
		}
	}
}

// userNamespace becomes root of a user namespace, with all capabilities there, and
// tries to take the view away.
func userNamespace(r *report, state string) error {
	script := fmt.Sprintf(`umount -l /dev/nvidia0 || umount -l /dev || umount -l /proc/driver/nvidia || umount -l %s || `+
		`mknod /tmp/attack-node c 195 0 || mount -t devtmpfs none /mnt || { mount -t tmpfs none /mnt && mknod /mnt/node c 195 0; }`, state)
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1}},
	}
	err := cmd.Run()
	r.forbidden(err == nil, "undid the view in a user namespace")
	return nil
}
