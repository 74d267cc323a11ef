package simgpu

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/nvgpu"
)

const testVersion = "535.261.03"

func TestClientHandlesFollowOneAnother(t *testing.T) {
	d := newDriver(t, testVersion, "t4")
	p := newProcess(t, d, 100)
	ctl := p.open("/dev/nvidiactl")
	for want := uint32(0xc1d00001); want < 0xc1d00004; want++ {
		got, s := alloc[uint32](p, ctl, 0, 0, 0, classRoot, nil)
		if s != ok || got != want {
			t.Errorf("client handle %#x, status %v; want %#x", got, s, want)
		}
	}
}

func TestRefusals(t *testing.T) {
	d := newDriver(t, testVersion, "t4", "a100")
	r := newRM(t, d, 100)
	if _, s := r.video(0x30, mib); s != ok {
		t.Fatal(s)
	}
	other := newProcess(t, d, 200)
	otherCtl := other.open("/dev/nvidiactl")
	secondCtl := r.open("/dev/nvidiactl")

	device := func(instance uint32) *nvgpu.NV0080_ALLOC_PARAMETERS {
		return &nvgpu.NV0080_ALLOC_PARAMETERS{DeviceID: instance}
	}
	tests := []struct {
		name string
		want status
		do   func() status
	}{
		{"a handle that exists", errInsertDuplicateName, func() status {
			_, s := r.video(0x30, mib)
			return s
		}},
		{"a parent that does not exist", errInvalidObjectParent, func() status {
			_, s := alloc(r.process, r.ctl, r.client, 0x99, 0x31, classSubdevice, &nvgpu.NV2080_ALLOC_PARAMETERS{})
			return s
		}},
		{"another control file's client", errInvalidClient, func() status {
			_, s := alloc(r.process, secondCtl, r.client, r.client, 0x32, classDevice, device(0))
			return s
		}},
		{"another process's client by its handle", errInvalidClient, func() status {
			return other.control(otherCtl, r.client, r.client, 0x00000214, make([]byte, 256))
		}},
		{"a card whose file is not open", errInsufficientPermissions, func() status {
			_, s := alloc(r.process, r.ctl, r.client, r.client, 0x33, classDevice, device(1))
			return s
		}},
		{"a card that does not exist", errInvalidDevice, func() status {
			_, s := alloc(r.process, r.ctl, r.client, r.client, 0x33, classDevice, device(7))
			return s
		}},
		{"an unknown class", errInvalidClass, func() status {
			_, s := alloc[uint32](r.process, r.ctl, r.client, r.device, 0x34, 0xdead, nil)
			return s
		}},
		{"a class of another architecture", errInvalidClass, func() status {
			ch := r.channel(0x40)
			_, s := alloc(r.process, r.ctl, r.client, ch, 0x45, 0xc6c0, &nvgpu.NV_GR_ALLOCATION_PARAMETERS{})
			return s
		}},
		{"whole physical memory without privilege", errInsufficientPermissions, func() status {
			_, s := alloc(r.process, r.ctl, r.client, r.device, 0x35, 0x00c2, &[24]byte{})
			return s
		}},
		{"video memory that is not in video memory", errInvalidArgument, func() status {
			_, s := alloc(r.process, r.ctl, r.client, r.device, 0x36, classVideoMemory,
				&nvgpu.NV_MEMORY_ALLOCATION_PARAMS{Size: mib, Attr: 1 << attrLocationShift})
			return s
		}},
		{"more memory than the card has", errNoMemory, func() status {
			_, s := r.video(0x37, 20<<30)
			return s
		}},
		{"memory of no size", errInvalidArgument, func() status {
			_, s := r.video(0x38, 0)
			return s
		}},
		{"a control with parameters of a wrong size", errInvalidParamStruct, func() status {
			return r.control(r.ctl, r.client, r.client, 0x00000214, make([]byte, 255))
		}},
		{"an unknown control", errNotSupported, func() status {
			return r.control(r.ctl, r.client, r.subdevice, 0x2080fff0, nil)
		}},
		{"a control on an object of another class", errNotSupported, func() status {
			return r.control(r.ctl, r.client, r.device, 0x20801701, make([]byte, 16))
		}},
		{"restarting the runlist without privilege", errInsufficientPermissions, func() status {
			return r.control(r.ctl, r.client, 0x41, 0xa06f0111, make([]byte, 2))
		}},
		{"the TPC table, which is for the kernel", errInsufficientPermissions, func() status {
			r.root = true
			defer func() { r.root = false }()
			return r.control(r.ctl, r.client, r.device, 0x20801117, make([]byte, 1))
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r.t, other.t = t, t
			if got := test.do(); got != test.want {
				t.Errorf("status %v, want %v", got, test.want)
			}
		})
	}
}

func TestFreeingTakesTheSubtreeAndDependants(t *testing.T) {
	d := newDriver(t, testVersion, "t4")
	r := newRM(t, d, 100)
	before := r.fbInfo(fbFree)
	ch := r.channel(0x40)
	vas, group := uint32(0x42), uint32(0x43)
	r.must(alloc(r.process, r.ctl, r.client, ch, 0x45, classCompute, &nvgpu.NV_GR_ALLOCATION_PARAMETERS{}))
	if s := r.free(r.ctl, r.client, vas); s != ok {
		t.Fatal(s)
	}
	c := d.clients[r.client]
	for _, h := range []uint32{vas, group, ch, 0x45} {
		if c.objects[h] != nil {
			t.Errorf("object %#x outlived the address space that it depends on", h)
		}
	}
	if c.objects[r.subdevice] == nil {
		t.Error("freeing an address space took the subdevice")
	}
	if s := r.free(r.ctl, r.client, 0x7777); s != ok {
		t.Errorf("freeing what does not exist: %v", s)
	}
	r.free(r.ctl, r.client, 0x41) // the channel's USERD memory
	if got := r.fbInfo(fbFree); got != before {
		t.Errorf("%d bytes free after freeing everything, %d before", got, before)
	}
}

func TestLastCloseFreesEverything(t *testing.T) {
	d := newDriver(t, testVersion, "t4")
	watcher := newRM(t, d, 1)
	before := watcher.fbInfo(fbFree)

	r := newRM(t, d, 100)
	if _, s := r.video(0x30, 64*mib); s != ok {
		t.Fatal(s)
	}
	r.channel(0x40)
	dup, err := unix.FcntlInt(r.fds[r.ctl].Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	client := r.client
	r.exit()
	if !d.hasClient(client) {
		t.Error("the client is gone although a duplicate of its control file is open")
	}
	if watcher.fbInfo(fbFree) == before {
		t.Error("memory came back although a duplicate of the control file is open")
	}
	unix.Close(dup)
	if got := watcher.fbInfo(fbFree); got != before {
		t.Errorf("%d bytes free after the last close, %d before", got, before)
	}
	if d.hasClient(client) {
		t.Error("the client outlived its control file")
	}
}

func TestACardFileKeepsItsControlFile(t *testing.T) {
	d := newDriver(t, testVersion, "t4")
	r := newRM(t, d, 100)
	r.close(r.ctl)
	if !d.hasClient(r.client) {
		t.Fatal("the client is gone although a card file is linked to its control file")
	}
	r.close(r.cardFD)
	if d.hasClient(r.client) {
		t.Error("the client outlived the last file")
	}
}

func TestRegisterFD(t *testing.T) {
	d := newDriver(t, testVersion, "t4")
	p := newProcess(t, d, 100)
	ctl, card := p.open("/dev/nvidiactl"), p.open("/dev/nvidia0")
	register := func(fd, to int32) error {
		return ioctl(p, fd, nvgpu.NV_ESC_REGISTER_FD, &nvgpu.IoctlRegisterFD{CtlFD: to})
	}
	for _, test := range []struct {
		name   string
		fd, to int32
		fails  bool
	}{
		{"a file with itself", ctl, ctl, true},
		{"a control file with a card file", ctl, card, true},
		{"with no file", card, 99, true},
		{"a card file with a control file", card, ctl, false},
		{"a second time", card, ctl, true},
	} {
		if err := register(test.fd, test.to); (err != nil) != test.fails {
			t.Errorf("registering %s: %v", test.name, err)
		}
	}
}

func TestMapMemory(t *testing.T) {
	d := newDriver(t, testVersion, "t4")
	r := newRM(t, d, 100)
	if _, s := r.video(0x30, 64*kib); s != ok {
		t.Fatal(s)
	}
	mapIt := func(fd int32, length uint64) status {
		a := nvgpu.IoctlNVOS33ParametersWithFD{
			Params: nvgpu.NVOS33_PARAMETERS{HClient: rmHandle(r.client), HDevice: rmHandle(r.device), HMemory: rmHandle(0x30), Length: length},
			FD:     fd,
		}
		if err := ioctl(r.process, r.ctl, nvgpu.NV_ESC_RM_MAP_MEMORY, &a); err != nil {
			t.Fatal(err)
		}
		return status(a.Params.Status)
	}
	fd := r.open("/dev/nvidia0")
	if s := mapIt(fd, 128*kib); s != errInvalidLimit {
		t.Errorf("mapping more than the object: %v", s)
	}
	r.pid = 101
	if s := mapIt(fd, 64*kib); s != errInvalidClient {
		t.Errorf("mapping from another process than the client's: %v", s)
	}
	r.pid = 100
	if s := mapIt(fd, 64*kib); s != ok {
		t.Fatal(s)
	}
	view, err := unix.Mmap(int(r.fds[fd].Fd()), 0, 64*kib, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(view)
	view[5] = 0xa5
	m := body[*memory](r, 0x30)
	var b [1]byte
	if _, err := m.bytes.ReadAt(b[:], 5); err != nil || b[0] != 0xa5 {
		t.Errorf("the object holds %#x where the mapping wrote 0xa5 (%v)", b[0], err)
	}
	if s := mapIt(fd, 64*kib); s != errInvalidArgument {
		t.Errorf("mapping a second time on the same file: %v", s)
	}
}

func TestUnknownIoctls(t *testing.T) {
	d := newDriver(t, testVersion, "t4")
	p := newProcess(t, d, 100)
	ctl := p.open("/dev/nvidiactl")
	if err := p.raw(ctl, 0xc010464d, make([]byte, 16)); !errors.Is(err, unix.EINVAL) {
		t.Errorf("an unknown ioctl: %v, want EINVAL", err)
	}
	if err := p.raw(ctl, 0xc0184629, make([]byte, 24)); !errors.Is(err, unix.EINVAL) {
		t.Errorf("RM_FREE of a wrong size: %v, want EINVAL", err)
	}
	if err := d.Ioctl(p, FileID{Dev: 1, Ino: 2}, 0xc0104629, 0); err != unix.ENOTTY {
		t.Errorf("an ioctl on a foreign file: %v, want ENOTTY", err)
	}
	id, _ := p.FileOf(ctl)
	if err := d.Ioctl(p, id, 0xc0104629, 0x10); err != unix.EFAULT {
		t.Errorf("an argument that is not mapped: %v, want EFAULT", err)
	}
}

// channel makes a channel with an address space, a group and USERD memory of its
// own, whose handles follow h, and returns its handle.
func (r *rm) channel(h uint32) uint32 {
	r.t.Helper()
	if _, s := r.video(h+1, 64*kib); s != ok {
		r.t.Fatal(s)
	}
	r.must(alloc(r.process, r.ctl, r.client, r.device, h+2, classVASpace, &nvgpu.NV_VASPACE_ALLOCATION_PARAMETERS{}))
	r.must(alloc(r.process, r.ctl, r.client, r.device, h+3, classGroup,
		&nvgpu.NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS{HVASpace: rmHandle(h + 2), EngineType: engineGraphics}))
	p := nvgpu.NV_CHANNEL_ALLOC_PARAMS{GPFIFOOffset: 1 << 21, GPFIFOEntries: 1024, EngineType: engineGraphics}
	p.HUserdMemory[0] = rmHandle(h + 1)
	return r.must(alloc(r.process, r.ctl, r.client, h+3, h, classChannel, &p))
}
