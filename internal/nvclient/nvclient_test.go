package nvclient

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/nvgpu"
)

// rm is a driver with two cards that answers what the client asks.
type rm struct {
	version string
	files   map[int]string
	freed   int
	objects map[uint32]uint32            // handle to card, of subdevices
	refuse  map[uint32]Status            // controls by command, and allocations by class
	memory  map[uint32]map[uint32]uint64 // by card and process
	missing string                       // a path that cannot be opened
	samples func(p message)              // answers a request for utilisation
}

func newRM() *rm {
	return &rm{
		version: "535.309.01", files: make(map[int]string), objects: make(map[uint32]uint32),
		refuse: make(map[uint32]Status), memory: map[uint32]map[uint32]uint64{1: {42: 7 << 20}},
	}
}

func (r *rm) Open(path string, flags int) (int, error) {
	if path == r.missing || flags&unix.O_ACCMODE != unix.O_RDWR {
		return 0, unix.EACCES
	}
	fd := 10 + len(r.files) + r.freed
	r.files[fd] = path
	return fd, nil
}

func (r *rm) Close(fd int) error {
	if _, ok := r.files[fd]; !ok {
		return unix.EBADF
	}
	delete(r.files, fd)
	r.freed++
	return nil
}

func (r *rm) has(path string) bool {
	for _, p := range r.files {
		if p == path {
			return true
		}
	}
	return false
}

func (r *rm) Ioctl(fd int, cmd uint32, arg unsafe.Pointer) error {
	if r.files[fd] != "/dev/nvidiactl" || cmd>>30 != 3 || byte(cmd>>8) != 'F' {
		return unix.EINVAL
	}
	m := message(unsafe.Slice((*byte)(arg), cmd>>16&0x3fff))
	switch uint8(cmd) {
	case nrCheckVersion:
		if m.u32(0) != '2' {
			return unix.EINVAL
		}
		copy(m[8:], r.version+"\x00")
	case nrCardInfo:
		for i := range 2 {
			e := m[(3*i)*sizeCard:] // with a gap between the cards
			e[0], e[8], e[9], e[10] = 1, byte(0x3b+i), 2, 0
			e.setU32(16, uint32(0x3b00+i))
			e.setU32(56, uint32(i))
		}
	case nrFree:
		r.free(m.u32(8))
	case nrAlloc:
		r.alloc(m)
	case nrControl:
		r.control(m)
	default:
		return unix.EINVAL
	}
	return nil
}

// free frees the client, or a device with its subdevice.
func (r *rm) free(handle uint32) {
	if handle == 0xc1d00001 {
		clear(r.objects)
	}
	delete(r.objects, handle)
	delete(r.objects, handle-deviceHandle+subdeviceHandle)
}

func (r *rm) alloc(m message) {
	class := m.u32(12)
	if s, ok := r.refuse[class]; ok {
		m.setU32(28, uint32(s))
		return
	}
	p := *(*unsafe.Pointer)(unsafe.Pointer(&m[16]))
	switch class {
	case nvgpu.NV01_ROOT_CLIENT:
		m.setU32(8, 0xc1d00001)
	case nvgpu.NV01_DEVICE_0:
		// RM admits a process to a card only while it has its file open.
		card := *(*uint32)(p)
		if !r.has(fmt.Sprintf("/dev/nvidia%d", card)) {
			m.setU32(28, 0x1b)
		}
		r.objects[m.u32(8)] = card
	case nvgpu.NV20_SUBDEVICE_0:
		r.objects[m.u32(8)] = r.objects[m.u32(4)]
	}
}

func (r *rm) control(m message) {
	cmd := m.u32(8)
	if s, ok := r.refuse[cmd]; ok {
		m.setU32(28, uint32(s))
		return
	}
	p := message(unsafe.Slice(*(**byte)(unsafe.Pointer(&m[16])), m.u32(24)))
	card := r.objects[m.u32(4)]
	switch cmd {
	case nvgpu.NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2:
		p.setU32(8, p.u32(0)-0x3b00)
	case nvgpu.NV2080_CTRL_CMD_GPU_GET_NAME_STRING:
		copy(p[4:], "Tesla T4\x00")
	case nvgpu.NV2080_CTRL_CMD_GPU_GET_GID_INFO:
		copy(p[12:], fmt.Sprintf("GPU-00000000-0000-0000-0000-00000000000%d\x00", card))
	case nvgpu.NV2080_CTRL_CMD_FB_GET_INFO_V2:
		for i := range int(p.u32(0)) {
			p.setU32(8+8*i, map[uint32]uint32{fbTotalSize: 16 << 20, fbHeapSize: 15 << 20, fbHeapFree: 14 << 20}[p.u32(4+8*i)])
		}
	case nvgpu.NV2080_CTRL_CMD_PERF_GET_GPUMON_PERFMON_UTIL_SAMPLES_V2:
		r.samples(p)
	case nvgpu.NV2080_CTRL_CMD_GPU_GET_PID_INFO:
		e := p[8:]
		n := r.memory[card][e.u32(0)]
		// Half of it is mapped by UVM and so shared.
		for i := range 8 {
			e[pidPrivate+i] = byte((n / 2) >> (8 * i))
			e[pidShared+i] = byte((n / 2) >> (8 * i))
		}
	}
}

func TestSurvey(t *testing.T) {
	r := newRM()
	c, lost, err := Survey(r)
	if err != nil {
		t.Fatal(err)
	}
	cards, version := c.Cards(), c.Version()
	for i := range cards {
		if err := c.Check(i); err != nil {
			t.Errorf("card %d: %v", i, err)
		}
	}
	if err := c.Close(); err != nil || len(lost) != 0 {
		t.Errorf("lost %v, closed: %v", lost, err)
	}
	if version.String() != "535.309.01" || len(cards) != 2 {
		t.Fatalf("version %s, cards %+v", version, cards)
	}
	want := Card{
		Minor: 1, GPUID: 0x3b01, Address: "0000:3c:02.0", Instance: 1, UUID: "GPU-00000000-0000-0000-0000-000000000001",
		Name: "Tesla T4", Total: 16 << 30, Reserved: 1 << 30, Free: 14 << 30,
	}
	if cards[1] != want {
		t.Errorf("card %+v\nwant %+v", cards[1], want)
	}
	if len(r.files) != 0 || len(r.objects) != 0 {
		t.Errorf("left open: %v, %v", r.files, r.objects)
	}
}

func TestSurveyTellsLostCards(t *testing.T) {
	r := newRM()
	r.missing = "/dev/nvidia0"
	c, lost, err := Survey(r)
	if err != nil {
		t.Fatal(err)
	}
	if len(lost) != 1 || lost[0].Card.Minor != 0 || lost[0].Card.Address != "0000:3b:02.0" || !errors.Is(lost[0].Err, unix.EACCES) {
		t.Errorf("lost %+v", lost)
	}
	if cards := c.Cards(); len(cards) != 1 || cards[0].Minor != 1 || cards[0].UUID != "GPU-00000000-0000-0000-0000-000000000001" {
		t.Errorf("cards %+v", cards)
	}
	r.refuse[nvgpu.NV2080_CTRL_CMD_FB_GET_INFO_V2] = statusGPUIsLost
	if err := c.Check(0); !errors.Is(err, statusGPUIsLost) {
		t.Errorf("a card that fell off the bus: %v", err)
	}
	c.Close()
	c, lost, err = Survey(r)
	if err != nil || len(c.Cards()) != 0 || len(lost) != 2 {
		t.Fatalf("all cards lost: %v, %v, %v", c, lost, err)
	}
	if len(r.files) != 1 || len(r.objects) != 0 {
		t.Errorf("left of lost cards: %v, %v", r.files, r.objects)
	}
	c.Close()
}

func TestOpenTakesWantedCardsOnly(t *testing.T) {
	r := newRM()
	r.missing = "/dev/nvidia0"
	c, err := Open(r, func(minor int) bool { return minor == 1 })
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if len(c.Cards()) != 1 || c.Cards()[0].Minor != 1 {
		t.Errorf("cards %+v", c.Cards())
	}
	if n, err := c.ProcessMemory(0, 42); err != nil || n != 7<<20 {
		t.Errorf("memory of a process: %d, %v", n, err)
	}
	if n, err := c.ProcessMemory(0, 43); err != nil || n != 0 {
		t.Errorf("memory of another process: %d, %v", n, err)
	}
}

func TestErrors(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*rm)
		want   string
		status Status
	}{
		{"no driver", func(r *rm) { r.missing = "/dev/nvidiactl" }, "open /dev/nvidiactl", 0},
		{"nonsense for a version", func(r *rm) { r.version = "what" }, "no usable version", 0},
		{"an unknown version", func(r *rm) { r.version = "999.01.01" }, "999.01.01", 0},
		{"no client", func(r *rm) { r.refuse[nvgpu.NV01_ROOT_CLIENT] = 0x1a }, "make an RM client", 0x1a},
		{"no card file", func(r *rm) { r.missing = "/dev/nvidia1" }, "card 0000:3c:02.0 (/dev/nvidia1): open its device file", 0},
		{"no device", func(r *rm) { r.refuse[nvgpu.NV01_DEVICE_0] = 0x1b }, "make a device object", 0x1b},
		{"no memory info", func(r *rm) { r.refuse[nvgpu.NV2080_CTRL_CMD_FB_GET_INFO_V2] = 0x56 }, "ask for its memory", 0x56},
	} {
		r := newRM()
		tc.change(r)
		_, err := Open(r, nil)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", tc.name, err)
		}
		var s Status
		if tc.status != 0 && (!errors.As(err, &s) || s != tc.status) {
			t.Errorf("%s: status %v", tc.name, s)
		}
		if len(r.files) != 0 {
			t.Errorf("%s: left open: %v", tc.name, r.files)
		}
	}
}
