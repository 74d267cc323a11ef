package cuda

import "unsafe"

// Alloc takes card memory (cuMemAlloc).
func (l *Library) Alloc(size uint64) (Pointer, error) {
	var p Pointer
	err := check("cuMemAlloc", l.fn.MemAlloc(&p, size))
	return p, err
}

// AllocPitch takes a pitched block of width×height bytes.
func (l *Library) AllocPitch(width, height uint64) (p Pointer, pitch uint64, err error) {
	err = check("cuMemAllocPitch", l.fn.MemAllocPitch(&p, &pitch, width, height, 4))
	return p, pitch, err
}

// AllocManaged takes memory that host and cards share by migration.
func (l *Library) AllocManaged(size uint64) (Pointer, error) {
	const attachGlobal = 1
	var p Pointer
	err := check("cuMemAllocManaged", l.fn.MemAllocManaged(&p, size, attachGlobal))
	return p, err
}

// Free releases memory of Alloc, AllocPitch and AllocManaged.
func (l *Library) Free(p Pointer) error {
	return check("cuMemFree", l.fn.MemFree(p))
}

// AllocHost takes pinned host memory.
func (l *Library) AllocHost(size uint64) (Pointer, error) {
	var p Pointer
	err := check("cuMemHostAlloc", l.fn.MemHostAlloc(&p, size, 0))
	return p, err
}

// FreeHost releases memory of AllocHost.
func (l *Library) FreeHost(p Pointer) error {
	return check("cuMemFreeHost", l.fn.MemFreeHost(p))
}

// Register pins p for the card. p must not be memory of Go's heap that moves or
// is freed before Unregister; use mapped pages.
func (l *Library) Register(p []byte) error {
	return check("cuMemHostRegister", l.fn.MemHostRegister(hostPointer(p), uint64(len(p)), 0))
}

// Unregister undoes Register.
func (l *Library) Unregister(p []byte) error {
	return check("cuMemHostUnregister", l.fn.MemHostUnregister(hostPointer(p)))
}

// AllocAsync takes memory of the device's default pool in stream order.
func (l *Library) AllocAsync(size uint64, s Stream) (Pointer, error) {
	var p Pointer
	err := check("cuMemAllocAsync", l.fn.MemAllocAsync(&p, size, s))
	return p, err
}

// FreeAsync releases memory of AllocAsync and AllocFromPool in stream order.
func (l *Library) FreeAsync(p Pointer, s Stream) error {
	return check("cuMemFreeAsync", l.fn.MemFreeAsync(p, s))
}

// DefaultPool is d's default memory pool.
func (l *Library) DefaultPool(d Device) (Pool, error) {
	var pool Pool
	err := check("cuDeviceGetDefaultMemPool", l.fn.DeviceGetPool(&pool, d))
	return pool, err
}

// CreatePool makes a memory pool on d.
func (l *Library) CreatePool(d Device) (Pool, error) {
	var pool Pool
	props := poolProperties{allocation: 1, location: location{1, int32(d)}}
	err := check("cuMemPoolCreate", l.fn.MemPoolCreate(&pool, &props))
	return pool, err
}

// DestroyPool destroys a pool of CreatePool.
func (l *Library) DestroyPool(pool Pool) error {
	return check("cuMemPoolDestroy", l.fn.MemPoolDestroy(pool))
}

// TrimPool gives a pool's unused memory above keep bytes back to the card.
func (l *Library) TrimPool(pool Pool, keep uint64) error {
	return check("cuMemPoolTrimTo", l.fn.MemPoolTrimTo(pool, keep))
}

// AllocFromPool takes memory of pool in stream order.
func (l *Library) AllocFromPool(size uint64, pool Pool, s Stream) (Pointer, error) {
	var p Pointer
	err := check("cuMemAllocFromPoolAsync", l.fn.MemAllocFromPool(&p, size, pool, s))
	return p, err
}

// Mapping is physical memory of a card mapped at a reserved address.
type Mapping struct {
	Pointer Pointer
	size    uint64
	handle  uint64
}

// MapCreated takes physical memory of d (cuMemCreate) and maps it. size is
// rounded up to the card's granularity.
func (l *Library) MapCreated(d Device, size uint64) (m Mapping, err error) {
	props := allocationProperties{allocation: 1, location: location{1, int32(d)}}
	var granularity uint64
	if err := check("cuMemGetAllocationGranularity", l.fn.MemGranularity(&granularity, &props, 0)); err != nil {
		return m, err
	}
	m.size = (size + granularity - 1) / granularity * granularity
	if err := check("cuMemCreate", l.fn.MemCreate(&m.handle, m.size, &props, 0)); err != nil {
		return Mapping{}, err
	}
	if err := check("cuMemAddressReserve", l.fn.MemAddressReserve(&m.Pointer, m.size, 0, 0, 0)); err != nil {
		l.fn.MemRelease(m.handle)
		return Mapping{}, err
	}
	if err := check("cuMemMap", l.fn.MemMap(m.Pointer, m.size, 0, m.handle, 0)); err != nil {
		l.fn.MemAddressFree(m.Pointer, m.size)
		l.fn.MemRelease(m.handle)
		return Mapping{}, err
	}
	access := accessDescriptor{location{1, int32(d)}, 3}
	return m, check("cuMemSetAccess", l.fn.MemSetAccess(m.Pointer, m.size, &access, 1))
}

// Unmap unmaps m and gives its memory back.
func (l *Library) Unmap(m Mapping) error {
	if err := check("cuMemUnmap", l.fn.MemUnmap(m.Pointer, m.size)); err != nil {
		return err
	}
	if err := check("cuMemRelease", l.fn.MemRelease(m.handle)); err != nil {
		return err
	}
	return check("cuMemAddressFree", l.fn.MemAddressFree(m.Pointer, m.size))
}

const formatFloat = 0x20

// CreateArray makes a width×height array of 32-bit floats.
func (l *Library) CreateArray(width, height uint64) (Array, error) {
	var a Array
	d := arrayDescriptor{width: width, height: height, format: formatFloat, channels: 1}
	err := check("cuArray3DCreate", l.fn.ArrayCreate(&a, &d))
	return a, err
}

// DestroyArray destroys an array of CreateArray.
func (l *Library) DestroyArray(a Array) error {
	return check("cuArrayDestroy", l.fn.ArrayDestroy(a))
}

// CreateMipmap makes a mipmapped width×height array of 32-bit floats.
func (l *Library) CreateMipmap(width, height uint64, levels uint32) (Mipmap, error) {
	var m Mipmap
	d := arrayDescriptor{width: width, height: height, format: formatFloat, channels: 1}
	err := check("cuMipmappedArrayCreate", l.fn.MipmapCreate(&m, &d, levels))
	return m, err
}

// DestroyMipmap destroys an array of CreateMipmap.
func (l *Library) DestroyMipmap(m Mipmap) error {
	return check("cuMipmappedArrayDestroy", l.fn.MipmapDestroy(m))
}

// ExportIPC names p's memory object for other processes.
func (l *Library) ExportIPC(p Pointer) (IPCHandle, error) {
	var h IPCHandle
	err := check("cuIpcGetMemHandle", l.fn.IpcGetHandle(&h, p))
	return h, err
}

// CopyToCard copies src to dst and waits.
func (l *Library) CopyToCard(dst Pointer, src []byte) error {
	return check("cuMemcpyHtoD", l.fn.MemcpyHtoD(dst, hostPointer(src), uint64(len(src))))
}

// CopyFromCard copies src to dst and waits.
func (l *Library) CopyFromCard(dst []byte, src Pointer) error {
	return check("cuMemcpyDtoH", l.fn.MemcpyDtoH(hostPointer(dst), src, uint64(len(dst))))
}

// CopyOnCard copies size bytes from src to dst.
func (l *Library) CopyOnCard(dst, src Pointer, size uint64) error {
	return check("cuMemcpyDtoD", l.fn.MemcpyDtoD(dst, src, size))
}

// Fill sets size bytes at p to v.
func (l *Library) Fill(p Pointer, v byte, size uint64) error {
	return check("cuMemsetD8", l.fn.MemsetD8(p, v, size))
}

// Fill32 sets n words at p to v.
func (l *Library) Fill32(p Pointer, v uint32, n uint64) error {
	return check("cuMemsetD32", l.fn.MemsetD32(p, v, n))
}

// HostBytes views size bytes of host-accessible memory at p.
func HostBytes(p Pointer, size uint64) []byte {
	return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&p))), size)
}
