package isolation

import (
	"bytes"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/qgpu-project/qgpu/internal/cuda"
)

// Paths are the ways in which a CUDA program takes memory.
func Paths() []Path {
	return []Path{
		{Name: "cuMemAlloc", take: takeLinear},
		{Name: "cuMemAllocPitch", take: takePitch},
		// libcuda knows no out-of-memory here: whatever errno mapping the UVM file
		// fails with, it makes another error of it, and of ENOMEM this one.
		{Name: "cuMemAllocManaged", Refusal: cuda.ErrUnknown, take: takeManaged},
		{Name: "cuMemAllocAsync", take: takeAsync},
		{Name: "cuMemAllocFromPoolAsync", take: takePool},
		{Name: "cuMemCreate and cuMemMap", take: takeMapped},
		{Name: "cuArray3DCreate", take: takeArray},
		{Name: "cuMipmappedArrayCreate", take: takeMipmap},
		{Name: "module globals", take: takeGlobal},
		{Name: "graph with allocation node", take: takeGraph},
		{Name: "exported by CUDA IPC", take: takeExported},
		{Name: "many contexts", take: takeContext},
		{Name: "local memory of kernels", take: takeLocal},
		{Name: "cuMemHostAlloc", Host: true, take: takeHost},
		{Name: "cuMemHostRegister", Host: true, take: takeRegistered},
	}
}

// probe copies a pattern to the card and back, at both ends of size bytes at p.
func probe(e Env, p cuda.Pointer, size uint64) error {
	pattern := bytes.Repeat([]byte("qGPU keeps data."), 256)
	n := min(uint64(len(pattern)), size)
	for _, at := range []cuda.Pointer{p, p + cuda.Pointer(size-n)} {
		if err := e.Lib.CopyToCard(at, pattern[:n]); err != nil {
			return err
		}
		back := make([]byte, n)
		if err := e.Lib.CopyFromCard(back, at); err != nil {
			return err
		}
		if !bytes.Equal(back, pattern[:n]) {
			return fmt.Errorf("the data at %#x came back changed", at)
		}
	}
	return nil
}

// probed ends a take: it probes and, if that fails, releases.
func probed(e Env, p cuda.Pointer, size uint64, release func() error) (func() error, error) {
	if err := probe(e, p, size); err != nil {
		return nil, errors.Join(err, release())
	}
	return release, nil
}

func takeLinear(e Env, size uint64) (func() error, error) {
	p, err := e.Lib.Alloc(size)
	if err != nil {
		return nil, err
	}
	return probed(e, p, size, func() error { return e.Lib.Free(p) })
}

func takePitch(e Env, size uint64) (func() error, error) {
	const width = 1 << 16
	p, pitch, err := e.Lib.AllocPitch(width, size/width)
	if err != nil {
		return nil, err
	}
	return probed(e, p, pitch*(size/width), func() error { return e.Lib.Free(p) })
}

func takeManaged(e Env, size uint64) (func() error, error) {
	p, err := e.Lib.AllocManaged(size)
	if err != nil {
		return nil, err
	}
	host := cuda.HostBytes(p, size)
	host[0], host[size-1] = 0x5a, 0xa5
	return probed(e, p, size, func() error { return e.Lib.Free(p) })
}

func takeAsync(e Env, size uint64) (func() error, error) {
	p, err := e.Lib.AllocAsync(size, e.Stream)
	if err != nil {
		return nil, err
	}
	if err := e.Lib.SynchronizeStream(e.Stream); err != nil {
		return nil, err
	}
	return probed(e, p, size, func() error {
		pool, err := e.Lib.DefaultPool(e.Device)
		return errors.Join(err, e.Lib.FreeAsync(p, e.Stream), e.Lib.SynchronizeStream(e.Stream), e.Lib.TrimPool(pool, 0))
	})
}

func takePool(e Env, size uint64) (func() error, error) {
	pool, err := e.Lib.CreatePool(e.Device)
	if err != nil {
		return nil, err
	}
	p, err := e.Lib.AllocFromPool(size, pool, e.Stream)
	if err != nil {
		return nil, errors.Join(err, e.Lib.DestroyPool(pool))
	}
	if err := e.Lib.SynchronizeStream(e.Stream); err != nil {
		return nil, err
	}
	return probed(e, p, size, func() error {
		return errors.Join(e.Lib.FreeAsync(p, e.Stream), e.Lib.SynchronizeStream(e.Stream), e.Lib.DestroyPool(pool))
	})
}

func takeMapped(e Env, size uint64) (func() error, error) {
	m, err := e.Lib.MapCreated(e.Device, size)
	if err != nil {
		return nil, err
	}
	return probed(e, m.Pointer, size, func() error { return e.Lib.Unmap(m) })
}

func takeArray(e Env, size uint64) (func() error, error) {
	const width, float = 4096, 4
	a, err := e.Lib.CreateArray(width, size/width/float)
	if err != nil {
		return nil, err
	}
	return func() error { return e.Lib.DestroyArray(a) }, nil
}

func takeMipmap(e Env, size uint64) (func() error, error) {
	const width, float = 4096, 4
	// Each level is a quarter of the one above it.
	m, err := e.Lib.CreateMipmap(width, size/4*3/width/float, 5)
	if err != nil {
		return nil, err
	}
	return func() error { return e.Lib.DestroyMipmap(m) }, nil
}

func takeGlobal(e Env, size uint64) (func() error, error) {
	m, err := e.Lib.LoadModule(fmt.Sprintf(".version 7.0\n.target sm_75\n.address_size 64\n"+
		".visible .global .align 16 .b8 block[%d];\n.visible .entry k() { ret; }\n", size))
	if err != nil {
		return nil, err
	}
	release := func() error { return e.Lib.UnloadModule(m) }
	p, n, err := e.Lib.Global(m, "block")
	if err != nil {
		return nil, errors.Join(err, release())
	}
	return probed(e, p, n, release)
}

func takeGraph(e Env, size uint64) (func() error, error) {
	g, p, err := e.Lib.AllocationGraph(e.Device, size)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(e.Lib.LaunchGraph(g, e.Stream), e.Lib.SynchronizeStream(e.Stream)); err != nil {
		return nil, errors.Join(err, e.Lib.DestroyGraph(g), e.Lib.TrimGraphMemory(e.Device))
	}
	return probed(e, p, size, func() error {
		return errors.Join(e.Lib.FreeAsync(p, e.Stream), e.Lib.SynchronizeStream(e.Stream),
			e.Lib.DestroyGraph(g), e.Lib.TrimGraphMemory(e.Device))
	})
}

func takeExported(e Env, size uint64) (func() error, error) {
	p, err := e.Lib.Alloc(size)
	if err != nil {
		return nil, err
	}
	release := func() error { return e.Lib.Free(p) }
	if _, err := e.Lib.ExportIPC(p); err != nil {
		return nil, errors.Join(err, release())
	}
	return release, nil
}

// takeContext takes size bytes in a context of its own.
func takeContext(e Env, size uint64) (func() error, error) {
	return inContext(e, func() error {
		p, err := e.Lib.Alloc(size)
		if err != nil {
			return err
		}
		return probe(e, p, size)
	})
}

// localPTX is a kernel whose every thread has a frame of so many bytes of local
// memory, which it must keep since it stores to and loads from any place of it.
const localPTX = `.version 7.0
.target sm_75
.address_size 64
.visible .entry frame(.param .u64 out, .param .u32 at)
{
	.local .align 16 .b8 frame[%d];
	.reg .u64 %%a<5>;
	.reg .u32 %%v;
	ld.param.u64 %%a1, [out];
	ld.param.u32 %%v, [at];
	cvt.u64.u32 %%a2, %%v;
	mov.u64 %%a3, frame;
	add.u64 %%a3, %%a3, %%a2;
	st.local.u32 [%%a3], %%v;
	ld.local.u32 %%v, [%%a3+8];
	st.global.u32 [%%a1], %%v;
	ret;
}
`

// takeLocal takes about size bytes as the local memory of a kernel, in a context of
// its own: a context keeps the local memory of its greediest kernel. The card has it
// for every thread that can be resident.
func takeLocal(e Env, size uint64) (func() error, error) {
	threads := uint64(1)
	for _, attribute := range []int{cuda.AttributeMultiprocessors, cuda.AttributeThreadsPerMultiprocessor} {
		n, err := e.Lib.Attribute(e.Device, attribute)
		if err != nil {
			return nil, err
		}
		threads *= uint64(n)
	}
	const align = 16
	frame := max(size/threads/align*align, align)
	return inContext(e, func() error {
		m, err := e.Lib.LoadModule(fmt.Sprintf(localPTX, frame))
		if err != nil {
			return err
		}
		f, err := e.Lib.Function(m, "frame")
		if err != nil {
			return err
		}
		out, err := e.Lib.Alloc(align)
		if err != nil {
			return err
		}
		at := uint32(0)
		return errors.Join(e.Lib.Launch(f, 1, 1, 0, unsafe.Pointer(&out), unsafe.Pointer(&at)), e.Lib.Synchronize())
	})
}

// inContext does take in a context of its own, which release destroys.
func inContext(e Env, take func() error) (release func() error, err error) {
	current, err := e.Lib.CurrentContext()
	if err != nil {
		return nil, err
	}
	c, err := e.Lib.CreateContext(e.Device, 0)
	if err != nil {
		return nil, errors.Join(err, e.Lib.SetCurrent(current))
	}
	release = func() error { return errors.Join(e.Lib.DestroyContext(c), e.Lib.SetCurrent(current)) }
	if err := take(); err != nil {
		return nil, errors.Join(err, release())
	}
	return release, e.Lib.SetCurrent(current)
}

func takeHost(e Env, size uint64) (func() error, error) {
	p, err := e.Lib.AllocHost(size)
	if err != nil {
		return nil, err
	}
	host := cuda.HostBytes(p, size)
	host[0], host[size-1] = 0x5a, 0xa5
	return func() error { return e.Lib.FreeHost(p) }, nil
}

func takeRegistered(e Env, size uint64) (func() error, error) {
	pages, err := unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, err
	}
	pages[0], pages[size-1] = 0x5a, 0xa5
	if err := e.Lib.Register(pages); err != nil {
		return nil, errors.Join(err, unix.Munmap(pages))
	}
	release := func() error { return errors.Join(e.Lib.Unregister(pages), unix.Munmap(pages)) }
	return probed(e, cuda.Pointer(uintptr(unsafe.Pointer(&pages[0]))), size, release)
}
