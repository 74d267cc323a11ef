package simgpu

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/nvgpu"
)

// eventFile turns a fresh card file into an event file.
func (r *rm) eventFile() int32 {
	r.t.Helper()
	fd := r.open("/dev/nvidia0")
	r.link(fd)
	a := nvgpu.IoctlAllocOSEvent{HClient: rmHandle(r.client), HDevice: rmHandle(r.device), FD: uint32(fd)}
	if err := ioctl(r.process, fd, nvgpu.NV_ESC_ALLOC_OS_EVENT, &a); err != nil || a.Status != 0 {
		r.t.Fatalf("ALLOC_OS_EVENT: %v, status %#x", err, a.Status)
	}
	return fd
}

func readable(t *testing.T, fd uintptr, wait time.Duration) bool {
	t.Helper()
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(p, int(wait.Milliseconds()))
	if err != nil {
		t.Fatal(err)
	}
	return n == 1
}

func TestInterruptsReachEvents(t *testing.T) {
	d := newDriver(t, testVersion, "t4")
	r := newRM(t, d, 100)
	fd := r.eventFile()
	p := nvgpu.NV0005_ALLOC_PARAMETERS{HParentClient: rmHandle(r.client), HClass: classEvent, Data: nvgpu.P64(fd)}
	// The object is made through the event file itself, as libcuda does.
	r.must(alloc(r.process, fd, r.client, r.subdevice, 0x50, classEvent, &p))
	if readable(t, r.fds[fd].Fd(), 0) {
		t.Error("an event file is readable although nothing happened")
	}
	d.mu.Lock()
	listeners := d.events.of(d.clients[r.client], d.cards[0])
	d.mu.Unlock()
	listeners.signal()
	if !readable(t, r.fds[fd].Fd(), time.Minute) {
		t.Error("an interrupt did not make the event file readable")
	}
	r.free(r.ctl, r.client, 0x50)
	if len(listeners.events) != 0 {
		t.Error("a freed event still listens")
	}
}

func TestEventFilesEndWithTheirControlFile(t *testing.T) {
	d := newDriver(t, testVersion, "t4")
	r := newRM(t, d, 100)
	fd := r.eventFile()
	id, err := r.FileOf(fd)
	if err != nil {
		t.Fatal(err)
	}
	if !d.Owns(id) {
		t.Fatal("the driver does not know its event file")
	}
	r.exit()
	d.lock()
	defer d.mu.Unlock()
	if n := len(d.files); n != 0 {
		t.Errorf("%d files are left after the process's end", n)
	}
}

func TestCallbacksAreForTheKernel(t *testing.T) {
	d := newDriver(t, testVersion, "t4")
	r := newRM(t, d, 100)
	for _, class := range []uint32{0x78, 0x7e} {
		p := nvgpu.NV0005_ALLOC_PARAMETERS{HParentClient: rmHandle(r.client), HClass: nvgpu.ClassID(class), Data: 0xffffffff81000000}
		if _, s := alloc(r.process, r.ctl, r.client, r.subdevice, 0x50, class, &p); s != errIllegalAction {
			t.Errorf("an event of class %#x: %v, want %v", class, s, errIllegalAction)
		}
	}
}
