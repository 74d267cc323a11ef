package simgpu

import (
	"testing"

	"gvisor.dev/gvisor/pkg/abi/nvgpu"
)

func TestLostCard(t *testing.T) {
	d := newDriver(t, testVersion, "t4", "a100")
	r := newRM(t, d, 100)
	if err := d.SetLost(2, true); err == nil {
		t.Error("a card that does not exist was lost")
	}
	if err := d.SetLost(0, true); err != nil {
		t.Fatal(err)
	}
	size := d.abi.Controls[nvgpu.NV2080_CTRL_CMD_GPU_GET_NAME_STRING].Size
	name := func() status {
		return r.control(r.ctl, r.client, r.subdevice, nvgpu.NV2080_CTRL_CMD_GPU_GET_NAME_STRING, make([]byte, size))
	}
	if s := name(); s != errGPUIsLost {
		t.Errorf("a control on a lost card: %v", s)
	}
	if _, s := r.video(0x30, mib); s != errGPUIsLost {
		t.Errorf("memory of a lost card: %v", s)
	}
	defer r.close(r.open("/dev/nvidia1"))
	if _, s := alloc(r.process, r.ctl, r.client, r.client, 0x40, classDevice, &nvgpu.NV0080_ALLOC_PARAMETERS{DeviceID: 1}); s != ok {
		t.Errorf("a device of another card: %v", s)
	}
	if _, s := alloc(r.process, r.ctl, r.client, r.client, 0x41, classDevice, &nvgpu.NV0080_ALLOC_PARAMETERS{}); s != errGPUIsLost {
		t.Errorf("a device of a lost card: %v", s)
	}
	if err := d.SetLost(0, false); err != nil {
		t.Fatal(err)
	}
	if s := name(); s != ok {
		t.Errorf("a control on a card that is back: %v", s)
	}
}
