package cuda

import "unsafe"

// functions are the entry points of libcuda by their exported names.
type functions struct {
	Init               func(flags uint32) Result                                     `c:"cuInit"`
	DriverGetVersion   func(v *int32) Result                                         `c:"cuDriverGetVersion"`
	DeviceGetCount     func(n *int32) Result                                         `c:"cuDeviceGetCount"`
	DeviceGet          func(d *Device, ordinal int32) Result                         `c:"cuDeviceGet"`
	DeviceGetName      func(name *byte, size int32, d Device) Result                 `c:"cuDeviceGetName"`
	DeviceTotalMem     func(n *uint64, d Device) Result                              `c:"cuDeviceTotalMem_v2"`
	DeviceGetAttribute func(v *int32, attribute int32, d Device) Result              `c:"cuDeviceGetAttribute"`
	CtxCreate          func(c *Context, flags uint32, d Device) Result               `c:"cuCtxCreate_v2"`
	CtxDestroy         func(c Context) Result                                        `c:"cuCtxDestroy_v2"`
	CtxSetCurrent      func(c Context) Result                                        `c:"cuCtxSetCurrent"`
	CtxGetCurrent      func(c *Context) Result                                       `c:"cuCtxGetCurrent"`
	CtxSynchronize     func() Result                                                 `c:"cuCtxSynchronize"`
	MemGetInfo         func(free, total *uint64) Result                              `c:"cuMemGetInfo_v2"`
	MemAlloc           func(p *Pointer, size uint64) Result                          `c:"cuMemAlloc_v2"`
	MemAllocPitch      func(p *Pointer, pitch *uint64, w, h uint64, e uint32) Result `c:"cuMemAllocPitch_v2"`
	MemAllocManaged    func(p *Pointer, size uint64, flags uint32) Result            `c:"cuMemAllocManaged"`
	MemFree            func(p Pointer) Result                                        `c:"cuMemFree_v2"`
	MemHostAlloc       func(p *Pointer, size uint64, flags uint32) Result            `c:"cuMemHostAlloc"`
	MemFreeHost        func(p Pointer) Result                                        `c:"cuMemFreeHost"`
	MemHostRegister    func(p unsafe.Pointer, size uint64, flags uint32) Result      `c:"cuMemHostRegister_v2"`
	MemHostUnregister  func(p unsafe.Pointer) Result                                 `c:"cuMemHostUnregister"`
	MemAllocAsync      func(p *Pointer, size uint64, s Stream) Result                `c:"cuMemAllocAsync"`
	MemFreeAsync       func(p Pointer, s Stream) Result                              `c:"cuMemFreeAsync"`
	MemPoolCreate      func(pool *Pool, props *poolProperties) Result                `c:"cuMemPoolCreate"`
	MemPoolDestroy     func(pool Pool) Result                                        `c:"cuMemPoolDestroy"`
	MemAllocFromPool   func(p *Pointer, size uint64, pool Pool, s Stream) Result     `c:"cuMemAllocFromPoolAsync"`
	DeviceGetPool      func(pool *Pool, d Device) Result                             `c:"cuDeviceGetDefaultMemPool"`
	MemPoolTrimTo      func(pool Pool, keep uint64) Result                           `c:"cuMemPoolTrimTo"`

	MemGranularity    func(n *uint64, props *allocationProperties, option int32) Result              `c:"cuMemGetAllocationGranularity"`
	MemCreate         func(h *uint64, size uint64, props *allocationProperties, flags uint64) Result `c:"cuMemCreate"`
	MemRelease        func(h uint64) Result                                                          `c:"cuMemRelease"`
	MemAddressReserve func(p *Pointer, size, align uint64, at Pointer, flags uint64) Result          `c:"cuMemAddressReserve"`
	MemAddressFree    func(p Pointer, size uint64) Result                                            `c:"cuMemAddressFree"`
	MemMap            func(p Pointer, size, offset, h, flags uint64) Result                          `c:"cuMemMap"`
	MemUnmap          func(p Pointer, size uint64) Result                                            `c:"cuMemUnmap"`
	MemSetAccess      func(p Pointer, size uint64, access *accessDescriptor, n uint64) Result        `c:"cuMemSetAccess"`

	ArrayCreate    func(a *Array, d *arrayDescriptor) Result                 `c:"cuArray3DCreate_v2"`
	ArrayDestroy   func(a Array) Result                                      `c:"cuArrayDestroy"`
	MipmapCreate   func(m *Mipmap, d *arrayDescriptor, levels uint32) Result `c:"cuMipmappedArrayCreate"`
	MipmapDestroy  func(m Mipmap) Result                                     `c:"cuMipmappedArrayDestroy"`
	IpcGetHandle   func(h *IPCHandle, p Pointer) Result                      `c:"cuIpcGetMemHandle"`
	IpcCloseHandle func(p Pointer) Result                                    `c:"cuIpcCloseMemHandle"`

	MemcpyHtoD      func(dst Pointer, src unsafe.Pointer, n uint64) Result           `c:"cuMemcpyHtoD_v2"`
	MemcpyDtoH      func(dst unsafe.Pointer, src Pointer, n uint64) Result           `c:"cuMemcpyDtoH_v2"`
	MemcpyDtoD      func(dst, src Pointer, n uint64) Result                          `c:"cuMemcpyDtoD_v2"`
	MemcpyHtoDAsync func(dst Pointer, src unsafe.Pointer, n uint64, s Stream) Result `c:"cuMemcpyHtoDAsync_v2"`
	MemcpyDtoHAsync func(dst unsafe.Pointer, src Pointer, n uint64, s Stream) Result `c:"cuMemcpyDtoHAsync_v2"`
	MemcpyDtoDAsync func(dst, src Pointer, n uint64, s Stream) Result                `c:"cuMemcpyDtoDAsync_v2"`
	MemsetD8        func(p Pointer, v uint8, n uint64) Result                        `c:"cuMemsetD8_v2"`
	MemsetD32       func(p Pointer, v uint32, n uint64) Result                       `c:"cuMemsetD32_v2"`

	ModuleLoadData    func(m *Module, image unsafe.Pointer) Result                                                           `c:"cuModuleLoadData"`
	ModuleUnload      func(m Module) Result                                                                                  `c:"cuModuleUnload"`
	ModuleGetFunction func(f *Function, m Module, name string) Result                                                        `c:"cuModuleGetFunction"`
	ModuleGetGlobal   func(p *Pointer, size *uint64, m Module, name string) Result                                           `c:"cuModuleGetGlobal_v2"`
	LaunchKernel      func(f Function, gx, gy, gz, bx, by, bz, shared uint32, s Stream, params, extra unsafe.Pointer) Result `c:"cuLaunchKernel"`
	LaunchHostFunc    func(s Stream, fn, data uintptr) Result                                                                `c:"cuLaunchHostFunc"`

	StreamCreate      func(s *Stream, flags uint32) Result                     `c:"cuStreamCreate"`
	StreamDestroy     func(s Stream) Result                                    `c:"cuStreamDestroy_v2"`
	StreamSynchronize func(s Stream) Result                                    `c:"cuStreamSynchronize"`
	StreamWaitEvent   func(s Stream, e Event, flags uint32) Result             `c:"cuStreamWaitEvent"`
	StreamWaitValue   func(s Stream, p Pointer, v uint32, flags uint32) Result `c:"cuStreamWaitValue32_v2"`
	StreamWriteValue  func(s Stream, p Pointer, v uint32, flags uint32) Result `c:"cuStreamWriteValue32_v2"`
	EventCreate       func(e *Event, flags uint32) Result                      `c:"cuEventCreate"`
	EventDestroy      func(e Event) Result                                     `c:"cuEventDestroy_v2"`
	EventRecord       func(e Event, s Stream) Result                           `c:"cuEventRecord"`
	EventSynchronize  func(e Event) Result                                     `c:"cuEventSynchronize"`
	EventElapsedTime  func(ms *float32, from, to Event) Result                 `c:"cuEventElapsedTime"`

	StreamBeginCapture func(s Stream, mode int32) Result                                                  `c:"cuStreamBeginCapture_v2"`
	StreamEndCapture   func(s Stream, g *Graph) Result                                                    `c:"cuStreamEndCapture"`
	GraphCreate        func(g *Graph, flags uint32) Result                                                `c:"cuGraphCreate"`
	GraphDestroy       func(g Graph) Result                                                               `c:"cuGraphDestroy"`
	GraphAddMemAlloc   func(node *uintptr, g Graph, deps *uintptr, n uint64, params *memAllocNode) Result `c:"cuGraphAddMemAllocNode"`
	GraphInstantiate   func(e *Exec, g Graph, flags uint64) Result                                        `c:"cuGraphInstantiateWithFlags"`
	GraphExecDestroy   func(e Exec) Result                                                                `c:"cuGraphExecDestroy"`
	GraphLaunch        func(e Exec, s Stream) Result                                                      `c:"cuGraphLaunch"`
	GraphMemTrim       func(d Device) Result                                                              `c:"cuDeviceGraphMemTrim"`
}

// location is CUmemLocation: type 1 is a device.
type location struct {
	kind int32
	id   int32
}

// poolProperties is CUmemPoolProps (88 bytes). Blank fields here and below stay 0.
type poolProperties struct {
	allocation int32 // 1: pinned
	_          int32 // handle types
	location   location
	_          uintptr // security attributes
	_          uint64  // most bytes
	_          [56]byte
}

// allocationProperties is CUmemAllocationProp (32 bytes).
type allocationProperties struct {
	allocation int32 // 1: pinned
	_          int32 // handle types
	location   location
	_          uintptr // metadata
	_          [8]byte // flags
}

// accessDescriptor is CUmemAccessDesc: flags 3 is read and write.
type accessDescriptor struct {
	location location
	flags    int32
}

// arrayDescriptor is CUDA_ARRAY3D_DESCRIPTOR.
type arrayDescriptor struct {
	width, height uint64
	_             uint64 // depth
	format        int32  // 0x20: 32-bit float
	channels      uint32
	_             uint32 // flags
	_             uint32
}

// memAllocNode is CUDA_MEM_ALLOC_NODE_PARAMS.
type memAllocNode struct {
	pool    poolProperties
	_       uintptr // access descriptors
	_       uint64  // their number
	size    uint64
	pointer Pointer
}

// IPCHandle is CUipcMemHandle, a memory object's name for other processes.
type IPCHandle [64]byte
