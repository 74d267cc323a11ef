package simgpu

import (
	"testing"
	"time"
)

// TestWhoMaySchedule: a time slice is anybody's to set, the restart that puts it into
// effect is not.
func TestWhoMaySchedule(t *testing.T) {
	for _, c := range []struct {
		name       string
		root, nice bool
		want       status
	}{
		{"anybody", false, false, errInsufficientPermissions},
		{"CAP_SYS_NICE", false, true, ok},
		{"CAP_SYS_ADMIN", true, false, ok},
	} {
		r := newRM(t, newDriver(t, testVersion, "t4"), 100)
		r.channel(0x40)
		r.root, r.nice = c.root, c.nice
		us := uint64(1500)
		if s := r.control(r.ctl, r.client, 0x43, 0xa06c0103, bytesOf(&us)); s != ok {
			t.Errorf("%s: SET_TIMESLICE: %v", c.name, s)
		}
		got := errInvalidState
		for got == errInvalidState { // as it is at times
			got = r.control(r.ctl, r.client, 0x40, 0xa06f0111, []byte{0, 0})
		}
		if got != c.want {
			t.Errorf("%s: RESTART_RUNLIST: %v, want %v", c.name, got, c.want)
		}
		// Another control of the driver's administrator stays that.
		if s := r.control(r.ctl, r.client, r.subdevice, 0x20801119, make([]byte, 4)); !c.root && s != errInsufficientPermissions {
			t.Errorf("%s: FIFO_GET_ALLOCATED_CHANNELS: %v", c.name, s)
		}
	}
}

// TestUsageNamesProcesses: an account begins with a process's first channel group and ends
// with its last.
func TestUsageNamesProcesses(t *testing.T) {
	d := newDriver(t, testVersion, "t4", "t4")
	r := newRM(t, d, 100)
	has := func() bool {
		_, yes := d.Usage()[0].Used[100]
		return yes
	}
	if has() {
		t.Error("a process without channels has an account")
	}
	r.channel(0x40)
	if !has() {
		t.Error("a process with a channel has no account")
	}
	before := d.Usage()[0].Now
	if after := d.Usage()[0].Now; after < before || before == 0 {
		t.Errorf("the card's clock went from %d to %d", before, after)
	}
	if n := len(d.Usage()[1].Used); n != 0 {
		t.Errorf("%d processes have an account on the other card", n)
	}
	r.exit()
	for has() { // the driver notices on a goroutine of its own
		time.Sleep(time.Millisecond)
	}
}
