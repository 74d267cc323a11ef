package cuda

import (
	"time"
	"unsafe"
)

// LoadModule compiles PTX for the current context's card.
func (l *Library) LoadModule(ptx string) (Module, error) {
	image := append([]byte(ptx), 0)
	var m Module
	err := check("cuModuleLoadData", l.fn.ModuleLoadData(&m, hostPointer(image)))
	return m, err
}

// UnloadModule unloads m.
func (l *Library) UnloadModule(m Module) error {
	return check("cuModuleUnload", l.fn.ModuleUnload(m))
}

// Function finds a kernel of m.
func (l *Library) Function(m Module, name string) (Function, error) {
	var f Function
	err := check("cuModuleGetFunction", l.fn.ModuleGetFunction(&f, m, name))
	return f, err
}

// Global finds a global variable of m.
func (l *Library) Global(m Module, name string) (p Pointer, size uint64, err error) {
	err = check("cuModuleGetGlobal", l.fn.ModuleGetGlobal(&p, &size, m, name))
	return p, size, err
}

// Launch starts f on s with grid×block threads. args point to the kernel's
// parameters.
func (l *Library) Launch(f Function, grid, block uint32, s Stream, args ...unsafe.Pointer) error {
	return check("cuLaunchKernel", l.fn.LaunchKernel(f, grid, 1, 1, block, 1, 1, 0, s,
		unsafe.Pointer(unsafe.SliceData(args)), nil))
}

// CreateStream makes a stream that does not wait for the default stream.
func (l *Library) CreateStream() (Stream, error) {
	const nonBlocking = 1
	var s Stream
	err := check("cuStreamCreate", l.fn.StreamCreate(&s, nonBlocking))
	return s, err
}

// DestroyStream destroys s.
func (l *Library) DestroyStream(s Stream) error {
	return check("cuStreamDestroy", l.fn.StreamDestroy(s))
}

// SynchronizeStream waits for all work on s.
func (l *Library) SynchronizeStream(s Stream) error {
	return check("cuStreamSynchronize", l.fn.StreamSynchronize(s))
}

// WaitEvent makes s wait for e.
func (l *Library) WaitEvent(s Stream, e Event) error {
	return check("cuStreamWaitEvent", l.fn.StreamWaitEvent(s, e, 0))
}

// WaitValue makes s wait until the word at p is at least v.
func (l *Library) WaitValue(s Stream, p Pointer, v uint32) error {
	return check("cuStreamWaitValue32", l.fn.StreamWaitValue(s, p, v, 0))
}

// WriteValue writes v to the word at p in stream order.
func (l *Library) WriteValue(s Stream, p Pointer, v uint32) error {
	return check("cuStreamWriteValue32", l.fn.StreamWriteValue(s, p, v, 0))
}

// CreateEvent makes an event. blocking makes waiting for it sleep, not spin.
func (l *Library) CreateEvent(blocking bool) (Event, error) {
	var flags uint32
	if blocking {
		flags = 1
	}
	var e Event
	err := check("cuEventCreate", l.fn.EventCreate(&e, flags))
	return e, err
}

// DestroyEvent destroys e.
func (l *Library) DestroyEvent(e Event) error {
	return check("cuEventDestroy", l.fn.EventDestroy(e))
}

// RecordEvent marks the present end of s with e.
func (l *Library) RecordEvent(e Event, s Stream) error {
	return check("cuEventRecord", l.fn.EventRecord(e, s))
}

// SynchronizeEvent waits for e.
func (l *Library) SynchronizeEvent(e Event) error {
	return check("cuEventSynchronize", l.fn.EventSynchronize(e))
}

// Elapsed is the card's time between two events, to about half a microsecond.
func (l *Library) Elapsed(from, to Event) (time.Duration, error) {
	var ms float32
	err := check("cuEventElapsedTime", l.fn.EventElapsedTime(&ms, from, to))
	return time.Duration(float64(ms) * float64(time.Millisecond)), err
}

// Capture records what work submits to s as a graph and instantiates it.
func (l *Library) Capture(s Stream, work func() error) (Exec, error) {
	if err := check("cuStreamBeginCapture", l.fn.StreamBeginCapture(s, 0)); err != nil {
		return 0, err
	}
	workErr := work()
	var g Graph
	if err := check("cuStreamEndCapture", l.fn.StreamEndCapture(s, &g)); err != nil {
		return 0, err
	}
	defer l.fn.GraphDestroy(g)
	if workErr != nil {
		return 0, workErr
	}
	var e Exec
	err := check("cuGraphInstantiateWithFlags", l.fn.GraphInstantiate(&e, g, 0))
	return e, err
}

// AllocationGraph makes a graph whose one node takes size bytes of d's memory.
func (l *Library) AllocationGraph(d Device, size uint64) (Exec, Pointer, error) {
	var g Graph
	if err := check("cuGraphCreate", l.fn.GraphCreate(&g, 0)); err != nil {
		return 0, 0, err
	}
	defer l.fn.GraphDestroy(g)
	params := memAllocNode{
		pool: poolProperties{allocation: 1, location: location{1, int32(d)}},
		size: size,
	}
	var node uintptr
	if err := check("cuGraphAddMemAllocNode", l.fn.GraphAddMemAlloc(&node, g, nil, 0, &params)); err != nil {
		return 0, 0, err
	}
	var e Exec
	err := check("cuGraphInstantiateWithFlags", l.fn.GraphInstantiate(&e, g, 0))
	return e, params.pointer, err
}

// LaunchGraph starts e on s.
func (l *Library) LaunchGraph(e Exec, s Stream) error {
	return check("cuGraphLaunch", l.fn.GraphLaunch(e, s))
}

// DestroyGraph destroys e.
func (l *Library) DestroyGraph(e Exec) error {
	return check("cuGraphExecDestroy", l.fn.GraphExecDestroy(e))
}

// TrimGraphMemory gives d's unused graph memory back to the card.
func (l *Library) TrimGraphMemory(d Device) error {
	return check("cuDeviceGraphMemTrim", l.fn.GraphMemTrim(d))
}
