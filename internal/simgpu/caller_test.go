package simgpu

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/nvgpu"

	"github.com/qgpu-project/qgpu/internal/nvabi"
)

// process is a Caller that exists in this process only: its memory is a list of
// buffers at made-up addresses, its descriptors are real files.
type process struct {
	t    testing.TB
	d    *Driver
	pid  int
	root bool // has CAP_SYS_ADMIN
	nice bool // has CAP_SYS_NICE

	fds    map[int32]*os.File
	nextFD int32
	memory map[uint64][]byte
	nextVA uint64
}

func newProcess(t testing.TB, d *Driver, pid int) *process {
	p := &process{t: t, d: d, pid: pid, fds: map[int32]*os.File{}, memory: map[uint64][]byte{}, nextVA: 1 << 20}
	t.Cleanup(p.exit)
	return p
}

func newDriver(t testing.TB, version string, models ...string) *Driver {
	v, err := nvabi.ParseVersion(version)
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Version: v, Log: slog.New(slog.DiscardHandler)}
	for _, m := range models {
		cfg.Cards = append(cfg.Cards, CardConfig{Model: m})
	}
	d, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

func (p *process) Process() (int, error) { return p.pid, nil }
func (p *process) Privileged() bool      { return p.root }
func (p *process) Nice() bool            { return p.nice }

// buffer gives b an address.
func (p *process) buffer(b []byte) uint64 {
	at := p.nextVA
	p.memory[at] = b
	p.nextVA += uint64(len(b)+0xfff)&^0xfff + 0x1000
	return at
}

func (p *process) at(addr uint64, n int) ([]byte, error) {
	for base, b := range p.memory {
		if addr >= base && addr-base <= uint64(len(b)) && uint64(n) <= uint64(len(b))-(addr-base) {
			return b[addr-base:][:n], nil
		}
	}
	return nil, fmt.Errorf("%#x is not mapped: %w", addr, unix.EFAULT)
}

func (p *process) ReadMemory(b []byte, addr uint64) error {
	m, err := p.at(addr, len(b))
	copy(b, m)
	return err
}

func (p *process) WriteMemory(b []byte, addr uint64) error {
	m, err := p.at(addr, len(b))
	copy(m, b)
	return err
}

func (p *process) FileOf(fd int32) (FileID, error) {
	f := p.fds[fd]
	if f == nil {
		return FileID{}, unix.EBADF
	}
	return Identify(int(f.Fd()))
}

func (p *process) ReplaceFile(fd int32, f *os.File) error {
	if p.fds[fd] == nil {
		return unix.EBADF
	}
	dup, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	p.fds[fd].Close()
	p.fds[fd] = os.NewFile(uintptr(dup), "replaced")
	return nil
}

// open opens a device file and returns its descriptor.
func (p *process) open(path string) int32 {
	p.t.Helper()
	n, known := p.d.Lookup(path)
	if !known {
		p.t.Fatalf("%s is no device file", path)
	}
	f, err := p.d.Open(p, n)
	if err != nil {
		p.t.Fatalf("opening %s: %v", path, err)
	}
	return p.install(f)
}

func (p *process) install(f *os.File) int32 {
	p.nextFD++
	p.fds[p.nextFD] = f
	return p.nextFD
}

func (p *process) close(fd int32) {
	p.fds[fd].Close()
	delete(p.fds, fd)
}

func (p *process) exit() {
	for fd := range p.fds {
		p.close(fd)
	}
}

// raw makes an ioctl of any argument, in place.
func (p *process) raw(fd int32, cmd uint32, arg []byte) error {
	p.t.Helper()
	id, err := p.FileOf(fd)
	if err != nil {
		p.t.Fatalf("descriptor %d: %v", fd, err)
	}
	at := p.buffer(arg)
	defer delete(p.memory, at)
	return p.d.Ioctl(p, id, cmd, at)
}

// bytesOf is the memory of a structure without pointers.
func bytesOf[T any](v *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v))
}

// ioctl makes a frontend ioctl whose argument is v.
func ioctl[T any](p *process, fd int32, nr uint32, v *T) error {
	p.t.Helper()
	return p.raw(fd, 3<<30|uint32(unsafe.Sizeof(*v))<<16|'F'<<8|nr, bytesOf(v))
}

// rmHandle is a handle of package nvgpu.
func rmHandle(v uint32) nvgpu.Handle { return nvgpu.Handle{Val: v} }

// alloc is RM_ALLOC with parameters v, or none.
func alloc[T any](p *process, fd int32, client, parent, handle, class uint32, v *T) (uint32, status) {
	p.t.Helper()
	a := nvgpu.NVOS64_PARAMETERS{
		HRoot: rmHandle(client), HObjectParent: rmHandle(parent), HObjectNew: rmHandle(handle), HClass: nvgpu.ClassID(class),
	}
	if v != nil {
		// The driver reads as much as the class says.
		b := make([]byte, max(int(p.d.abi.Classes[class].Size), int(unsafe.Sizeof(*v))))
		copy(b, bytesOf(v))
		at := p.buffer(b)
		defer delete(p.memory, at)
		defer copy(bytesOf(v), b)
		a.PAllocParms = nvgpu.P64(at)
		if err := ioctl(p, fd, nvgpu.NV_ESC_RM_ALLOC, &a); err != nil {
			p.t.Fatalf("RM_ALLOC of class %#x: %v", class, err)
		}
		copy(bytesOf(v), b)
		return a.HObjectNew.Val, status(a.Status)
	}
	if err := ioctl(p, fd, nvgpu.NV_ESC_RM_ALLOC, &a); err != nil {
		p.t.Fatalf("RM_ALLOC of class %#x: %v", class, err)
	}
	return a.HObjectNew.Val, status(a.Status)
}

func (p *process) free(fd int32, client, object uint32) status {
	p.t.Helper()
	a := nvgpu.NVOS00_PARAMETERS{HRoot: rmHandle(client), HObjectOld: rmHandle(object)}
	if err := ioctl(p, fd, nvgpu.NV_ESC_RM_FREE, &a); err != nil {
		p.t.Fatalf("RM_FREE: %v", err)
	}
	return status(a.Status)
}

// control is RM_CONTROL with parameters in b, in place.
func (p *process) control(fd int32, client, object, cmd uint32, b []byte) status {
	p.t.Helper()
	a := nvgpu.NVOS54_PARAMETERS{HClient: rmHandle(client), HObject: rmHandle(object), Cmd: cmd, ParamsSize: uint32(len(b))}
	if len(b) > 0 {
		at := p.buffer(b)
		defer delete(p.memory, at)
		a.Params = nvgpu.P64(at)
	}
	if err := ioctl(p, fd, nvgpu.NV_ESC_RM_CONTROL, &a); err != nil {
		p.t.Fatalf("RM_CONTROL %#x: %v", cmd, err)
	}
	return status(a.Status)
}

// Classes that tests allocate.
const (
	classRoot      = 0x0041
	classDevice    = 0x0080
	classSubdevice = 0x2080
	classVASpace   = 0x90f1
	classGroup     = 0xa06c
	classShare     = 0x9067
	classChannel   = 0xc46f
	classCompute   = 0xc5c0
	classUsermode  = 0xc461
	classEvent     = 0x0079
)

// rm is a process with a client, a device and a subdevice of its first card.
type rm struct {
	*process
	ctl, cardFD               int32
	client, device, subdevice uint32
}

func newRM(t testing.TB, d *Driver, pid int) *rm {
	t.Helper()
	r := &rm{process: newProcess(t, d, pid)}
	r.ctl = r.open("/dev/nvidiactl")
	r.cardFD = r.open("/dev/nvidia0")
	r.link(r.cardFD)
	r.client = r.must(alloc[uint32](r.process, r.ctl, 0, 0, 0, classRoot, nil))
	r.device = r.must(alloc(r.process, r.ctl, r.client, r.client, 0x10, classDevice, &nvgpu.NV0080_ALLOC_PARAMETERS{}))
	r.subdevice = r.must(alloc(r.process, r.ctl, r.client, r.device, 0x20, classSubdevice, &nvgpu.NV2080_ALLOC_PARAMETERS{}))
	return r
}

// body is what the driver keeps of the client's object h.
func body[T any](r *rm, h uint32) T {
	r.t.Helper()
	r.d.lock()
	defer r.d.mu.Unlock()
	_, b, is := find[T](r.d.clients[r.client], h)
	if !is {
		r.t.Fatalf("object %#x is not a %T", h, b)
	}
	return b
}

// link registers a file with the control file.
func (r *rm) link(fd int32) {
	r.t.Helper()
	if err := ioctl(r.process, fd, nvgpu.NV_ESC_REGISTER_FD, &nvgpu.IoctlRegisterFD{CtlFD: r.ctl}); err != nil {
		r.t.Fatalf("REGISTER_FD: %v", err)
	}
}

func (r *rm) must(handle uint32, s status) uint32 {
	r.t.Helper()
	if s != ok {
		r.t.Fatalf("status %v", s)
	}
	return handle
}

// video allocates video memory.
func (r *rm) video(handle uint32, size uint64) (nvgpu.NV_MEMORY_ALLOCATION_PARAMS, status) {
	r.t.Helper()
	p := nvgpu.NV_MEMORY_ALLOCATION_PARAMS{Size: size}
	_, s := alloc(r.process, r.ctl, r.client, r.device, handle, classVideoMemory, &p)
	return p, s
}

// fbInfo asks FB_GET_INFO_V2 for one number of KiB.
func (r *rm) fbInfo(index uint32) uint64 {
	r.t.Helper()
	const cmd = 0x20801303
	b := make([]byte, r.d.abi.Controls[cmd].Size)
	binary.NativeEndian.PutUint32(b, 1)
	binary.NativeEndian.PutUint32(b[4:], index)
	if s := r.control(r.ctl, r.client, r.subdevice, cmd, b); s != ok {
		r.t.Fatalf("FB_GET_INFO_V2: %v", s)
	}
	return uint64(binary.NativeEndian.Uint32(b[8:])) * kib
}

const (
	fbTotal = 0x08
	fbHeap  = 0x09
	fbFree  = 0x16
)

// hasClient reports whether a client exists once all closes have been seen.
func (d *Driver) hasClient(handle uint32) bool {
	d.lock()
	defer d.mu.Unlock()
	return d.clients[handle] != nil
}
