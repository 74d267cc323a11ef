package simgpu

import (
	"encoding/binary"
	"errors"
	"testing"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/nvgpu"
)

// uvm makes a UVM call whose argument is v.
func uvm[T any](p *process, fd int32, cmd uint32, v *T) {
	p.t.Helper()
	b := make([]byte, max(int(p.d.abi.UVM[cmd].Size), len(bytesOf(v))))
	copy(b, bytesOf(v))
	if err := p.raw(fd, cmd, b); err != nil {
		p.t.Fatalf("UVM command %d: %v", cmd, err)
	}
	copy(bytesOf(v), b)
}

func (p *process) initUVM(flags uint64) int32 {
	p.t.Helper()
	fd := p.open("/dev/nvidia-uvm")
	a := nvgpu.UVM_INITIALIZE_PARAMS{Flags: flags}
	uvm(p, fd, uvmInitialize, &a)
	if status(a.RMStatus) != ok {
		p.t.Fatal(status(a.RMStatus))
	}
	return fd
}

func TestUVMInitialize(t *testing.T) {
	d := newDriver(t, testVersion, "t4")
	p := newProcess(t, d, 100)
	fd := p.open("/dev/nvidia-uvm")
	pageable := func() status {
		var a nvgpu.UVM_PAGEABLE_MEM_ACCESS_PARAMS
		uvm(p, fd, nvgpu.UVM_PAGEABLE_MEM_ACCESS, &a)
		return status(a.RMStatus)
	}
	initialize := func(flags uint64) status {
		a := nvgpu.UVM_INITIALIZE_PARAMS{Flags: flags}
		uvm(p, fd, uvmInitialize, &a)
		return status(a.RMStatus)
	}
	if s := pageable(); s != errIllegalAction {
		t.Errorf("a call before UVM_INITIALIZE: %v", s)
	}
	if s := initialize(0); s != ok {
		t.Fatal(s)
	}
	if s := initialize(0); s != ok {
		t.Errorf("initialising again with the same flags: %v", s)
	}
	if s := initialize(multiProcess); s != errInvalidArgument {
		t.Errorf("initialising again with other flags: %v", s)
	}
	if s := pageable(); s != ok {
		t.Error(s)
	}
	p.pid = 101
	if s := pageable(); s != errInvalidArgument {
		t.Errorf("a call of a process that the space is not bound to: %v", s)
	}
	fd = p.initUVM(multiProcess)
	p.pid = 102
	if s := pageable(); s != ok {
		t.Errorf("a call of another process in multi-process mode: %v", s)
	}
	if err := p.raw(fd, 9999, make([]byte, 64)); !errors.Is(err, unix.EINVAL) {
		t.Errorf("an unknown command: %v, want EINVAL", err)
	}
}

// externalMapping makes UVM_MAP_EXTERNAL_ALLOCATION in the layout of the version.
func externalMapping(d *Driver, base, length, offset uint64, client, memory uint32) []byte {
	b := make([]byte, d.abi.UVM[nvgpu.UVM_MAP_EXTERNAL_ALLOCATION].Size)
	binary.NativeEndian.PutUint64(b, base)
	binary.NativeEndian.PutUint64(b[8:], length)
	binary.NativeEndian.PutUint64(b[16:], offset)
	copy(b[24:], d.cards[0].uuid[:])
	tail := b[len(b)-24:]
	binary.NativeEndian.PutUint64(tail, 1)
	binary.NativeEndian.PutUint32(tail[8:], ^uint32(0))
	binary.NativeEndian.PutUint32(tail[12:], client)
	binary.NativeEndian.PutUint32(tail[16:], memory)
	return b
}

func TestChannelsSeeWhatUVMMaps(t *testing.T) {
	for _, version := range testVersions {
		d := newDriver(t, version, "t4")
		r := newRM(t, d, 100)
		ch := r.channel(0x40)
		fd := r.initUVM(0)
		uuid := d.cards[0].uuid

		reg := nvgpu.UVM_REGISTER_GPU_PARAMS{GPUUUID: uuid, RMCtrlFD: -1}
		uvm(r.process, fd, nvgpu.UVM_REGISTER_GPU, &reg)
		vas := nvgpu.UVM_REGISTER_GPU_VASPACE_PARAMS{GPUUUID: uuid, RMCtrlFD: r.ctl, HClient: rmHandle(r.client), HVASpace: rmHandle(0x42)}
		uvm(r.process, fd, nvgpu.UVM_REGISTER_GPU_VASPACE, &vas)
		if status(reg.RMStatus) != ok || status(vas.RMStatus) != ok {
			t.Fatal(status(reg.RMStatus), status(vas.RMStatus))
		}
		uvm(r.process, fd, nvgpu.UVM_REGISTER_GPU_VASPACE, &vas)
		if status(vas.RMStatus) != errInvalidDevice {
			t.Errorf("%s: registering an address space twice: %v", version, status(vas.RMStatus))
		}
		if _, s := r.video(0x30, mib); s != ok {
			t.Fatal(s)
		}
		const base = 0x7f0000000000
		mapIt := func(length, offset uint64) status {
			b := externalMapping(d, base, length, offset, r.client, 0x30)
			if err := r.raw(fd, nvgpu.UVM_MAP_EXTERNAL_ALLOCATION, b); err != nil {
				t.Fatal(err)
			}
			return status(binary.NativeEndian.Uint32(b[len(b)-4:]))
		}
		if s := mapIt(64*kib, 0); s != errInvalidAddress {
			t.Errorf("%s: mapping outside of any range: %v", version, s)
		}
		rng := nvgpu.UVM_CREATE_EXTERNAL_RANGE_PARAMS{Base: base, Length: 2 * mib}
		uvm(r.process, fd, nvgpu.UVM_CREATE_EXTERNAL_RANGE, &rng)
		if status(rng.RMStatus) != ok {
			t.Fatal(status(rng.RMStatus))
		}
		if s := mapIt(2*mib, 0); s != errInvalidOffset {
			t.Errorf("%s: mapping more than the object: %v", version, s)
		}
		if s := mapIt(64*kib, 128*kib); s != ok {
			t.Fatal(version, s)
		}

		m, as := body[*memory](r, 0x30), body[*addressSpace](r, 0x42)
		if _, err := m.bytes.WriteAt([]byte("hello"), 128*kib+7); err != nil {
			t.Fatal(err)
		}
		var got [5]byte
		if err := as.space.ReadAt(got[:], base+7); err != nil || string(got[:]) != "hello" {
			t.Errorf("%s: the channel's address space reads %q (%v)", version, got, err)
		}
		if body[*channel](r, ch) == nil {
			t.Error("the channel is gone")
		}
		free := nvgpu.UVM_FREE_PARAMS{Base: base, Length: 2 * mib}
		uvm(r.process, fd, nvgpu.UVM_FREE, &free)
		if err := as.space.ReadAt(got[:], base+7); err == nil && string(got[:]) == "hello" {
			t.Errorf("%s: what was freed can still be read", version)
		}
	}
}

func TestUVMProtectsOtherProcesses(t *testing.T) {
	d := newDriver(t, testVersion, "t4")
	victim, thief := newRM(t, d, 100), newRM(t, d, 200)
	if _, s := victim.video(0x30, mib); s != ok {
		t.Fatal(s)
	}
	fd := thief.initUVM(0)
	reg := nvgpu.UVM_REGISTER_GPU_PARAMS{GPUUUID: d.cards[0].uuid, RMCtrlFD: -1}
	uvm(thief.process, fd, nvgpu.UVM_REGISTER_GPU, &reg)
	rng := nvgpu.UVM_CREATE_EXTERNAL_RANGE_PARAMS{Base: 1 << 32, Length: mib}
	uvm(thief.process, fd, nvgpu.UVM_CREATE_EXTERNAL_RANGE, &rng)
	b := externalMapping(d, 1<<32, mib, 0, victim.client, 0x30)
	if err := thief.raw(fd, nvgpu.UVM_MAP_EXTERNAL_ALLOCATION, b); err != nil {
		t.Fatal(err)
	}
	if s := status(binary.NativeEndian.Uint32(b[len(b)-4:])); s != errInsufficientPermissions {
		t.Errorf("mapping another process's memory: %v, want %v", s, errInsufficientPermissions)
	}
}

func TestManagedMemoryIsTheFileAtItsOwnAddress(t *testing.T) {
	d := newDriver(t, testVersion, "t4")
	r := newRM(t, d, 100)
	r.channel(0x40)
	fd := r.initUVM(0)
	reg := nvgpu.UVM_REGISTER_GPU_PARAMS{GPUUUID: d.cards[0].uuid, RMCtrlFD: -1}
	uvm(r.process, fd, nvgpu.UVM_REGISTER_GPU, &reg)
	vas := nvgpu.UVM_REGISTER_GPU_VASPACE_PARAMS{GPUUUID: d.cards[0].uuid, HClient: rmHandle(r.client), HVASpace: rmHandle(0x42)}
	uvm(r.process, fd, nvgpu.UVM_REGISTER_GPU_VASPACE, &vas)

	const at = 0x555500000000
	if _, err := r.fds[fd].WriteAt([]byte("managed"), at); err != nil {
		t.Fatal(err)
	}
	as := body[*addressSpace](r, 0x42)
	var got [7]byte
	if err := as.space.ReadAt(got[:], at); err != nil || string(got[:]) != "managed" {
		t.Errorf("the card reads %q (%v)", got, err)
	}
}

func TestClosingTheUVMFileEndsItsSpace(t *testing.T) {
	d := newDriver(t, testVersion, "t4")
	r := newRM(t, d, 100)
	fd := r.initUVM(0)
	id, _ := r.FileOf(fd)
	page, err := unix.Mmap(int(r.fds[fd].Fd()), 1<<30, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	r.close(fd)
	seen := func() bool {
		d.lock()
		defer d.mu.Unlock()
		return d.files[id] != nil
	}
	if !seen() {
		t.Error("the UVM file is gone although it is still mapped")
	}
	if err := unix.Munmap(page); err != nil {
		t.Fatal(err)
	}
	if seen() {
		t.Error("the UVM file outlived its last descriptor and mapping")
	}
}
