package mediator

import (
	"fmt"
	"strings"
	"sync"
	"unsafe"

	"github.com/qgpu-project/qgpu/internal/nvabi"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/nvgpu"
)

const (
	mib       = 1 << 20
	gib       = 1 << 30
	mediators = 4711 // the mediator's own process id to the fake driver
)

// fakeFile is an open file of the fake driver.
type fakeFile struct {
	ino  uint64
	path string
}

// fakeDriver behaves like RM and UVM for the calls the tests make: handles, parents,
// duplicates, memory and its count, and the identity of files.
type fakeDriver struct {
	mu      sync.Mutex
	version string
	cards   int
	total   uint64 // bytes of each card
	fds     map[int]*fakeFile
	nextFD  int
	nextIno uint64
	// swaps: MAP_MEMORY and ALLOC_OS_EVENT replace the file, as a simulated driver does.
	swaps  bool
	tenant *fakeTenant

	clients    map[uint32]map[uint32]*fakeObject
	nextClient uint32
	nextHandle uint32
	round      uint64 // allocations are rounded up to it
	calls      []string
	seen       map[uint32][]byte // parameters of each control as the driver saw them
	uvmSeen    map[uint32][]byte
	failAlloc  uint32 // status of the next memory allocation
	onExecute  func()
	pinned     []byte
	samples    func(message) // tells utilisation; nil: refused
}

type fakeObject struct {
	class, parent uint32
	memory        *fakeMemory
}

type fakeMemory struct {
	card  int
	bytes uint64
}

func newFakeDriver() *fakeDriver {
	return &fakeDriver{
		version: "535.309.01", cards: 2, total: 16 * gib,
		fds: make(map[int]*fakeFile), nextFD: 100, nextIno: 1,
		clients: make(map[uint32]map[uint32]*fakeObject), nextClient: 0xc1d00000, nextHandle: 0x5c000000,
		round: 64 << 10, seen: make(map[uint32][]byte), uvmSeen: make(map[uint32][]byte),
	}
}

func (d *fakeDriver) Open(path string, flags int) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var minor int
	switch {
	case path == "/dev/nvidiactl", path == "/dev/nvidia-uvm":
	case strings.HasPrefix(path, "/dev/nvidia"):
		if _, err := fmt.Sscanf(path, "/dev/nvidia%d", &minor); err != nil || minor >= d.cards {
			return 0, unix.ENOENT
		}
	default:
		return 0, unix.ENOENT
	}
	d.nextIno++
	return d.install(&fakeFile{ino: d.nextIno, path: path}), nil
}

func (d *fakeDriver) install(f *fakeFile) int {
	d.nextFD++
	d.fds[d.nextFD] = f
	return d.nextFD
}

func (d *fakeDriver) Close(fd int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := d.fds[fd]; !ok {
		return unix.EBADF
	}
	delete(d.fds, fd)
	return nil
}

func (d *fakeDriver) Stat(fd int) (Stat, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f, ok := d.fds[fd]
	if !ok {
		return Stat{}, unix.EBADF
	}
	return Stat{Dev: 9, Ino: f.ino}, nil
}

func (d *fakeDriver) Dup(fd int) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f, ok := d.fds[fd]
	if !ok {
		return 0, unix.EBADF
	}
	return d.install(f), nil
}

func (d *fakeDriver) Same(a, b int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.fds[a] == d.fds[b]
}

func (d *fakeDriver) open() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.fds)
}

func (d *fakeDriver) Ioctl(fd int, cmd uint32, arg unsafe.Pointer) error {
	if d.onExecute != nil {
		d.onExecute()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	f, ok := d.fds[fd]
	if !ok {
		return unix.EBADF
	}
	if f.path == "/dev/nvidia-uvm" {
		return d.uvm(cmd, arg)
	}
	a := message(unsafe.Slice((*byte)(arg), nvabi.IoctlSize(cmd)))
	nr := uint8(cmd)
	d.calls = append(d.calls, fmt.Sprintf("%#x", nr))
	switch nr {
	case nvabi.EscCheckVersionStr:
		a.setU32(4, 1)
		copy(a[8:], d.version+"\x00")
	case nvabi.EscCardInfo:
		for i := range d.cards {
			e := a[i*cardInfoSize:]
			e[0] = 1
			e[8] = byte(i + 1)
			e.setU32(cardInfoGPUID, fakeGPUID(i))
			e.setU64(cardInfoFB, d.total)
			e.setU32(cardInfoMinor, uint32(i))
		}
	case nvabi.EscRMAlloc:
		d.alloc(a)
	case nvabi.EscRMFree:
		d.free(a.u32(0), a.u32(8))
		a.setU32(12, 0)
	case nvabi.EscRMControl:
		d.control(a)
	case nvabi.EscRMDupObject:
		src := d.clients[a.u32(12)][a.u32(16)]
		if src == nil {
			a.setU32(24, statusNotFound)
			return nil
		}
		d.newHandle(a, 8)
		d.clients[a.u32(0)][a.u32(8)] = &fakeObject{class: src.class, parent: a.u32(4), memory: src.memory}
		a.setU32(24, 0)
	case nvabi.EscRMVidHeapControl:
		d.heap(a)
	case nvabi.EscRMMapMemory, nvabi.EscAllocOSEvent:
		off := 48
		if nr == nvabi.EscAllocOSEvent {
			off = 8
		}
		inner := int(int32(a.u32(off)))
		if _, ok := d.fds[inner]; !ok {
			return unix.EINVAL
		}
		if d.swaps {
			d.nextIno++
			d.tenant.swapped = d.nextIno
			d.fds[inner] = &fakeFile{ino: d.nextIno, path: "swapped"}
		}
	case nvabi.EscRegisterFD:
		if _, ok := d.fds[int(int32(a.u32(0)))]; !ok {
			return unix.EINVAL
		}
	case 0xFA:
		d.pinned = append([]byte(nil), unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&a[8]))), 56)...)
		d.pinned = append(d.pinned, a[:4]...)
	case nvabi.EscAttachGPUsToFD, nvabi.EscSysParams, nvabi.EscNUMAInfo, nvabi.EscRMUnmapMemory, nvabi.EscFreeOSEvent, nvabi.EscRMUpdateDeviceMappingInfo:
	case nvabi.EscRMAllocMemory:
		d.newHandle(a, 8)
		d.clients[a.u32(0)][a.u32(8)] = &fakeObject{class: a.u32(12), parent: a.u32(4)}
	default:
		return unix.EINVAL
	}
	return nil
}

func fakeGPUID(i int) uint32 { return uint32(0x100 * (i + 1)) }

func (d *fakeDriver) newHandle(a message, off int) {
	if a.u32(off) == 0 {
		d.nextHandle++
		a.setU32(off, d.nextHandle)
	}
}

func (d *fakeDriver) cardOf(client, handle uint32) int {
	for range 16 {
		o := d.clients[client][handle]
		if o == nil {
			return 0
		}
		if o.class == nvgpu.NV01_DEVICE_0 {
			return o.memory.card
		}
		handle = o.parent
	}
	return 0
}

func (d *fakeDriver) alloc(a message) {
	status := 28
	if len(a) == sizeNVOS64 {
		status = 40
	}
	a.setU32(status, 0)
	class := a.u32(allocClass)
	if class == nvgpu.NV01_ROOT || class == nvgpu.NV01_ROOT_CLIENT {
		d.nextClient++
		a.setU32(8, d.nextClient)
		d.clients[d.nextClient] = make(map[uint32]*fakeObject)
		return
	}
	objects, ok := d.clients[a.u32(0)]
	if !ok {
		a.setU32(status, statusInvalidClient)
		return
	}
	d.newHandle(a, 8)
	if _, ok := objects[a.u32(8)]; ok {
		a.setU32(status, 0x19)
		return
	}
	o := &fakeObject{class: class, parent: a.u32(4)}
	p := *(*unsafe.Pointer)(unsafe.Pointer(&a[allocParams]))
	switch class {
	case nvgpu.NV01_DEVICE_0:
		o.memory = &fakeMemory{}
		if p != nil {
			o.memory.card = int(*(*uint32)(p))
		}
	case nvgpu.NV01_MEMORY_LOCAL_USER:
		params := message(unsafe.Slice((*byte)(p), 120))
		if d.failAlloc != 0 {
			a.setU32(status, d.failAlloc)
			d.failAlloc = 0
			return
		}
		size := (params.u64(memorySize) + d.round - 1) / d.round * d.round
		params.setU64(memorySize, size)
		o.memory = &fakeMemory{card: d.cardOf(a.u32(0), a.u32(4)), bytes: size}
	case nvgpu.NV01_EVENT_OS_EVENT:
		if _, ok := d.fds[int(*(*uint64)(unsafe.Add(p, 16)))]; !ok {
			a.setU32(status, statusInvalidArgument)
			return
		}
	}
	objects[a.u32(8)] = o
}

func (d *fakeDriver) heap(a message) {
	a.setU32(20, 0)
	objects := d.clients[a.u32(0)]
	switch a.u32(heapFunction) {
	case heapAllocSize:
		if d.failAlloc != 0 {
			a.setU32(20, d.failAlloc)
			d.failAlloc = 0
			return
		}
		d.newHandle(a, heapHandle)
		o := &fakeObject{parent: a.u32(heapParent), class: nvgpu.NV01_MEMORY_SYSTEM}
		size := (a.u64(heapSize) + d.round - 1) / d.round * d.round
		if a.u32(heapFlags)&flagVirtual == 0 && a.u32(heapAttr)>>locationAt&3 != locationHost {
			o.class = nvgpu.NV01_MEMORY_LOCAL_USER
			o.memory = &fakeMemory{card: d.cardOf(a.u32(0), a.u32(heapParent)), bytes: size}
		}
		a.setU64(heapSize, size)
		objects[a.u32(heapHandle)] = o
	case heapFreeSize:
		d.free(a.u32(0), a.u32(heapHandle))
	case heapInfo:
		a.setU64(heapTotal, d.total)
		a.setU64(heapFree, d.total/2)
	}
}

func (d *fakeDriver) free(client, handle uint32) {
	if client == handle {
		delete(d.clients, client)
		return
	}
	objects := d.clients[client]
	delete(objects, handle)
	for h, o := range objects {
		if o.parent == handle {
			d.free(client, h)
		}
	}
}

// used is what the driver counts for the mediator's process.
func (d *fakeDriver) used(card int) uint64 {
	seen := make(map[*fakeMemory]bool)
	var sum uint64
	for _, objects := range d.clients {
		for _, o := range objects {
			if m := o.memory; m != nil && o.class == nvgpu.NV01_MEMORY_LOCAL_USER && m.card == card && !seen[m] {
				seen[m] = true
				sum += m.bytes
			}
		}
	}
	return sum
}

func (d *fakeDriver) control(a message) {
	a.setU32(28, 0)
	client, cmd := a.u32(0), a.u32(controlCmd)
	if _, ok := d.clients[client]; !ok {
		a.setU32(28, statusInvalidClient)
		return
	}
	var p message
	if ptr := *(*unsafe.Pointer)(unsafe.Pointer(&a[controlPtr])); ptr != nil {
		p = unsafe.Slice((*byte)(ptr), a.u32(controlSize))
	}
	d.seen[cmd] = append([]byte(nil), p...)
	card := d.cardOf(client, a.u32(controlObj))
	switch cmd {
	case nvgpu.NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2:
		p.setU32(8, p.u32(0)/0x100-1)
	case nvgpu.NV0000_CTRL_CMD_GPU_GET_PROBED_IDS, nvgpu.NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS:
		for i := range len(p) / 4 {
			p.setU32(4*i, 0xffffffff)
		}
		for i := range d.cards {
			p.setU32(4*i, fakeGPUID(i))
		}
	case nvgpu.NV2080_CTRL_CMD_GPU_GET_NAME_STRING:
		copy(p[4:], "Tesla T4\x00")
	case nvgpu.NV2080_CTRL_CMD_GPU_GET_GID_INFO:
		copy(p[12:], fmt.Sprintf("GPU-5a1dbeef-1122-4344-8566-7788990000%02x\x00", card))
	case nvgpu.NV2080_CTRL_CMD_FB_GET_INFO_V2:
		d.fbInfo(p[4:], p.u32(0), card)
	case nvgpu.NV2080_CTRL_CMD_FB_GET_INFO:
		list := *(*unsafe.Pointer)(unsafe.Pointer(&p[8]))
		if list == nil && p.u32(0) > 0 {
			a.setU32(28, statusInvalidArgument) // the driver cannot read it
			return
		}
		d.fbInfo(unsafe.Slice((*byte)(list), 8*p.u32(0)), p.u32(0), card)
	case nvgpu.NV2080_CTRL_CMD_GPU_GET_PIDS:
		p.setU32(8, 2)
		p.setU32(12, 99)
		p.setU32(16, mediators)
	case nvgpu.NV2080_CTRL_CMD_GPU_GET_PID_INFO:
		p.setU64(8+16, d.used(card))
	case nvgpu.NV2080_CTRL_CMD_PERF_GET_GPUMON_PERFMON_UTIL_SAMPLES_V2:
		if d.samples == nil {
			a.setU32(28, statusNotSupported)
			return
		}
		d.samples(p)
	}
}

func (d *fakeDriver) fbInfo(list message, n uint32, card int) {
	for i := range int(n) {
		v := uint32(d.total >> 10)
		if list.u32(8*i) == fbHeapFree {
			v = uint32((d.total - d.used(card)) >> 10)
		}
		list.setU32(8*i+4, v)
	}
}

func (d *fakeDriver) uvm(cmd uint32, arg unsafe.Pointer) error {
	abi, err := nvabi.For(nvabi.Version{Major: 535, Minor: 309, Patch: 1})
	if err != nil {
		return err
	}
	u := abi.UVM[cmd]
	d.calls = append(d.calls, u.Name)
	if u.Size > 0 {
		a := message(unsafe.Slice((*byte)(arg), u.Size))
		d.uvmSeen[cmd] = append([]byte(nil), a...)
		if u.Status != nvabi.None {
			a.setU32(u.Status, 0)
		}
	}
	return nil
}
