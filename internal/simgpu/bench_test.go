package simgpu

import (
	"testing"

	"gvisor.dev/gvisor/pkg/abi/nvgpu"
)

// BenchmarkAllocate allocates, maps for a card and frees video memory, as cuMemAlloc
// and cuMemFree do.
func BenchmarkAllocate(b *testing.B) {
	d := newDriver(b, testVersion, "t4")
	r := newRM(b, d, 100)
	fd := r.initUVM(0)
	reg := nvgpu.UVM_REGISTER_GPU_PARAMS{GPUUUID: d.cards[0].uuid, RMCtrlFD: -1}
	uvm(r.process, fd, nvgpu.UVM_REGISTER_GPU, &reg)
	const base, size = 0x7f0000000000, 4 * mib
	for b.Loop() {
		if _, s := r.video(0x30, size); s != ok {
			b.Fatal(s)
		}
		rng := nvgpu.UVM_CREATE_EXTERNAL_RANGE_PARAMS{Base: base, Length: size}
		uvm(r.process, fd, nvgpu.UVM_CREATE_EXTERNAL_RANGE, &rng)
		if err := r.raw(fd, nvgpu.UVM_MAP_EXTERNAL_ALLOCATION, externalMapping(d, base, size, 0, r.client, 0x30)); err != nil {
			b.Fatal(err)
		}
		free := nvgpu.UVM_FREE_PARAMS{Base: base, Length: size}
		uvm(r.process, fd, nvgpu.UVM_FREE, &free)
		r.free(r.ctl, r.client, 0x30)
	}
}
