package simgpu

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/qgpu-project/qgpu/internal/nvabi"
)

var testVersions = []string{"535.261.03", "550.163.01"}

// objectsFor makes one object of every kind that has controls.
func objectsFor(r *rm) map[nvabi.Kind]uint32 {
	return map[nvabi.Kind]uint32{
		nvabi.KindRoot:         r.client,
		nvabi.KindDevice:       r.device,
		nvabi.KindSubdevice:    r.subdevice,
		nvabi.KindChannel:      r.channel(0x40),
		nvabi.KindAddressSpace: 0x42,
		nvabi.KindGroup:        0x43,
		nvabi.KindDebugger:     r.must(alloc(r.process, r.ctl, r.client, r.device, 0x46, 0x83de, &[12]byte{})),
	}
}

// TestEveryControlSurvivesAnything calls every control that the driver has, with
// parameters of zeros, of ones and of noise, and with pointers to small buffers.
func TestEveryControlSurvivesAnything(t *testing.T) {
	fillings := map[string]func(*rand.Rand, []byte){
		"zeros": func(_ *rand.Rand, b []byte) { clear(b) },
		"ones": func(_ *rand.Rand, b []byte) {
			for i := range b {
				b[i] = 0xff
			}
		},
		"noise": func(rnd *rand.Rand, b []byte) {
			for i := range b {
				b[i] = byte(rnd.Uint32())
			}
		},
		"small numbers": func(rnd *rand.Rand, b []byte) {
			clear(b)
			for i := 0; i+4 <= len(b); i += 4 {
				binary.NativeEndian.PutUint32(b[i:], rnd.Uint32N(4))
			}
		},
	}
	for _, version := range testVersions {
		d := newDriver(t, version, "t4", "a100")
		r := newRM(t, d, 100)
		r.root = true
		objects := objectsFor(r)
		buffer := r.buffer(make([]byte, 1<<12))
		for cmd := range d.controls {
			object, there := objects[targets[cmd>>16]]
			if !there {
				continue
			}
			abi, known := d.abi.Controls[cmd]
			sizes := []uint32{abi.Size}
			if !known || abi.Opaque {
				sizes = []uint32{0, 4, 8, 520, 1544}
			}
			for name, filling := range fillings {
				for _, size := range sizes {
					rnd := rand.New(rand.NewPCG(uint64(cmd), uint64(size)))
					b := make([]byte, size)
					filling(rnd, b)
					for _, ptr := range abi.Pointers {
						binary.NativeEndian.PutUint64(b[ptr.Offset:], buffer)
					}
					r.call(t, fmt.Sprintf("%s %#x of %d bytes of %s", version, cmd, size, name), object, cmd, b)
				}
			}
		}
	}
}

// call makes a control that may answer anything but must not panic.
func (r *rm) call(t *testing.T, what string, object, cmd uint32, b []byte) {
	t.Helper()
	defer func() {
		if p := recover(); p != nil {
			t.Errorf("%s: panic: %v", what, p)
		}
	}()
	r.control(r.ctl, r.client, object, cmd, b)
}

func TestEveryTableEntryIsKnown(t *testing.T) {
	for _, version := range testVersions {
		d := newDriver(t, version, "t4")
		for cmd := range d.controls {
			const display = 0x0073 // only nvidia-smi asks, and the tables leave it out
			if _, known := d.abi.Controls[cmd]; known || cmd&nvabi.GSSLegacy != 0 || cmd>>16 == display {
				continue
			}
			other := newDriver(t, otherVersion(version), "t4")
			if _, known := other.abi.Controls[cmd]; !known {
				t.Errorf("the driver answers control %#x, which no version has", cmd)
			}
		}
		for kind := range d.classes {
			if !hasKind(d.abi, kind) {
				t.Errorf("%s has no class of kind %d", version, kind)
			}
		}
	}
}

func otherVersion(v string) string {
	if v == testVersions[0] {
		return testVersions[1]
	}
	return testVersions[0]
}

func hasKind(abi *nvabi.ABI, kind nvabi.Kind) bool {
	for _, c := range abi.Classes {
		if c.Kind == kind {
			return true
		}
	}
	return false
}

func TestNestedBufferBounds(t *testing.T) {
	d := newDriver(t, testVersion, "t4")
	r := newRM(t, d, 100)
	const cmd = 0x20801201 // GR_GET_INFO: count, pointer to a list
	list := make([]byte, 16)
	binary.NativeEndian.PutUint32(list, 0x0c)     // SM_VERSION
	binary.NativeEndian.PutUint32(list[8:], 0x1d) // GPU_CORE_COUNT
	at := r.buffer(list)
	call := func(count uint32) status {
		b := make([]byte, 32)
		binary.NativeEndian.PutUint32(b, count)
		binary.NativeEndian.PutUint64(b[8:], at)
		return r.control(r.ctl, r.client, r.subdevice, cmd, b)
	}
	if s := call(2); s != ok {
		t.Fatal(s)
	}
	if sm, cores := binary.NativeEndian.Uint32(list[4:]), binary.NativeEndian.Uint32(list[12:]); sm != 0x705 || cores != 2560 {
		t.Errorf("SM version %#x, %d cores; want 0x705, 2560", sm, cores)
	}
	if s := call(3); s != errInvalidAddress {
		t.Errorf("a list that is not all mapped: %v, want %v", s, errInvalidAddress)
	}
	if s := call(1 << 30); s != errInvalidArgument {
		t.Errorf("a list of a gigabyte: %v, want %v", s, errInvalidArgument)
	}
}

func TestProcessesOfACard(t *testing.T) {
	d := newDriver(t, testVersion, "t4")
	a, b := newRM(t, d, 100), newRM(t, d, 200)
	a.channel(0x40)
	if _, s := a.video(0x30, 3*mib); s != ok {
		t.Fatal(s)
	}
	p := pids{Class: 0x2080}
	if s := b.control(b.ctl, b.client, b.subdevice, 0x2080018d, bytesOf(&p)); s != ok {
		t.Fatal(s)
	}
	if p.Count != 1 || p.PIDs[0] != 100 {
		t.Errorf("%d processes %v, want 100 alone", p.Count, p.PIDs[:p.Count])
	}
	var i pidInfo
	i.Count = 1
	i.List[0].PID = 100
	if s := b.control(b.ctl, b.client, b.subdevice, 0x2080018e, bytesOf(&i)); s != ok {
		t.Fatal(s)
	}
	if want := uint64(3*mib + 64*kib); i.List[0].Private != want {
		t.Errorf("process 100 uses %d bytes, want %d", i.List[0].Private, want)
	}
}

// TestTimeslices stores a time slice in a group and reads it back.
func TestTimeslices(t *testing.T) {
	d := newDriver(t, testVersion, "t4")
	r := newRM(t, d, 100)
	r.channel(0x40)
	us := uint64(1500)
	if s := r.control(r.ctl, r.client, 0x43, 0xa06c0103, bytesOf(&us)); s != ok {
		t.Fatal(s)
	}
	us = 0
	if s := r.control(r.ctl, r.client, 0x43, 0xa06c0104, bytesOf(&us)); s != ok || us != 1500 {
		t.Errorf("time slice %d µs, status %v; want 1500", us, s)
	}
	r.root = true
	refused := 0
	for range 64 {
		switch s := r.control(r.ctl, r.client, 0x40, 0xa06f0111, []byte{1, 0}); s {
		case ok:
		case errInvalidState:
			refused++
		default:
			t.Fatal(s)
		}
	}
	if refused == 0 || refused == 64 {
		t.Errorf("%d of 64 restarts of the runlist were refused, want some", refused)
	}
}
