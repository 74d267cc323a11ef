package simgpu

import (
	"encoding/binary"
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// free is what the first card has left, once all closes have been seen.
func (d *Driver) free() uint64 {
	d.lock()
	defer d.mu.Unlock()
	return d.cards[0].fb.free()
}

// FuzzIoctl throws ioctls at the control and the card file of a process with
// objects of every kind. Each is a number, a file and an argument, which may point
// to parameters.
func FuzzIoctl(f *testing.F) {
	d := newDriver(f, testVersion, "t4")
	base := d.free()
	for nr := range d.frontend {
		for _, e := range d.abi.Frontend[nr] {
			f.Add(nr, e.Size, false, make([]byte, e.Size), make([]byte, 64))
		}
	}
	f.Add(uint8(0x2a), uint32(32), false, []byte{1, 0, 0xd0, 0xc1, 1, 0, 0xd0, 0xc1, 0x14, 2}, make([]byte, 256))
	f.Fuzz(func(t *testing.T, nr uint8, size uint32, onCard bool, arg, params []byte) {
		r := newRM(t, d, 100)
		r.channel(0x40)
		size &= 0x3fff
		b := make([]byte, size)
		copy(b, arg)
		r.adopt(b, r.buffer(params))
		fd := r.ctl
		if onCard {
			fd = r.cardFD
		}
		err := r.raw(fd, size<<16|uint32(nr), b)
		var errno unix.Errno
		if err != nil && !errors.As(err, &errno) {
			t.Errorf("an error that is no errno: %v", err)
		}
		r.exit()
		if got := d.free(); got != base {
			t.Fatalf("%d bytes free after the process's end, %d before", got, base)
		}
	})
}

// adopt puts what a fuzzer cannot guess into an argument: the client's handle in
// place of 0xff, and the address of parameters where pointers lie.
func (r *rm) adopt(b []byte, params uint64) {
	if len(b) >= 8 && b[0] == 0xff {
		binary.NativeEndian.PutUint32(b, r.client)
	}
	for _, off := range []int{16, 24} {
		if len(b) >= off+8 && b[off] == 0xff {
			binary.NativeEndian.PutUint64(b[off:], params)
		}
	}
}

// FuzzUVM throws commands at an initialised UVM file with a registered card.
func FuzzUVM(f *testing.F) {
	d := newDriver(f, testVersion, "t4")
	for cmd := range d.uvmCalls {
		f.Add(cmd, make([]byte, 64), uint64(0x7f0000000000), uint64(mib))
	}
	f.Fuzz(func(t *testing.T, cmd uint32, arg []byte, base, length uint64) {
		r := newRM(t, d, 100)
		defer r.exit()
		fd := r.initUVM(0)
		reg := make([]byte, 40)
		copy(reg, d.cards[0].uuid[:])
		if err := r.raw(fd, 37, reg); err != nil {
			t.Fatal(err)
		}
		rng := make([]byte, 24)
		binary.NativeEndian.PutUint64(rng, base)
		binary.NativeEndian.PutUint64(rng[8:], length)
		if err := r.raw(fd, 73, rng); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, max(len(arg), int(d.abi.UVM[cmd].Size)))
		copy(b, arg)
		_ = r.raw(fd, cmd, b)
	})
}
