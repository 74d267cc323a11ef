// Package cuda calls NVIDIA's libcuda from Go, without cgo. It is the client
// side: tests, demonstrations and the load program are CUDA programs through it.
// It knows nothing of shares, mediators or simulated cards.
//
// A CUDA context is current on an operating-system thread: callers lock theirs.
package cuda

import (
	"fmt"
	"reflect"
	"unsafe"

	"github.com/ebitengine/purego"
)

// Result is a CUresult. 0 is success and never returned as an error.
type Result int32

// The results that callers tell apart (cuda.h).
const (
	ErrInvalidValue  Result = 1
	ErrOutOfMemory   Result = 2
	ErrInvalidDevice Result = 101
	ErrNotSupported  Result = 801
	ErrUnknown       Result = 999
)

var resultNames = map[Result]string{
	ErrInvalidValue: "CUDA_ERROR_INVALID_VALUE", ErrOutOfMemory: "CUDA_ERROR_OUT_OF_MEMORY",
	3: "CUDA_ERROR_NOT_INITIALIZED", 46: "CUDA_ERROR_DEVICE_UNAVAILABLE", 100: "CUDA_ERROR_NO_DEVICE",
	ErrInvalidDevice: "CUDA_ERROR_INVALID_DEVICE", 201: "CUDA_ERROR_INVALID_CONTEXT",
	218: "CUDA_ERROR_INVALID_PTX", 221: "CUDA_ERROR_JIT_COMPILER_NOT_FOUND",
	304: "CUDA_ERROR_OPERATING_SYSTEM", 400: "CUDA_ERROR_INVALID_HANDLE", 600: "CUDA_ERROR_NOT_READY",
	700: "CUDA_ERROR_ILLEGAL_ADDRESS", 719: "CUDA_ERROR_LAUNCH_FAILED",
	ErrNotSupported: "CUDA_ERROR_NOT_SUPPORTED", ErrUnknown: "CUDA_ERROR_UNKNOWN",
}

func (r Result) Error() string {
	if name, ok := resultNames[r]; ok {
		return name
	}
	return fmt.Sprintf("CUDA error %d", int32(r))
}

// Handles of the driver API.
type (
	Device   int32
	Context  uintptr
	Module   uintptr
	Function uintptr
	Stream   uintptr
	Event    uintptr
	Array    uintptr
	Mipmap   uintptr
	Pool     uintptr
	Graph    uintptr
	Exec     uintptr
	// Pointer is an address in the unified address space of host and cards.
	Pointer uint64
)

// Library is a loaded libcuda.
type Library struct {
	fn functions
}

// Open loads libcuda.so.1 by the dynamic linker's rules and initialises CUDA.
func Open() (*Library, error) {
	handle, err := purego.Dlopen("libcuda.so.1", purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return nil, fmt.Errorf("load libcuda.so.1 (is NVIDIA's user space in LD_LIBRARY_PATH?): %w", err)
	}
	lib := &Library{}
	fields := reflect.ValueOf(&lib.fn).Elem()
	for i := range fields.NumField() {
		name := fields.Type().Field(i).Tag.Get("c")
		symbol, err := purego.Dlsym(handle, name)
		if err != nil {
			return nil, fmt.Errorf("libcuda.so.1 has no %s: %w", name, err)
		}
		purego.RegisterFunc(fields.Field(i).Addr().Interface(), symbol)
	}
	if err := check("cuInit", lib.fn.Init(0)); err != nil {
		return nil, err
	}
	return lib, nil
}

func check(call string, r Result) error {
	if r == 0 {
		return nil
	}
	return fmt.Errorf("%s: %w", call, r)
}

// DriverVersion is the CUDA version of the driver, as 1000×major + 10×minor.
func (l *Library) DriverVersion() (int, error) {
	var v int32
	err := check("cuDriverGetVersion", l.fn.DriverGetVersion(&v))
	return int(v), err
}

// Devices lists the cards that CUDA offers to this process.
func (l *Library) Devices() ([]Device, error) {
	var n int32
	if err := check("cuDeviceGetCount", l.fn.DeviceGetCount(&n)); err != nil {
		return nil, err
	}
	devices := make([]Device, n)
	for i := range devices {
		if err := check("cuDeviceGet", l.fn.DeviceGet(&devices[i], int32(i))); err != nil {
			return nil, err
		}
	}
	return devices, nil
}

// Name is the product name of d.
func (l *Library) Name(d Device) (string, error) {
	var buf [256]byte
	if err := check("cuDeviceGetName", l.fn.DeviceGetName(&buf[0], int32(len(buf)), d)); err != nil {
		return "", err
	}
	n := 0
	for n < len(buf) && buf[n] != 0 {
		n++
	}
	return string(buf[:n]), nil
}

// TotalMemory is the memory of d in bytes, as CUDA reports it.
func (l *Library) TotalMemory(d Device) (uint64, error) {
	var n uint64
	err := check("cuDeviceTotalMem", l.fn.DeviceTotalMem(&n, d))
	return n, err
}

// Device attributes (CUdevice_attribute in cuda.h).
const (
	AttributeMultiprocessors          = 16
	AttributeThreadsPerMultiprocessor = 39
	AttributeComputeMajor             = 75
	AttributeComputeMinor             = 76
)

// Attribute is one of d's attributes.
func (l *Library) Attribute(d Device, attribute int) (int, error) {
	var v int32
	err := check("cuDeviceGetAttribute", l.fn.DeviceGetAttribute(&v, int32(attribute), d))
	return int(v), err
}

// Context flags (cuda.h).
const (
	ContextAuto         = 0
	ContextSpin         = 1
	ContextBlockingSync = 4
	ContextMapHost      = 8
)

// CreateContext makes a context on d and makes it current on this thread.
func (l *Library) CreateContext(d Device, flags uint32) (Context, error) {
	var c Context
	err := check("cuCtxCreate", l.fn.CtxCreate(&c, flags, d))
	return c, err
}

// DestroyContext destroys c and all that was made in it.
func (l *Library) DestroyContext(c Context) error {
	return check("cuCtxDestroy", l.fn.CtxDestroy(c))
}

// SetCurrent makes c current on this thread.
func (l *Library) SetCurrent(c Context) error {
	return check("cuCtxSetCurrent", l.fn.CtxSetCurrent(c))
}

// CurrentContext is the context that is current on this thread, or 0.
func (l *Library) CurrentContext() (Context, error) {
	var c Context
	err := check("cuCtxGetCurrent", l.fn.CtxGetCurrent(&c))
	return c, err
}

// Synchronize waits for all work of the current context.
func (l *Library) Synchronize() error {
	return check("cuCtxSynchronize", l.fn.CtxSynchronize())
}

// MemoryInfo is free and total card memory in bytes.
func (l *Library) MemoryInfo() (free, total uint64, err error) {
	err = check("cuMemGetInfo", l.fn.MemGetInfo(&free, &total))
	return free, total, err
}

func hostPointer(p []byte) unsafe.Pointer {
	return unsafe.Pointer(unsafe.SliceData(p))
}
