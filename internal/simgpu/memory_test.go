package simgpu

import (
	"testing"

	"gvisor.dev/gvisor/pkg/abi/nvgpu"
	"pgregory.net/rapid"
)

func TestRoundedSize(t *testing.T) {
	for _, test := range []struct {
		size uint64
		attr uint32
		want uint64
		fits bool
	}{
		{1, 0, 64 * kib, true},
		{64 * kib, 0, 64 * kib, true},
		{64*kib + 1, 0, 128 * kib, true},
		{1, attrPageSize4K << attrPageSizeShift, 4 * kib, true},
		{1, attrPageSizeBig << attrPageSizeShift, 64 * kib, true},
		{1, attrPageSizeHuge << attrPageSizeShift, 2 * mib, true},
		{0, 0, 0, false},
		{^uint64(0), 0, 0, false},
	} {
		got, fits := roundedSize(test.size, test.attr)
		if got != test.want || fits != test.fits {
			t.Errorf("roundedSize(%#x, %#x) = %#x, %v; want %#x, %v", test.size, test.attr, got, fits, test.want, test.fits)
		}
	}
}

// TestMemoryAddsUp allocates and frees at random, by both ways and from several
// clients, beside a model that only adds and subtracts.
func TestMemoryAddsUp(t *testing.T) {
	for _, version := range []string{"535.261.03", "550.163.01"} {
		t.Run(version, func(t *testing.T) {
			d := newDriver(t, version, "t4")
			watcher := newRM(t, d, 1)
			base := watcher.fbInfo(fbFree)
			rapid.Check(t, func(rt *rapid.T) {
				l := &ledgerModel{rm: watcher, d: d, t: t, free: base, base: base}
				defer l.exitAll()
				rt.Repeat(map[string]func(*rapid.T){
					"":         l.check,
					"start":    l.start,
					"exit":     l.exit,
					"allocate": l.allocate,
					"heap":     l.allocateFromHeap,
					"dup":      l.duplicate,
					"free":     l.release,
				})
			})
		})
	}
}

type ledgerModel struct {
	rm         *rm
	d          *Driver
	t          *testing.T
	base, free uint64
	tenants    []*tenant
	pids       int
}

type tenant struct {
	*rm
	refs map[uint32]*block
	next uint32
}

// block is memory as the model has it.
type block struct {
	size uint64
	refs int
}

func (l *ledgerModel) check(rt *rapid.T) {
	if got := l.rm.fbInfo(fbFree); got != l.free {
		rt.Fatalf("%d bytes free, want %d", got, l.free)
	}
	if total, heap := l.rm.fbInfo(fbTotal), l.rm.fbInfo(fbHeap); total-heap != teslaT4().Reserved || heap < l.free {
		rt.Fatalf("total %d, heap %d, free %d do not add up", total, heap, l.free)
	}
}

func (l *ledgerModel) start(rt *rapid.T) {
	if len(l.tenants) == 4 {
		rt.Skip("enough")
	}
	l.pids++
	l.tenants = append(l.tenants, &tenant{rm: newRM(l.t, l.d, 100+l.pids), refs: map[uint32]*block{}, next: 0x1000})
}

func (l *ledgerModel) pick(rt *rapid.T) *tenant {
	if len(l.tenants) == 0 {
		rt.Skip("nobody")
	}
	return l.tenants[rapid.IntRange(0, len(l.tenants)-1).Draw(rt, "tenant")]
}

func (l *ledgerModel) drop(b *block) {
	if b.refs--; b.refs == 0 {
		l.free += b.size
	}
}

func (l *ledgerModel) exit(rt *rapid.T) {
	n := l.pick(rt)
	n.rm.exit()
	for _, b := range n.refs {
		l.drop(b)
	}
	for i, other := range l.tenants {
		if other == n {
			l.tenants = append(l.tenants[:i], l.tenants[i+1:]...)
			break
		}
	}
}

func (l *ledgerModel) exitAll() {
	for _, n := range l.tenants {
		n.rm.exit()
	}
	if got := l.rm.fbInfo(fbFree); got != l.base {
		l.t.Errorf("%d bytes free at the end, %d at the beginning", got, l.base)
	}
}

func drawSize(rt *rapid.T) uint64 {
	return rapid.OneOf(rapid.Uint64Range(1, 4*mib), rapid.Uint64Range(1, 12<<30)).Draw(rt, "size")
}

// took records what an allocation of size bytes must have done.
func (l *ledgerModel) took(rt *rapid.T, n *tenant, size, got uint64, s status) {
	rounded, _ := roundedSize(size, 0)
	if rounded > l.free {
		if s != errNoMemory {
			rt.Fatalf("%d of %d free bytes were allocated: %v", rounded, l.free, s)
		}
		return
	}
	if s != ok || got != rounded {
		rt.Fatalf("allocating %d bytes: %d bytes, %v", size, got, s)
	}
	l.free -= rounded
	n.refs[n.next] = &block{size: rounded, refs: 1}
	n.next++
}

func (l *ledgerModel) allocate(rt *rapid.T) {
	n, size := l.pick(rt), drawSize(rt)
	p, s := n.video(n.next, size)
	l.took(rt, n, size, p.Size, s)
}

func (l *ledgerModel) allocateFromHeap(rt *rapid.T) {
	n, size := l.pick(rt), drawSize(rt)
	var a struct {
		nvgpu.NVOS32_PARAMETERS
	}
	a.HRoot, a.HObjectParent, a.Function = rmHandle(n.client), rmHandle(n.device), heapAllocSize
	data, _ := view[nvgpu.NVOS32AllocSize](a.Data[:])
	data.HMemory, data.Size = rmHandle(n.next), size
	if err := ioctl(n.process, n.ctl, nvgpu.NV_ESC_RM_VID_HEAP_CONTROL, &a.NVOS32_PARAMETERS); err != nil {
		rt.Fatal(err)
	}
	l.took(rt, n, size, data.Size, status(a.Status))
}

func (n *tenant) handles() []uint32 {
	var list []uint32
	for h := uint32(0x1000); h < n.next; h++ {
		if n.refs[h] != nil {
			list = append(list, h)
		}
	}
	return list
}

func (l *ledgerModel) pickBlock(rt *rapid.T) (*tenant, uint32) {
	n := l.pick(rt)
	handles := n.handles()
	if len(handles) == 0 {
		rt.Skip("nothing allocated")
	}
	return n, rapid.SampledFrom(handles).Draw(rt, "handle")
}

func (l *ledgerModel) release(rt *rapid.T) {
	n, h := l.pickBlock(rt)
	if s := n.free(n.ctl, n.client, h); s != ok {
		rt.Fatal(s)
	}
	l.drop(n.refs[h])
	delete(n.refs, h)
}

// duplicate makes a second handle for memory, in the same process or another.
func (l *ledgerModel) duplicate(rt *rapid.T) {
	from, h := l.pickBlock(rt)
	to := l.pick(rt)
	p := nvgpu.NVOS55_PARAMETERS{
		HClient: rmHandle(to.client), HParent: rmHandle(to.device), HObject: rmHandle(to.next),
		HClientSrc: rmHandle(from.client), HObjectSrc: rmHandle(h),
	}
	if err := ioctl(to.process, to.ctl, nvgpu.NV_ESC_RM_DUP_OBJECT, &p); err != nil {
		rt.Fatal(err)
	}
	if from != to {
		if status(p.Status) != errInsufficientPermissions {
			rt.Fatalf("another process duplicated memory that is not shared: %v", status(p.Status))
		}
		return
	}
	if status(p.Status) != ok {
		rt.Fatal(status(p.Status))
	}
	from.refs[h].refs++
	to.refs[to.next] = from.refs[h]
	to.next++
}

func TestSharingMemoryBetweenProcesses(t *testing.T) {
	d := newDriver(t, testVersion, "t4")
	a, b := newRM(t, d, 100), newRM(t, d, 200)
	if _, s := a.video(0x30, mib); s != ok {
		t.Fatal(s)
	}
	dup := func() status {
		p := nvgpu.NVOS55_PARAMETERS{
			HClient: rmHandle(b.client), HParent: rmHandle(b.device), HObject: rmHandle(0x30),
			HClientSrc: rmHandle(a.client), HObjectSrc: rmHandle(0x30),
		}
		if err := ioctl(b.process, b.ctl, nvgpu.NV_ESC_RM_DUP_OBJECT, &p); err != nil {
			t.Fatal(err)
		}
		return status(p.Status)
	}
	if s := dup(); s != errInsufficientPermissions {
		t.Errorf("duplicating what is not shared: %v", s)
	}
	share := struct {
		Client, Object uint32
		Policy         sharePolicy
		Status         uint32
	}{a.client, 0x30, sharePolicy{Access: 1, Type: shareTypeAll}, 0}
	if err := ioctl(a.process, a.ctl, nvgpu.NV_ESC_RM_SHARE, &share); err != nil || share.Status != 0 {
		t.Fatal(err, share.Status)
	}
	if s := dup(); s != ok {
		t.Fatalf("duplicating shared memory: %v", s)
	}
	d.lock()
	defer d.mu.Unlock()
	private, owned, duped := d.memoryOf(100, d.cards[0])
	if private != 0 || owned != mib || duped != 0 {
		t.Errorf("the owner has %d private, %d owned, %d duplicated bytes", private, owned, duped)
	}
	if _, _, duped := d.memoryOf(200, d.cards[0]); duped != mib {
		t.Errorf("the other has %d duplicated bytes", duped)
	}
}

func TestExportThroughAFile(t *testing.T) {
	d := newDriver(t, testVersion, "t4")
	r := newRM(t, d, 100)
	if _, s := r.video(0x30, mib); s != ok {
		t.Fatal(s)
	}
	free := r.fbInfo(fbFree)
	fd := r.open("/dev/nvidiactl")
	exp := exportToFile{Object: exportObject{Type: exportTypeRM, Device: r.device, Parent: r.device, Object: 0x30}, FD: fd}
	if s := r.control(r.ctl, r.client, r.client, 0x3d05, bytesOf(&exp)); s != ok {
		t.Fatal(s)
	}
	r.free(r.ctl, r.client, 0x30)
	if got := r.fbInfo(fbFree); got != free {
		t.Errorf("exported memory was given back: %d bytes free, want %d", got, free)
	}
	imp := importFromFile{FD: fd, Object: exportObject{Type: exportTypeRM, Device: r.device, Parent: r.device, Object: 0x31}}
	if s := r.control(r.ctl, r.client, r.client, 0x3d06, bytesOf(&imp)); s != ok {
		t.Fatal(s)
	}
	r.close(fd)
	r.free(r.ctl, r.client, 0x31)
	if got := r.fbInfo(fbFree); got != free+mib {
		t.Errorf("%d bytes free after the last reference, want %d", got, free+mib)
	}
}
