package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"time"
	"unsafe"

	"github.com/qgpu-project/qgpu/internal/cuda"
	"github.com/qgpu-project/qgpu/internal/nvclient"
)

// pinged is what the ping program tells: times of the card's clock in ns, as the program
// reads it, sorted.
type pinged struct {
	Clock []int64 `json:"clock_ns"` // of reading the clock twice: part of the others
	Trip  []int64 `json:"trip_ns"`  // from before a kernel's launch to after it was waited for
	Card  []int64 `json:"card_ns"`  // from its start to its end, by events
}

// pingPTX is a kernel that does nothing, for as long as its blocks take.
const pingPTX = `.version 7.0
.target sm_75
.address_size 64
.visible .entry ping()
{
	ret;
}
`

// pingBlocks make a kernel of about a tenth of a millisecond on the simulated T4, pingPause
// is the time between launches.
const (
	pingBlocks = 1 << 15
	pingPause  = 3 * time.Millisecond
)

// runPing launches n kernels, one at a time, and prints how long each took.
func runPing(n int) error {
	runtime.LockOSThread() // a CUDA context belongs to a thread
	p, err := newPinger()
	if err != nil {
		return err
	}
	if err := p.once(&pinged{}); err != nil { // loads the kernel
		return err
	}
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	var out pinged
	for range n {
		if err := p.once(&out); err != nil {
			return err
		}
		time.Sleep(pingPause)
	}
	for _, list := range [][]int64{out.Clock, out.Trip, out.Card} {
		slices.Sort(list)
	}
	return json.NewEncoder(os.Stdout).Encode(out)
}

type pinger struct {
	lib      *cuda.Library
	clock    *nvclient.Client
	fn       cuda.Function
	stream   cuda.Stream
	from, to cuda.Event
}

func newPinger() (*pinger, error) {
	lib, err := cuda.Open()
	if err != nil {
		return nil, err
	}
	var device cuda.Device
	if _, err := lib.CreateContext(device, 0); err != nil {
		return nil, err
	}
	p := &pinger{lib: lib}
	m, err := lib.LoadModule(pingPTX)
	if err != nil {
		return nil, err
	}
	if p.fn, err = lib.Function(m, "ping"); err != nil {
		return nil, err
	}
	if p.stream, err = lib.CreateStream(); err != nil {
		return nil, err
	}
	var err1, err2 error
	p.from, err1 = lib.CreateEvent(false)
	p.to, err2 = lib.CreateEvent(false)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	p.clock, err = nvclient.Open(nvclient.Kernel{}, nil)
	return p, err
}

// once launches a kernel and adds its times to out.
func (p *pinger) once(out *pinged) error {
	var at [3]uint64
	var err error
	for i := range 2 {
		if at[i], err = p.clock.Time(0); err != nil {
			return err
		}
	}
	err = errors.Join(p.lib.RecordEvent(p.from, p.stream), p.lib.Launch(p.fn, pingBlocks, 128, p.stream, []unsafe.Pointer{}...),
		p.lib.RecordEvent(p.to, p.stream), p.lib.SynchronizeStream(p.stream))
	if err != nil {
		return err
	}
	if at[2], err = p.clock.Time(0); err != nil {
		return err
	}
	card, err := p.lib.Elapsed(p.from, p.to)
	out.Clock = append(out.Clock, int64(at[1]-at[0]))
	out.Trip = append(out.Trip, int64(at[2]-at[1]))
	out.Card = append(out.Card, card.Nanoseconds())
	return err
}

// pinging is the program's command line.
func (s *place) pinging(n int) []string {
	return []string{s.Self, "-program", pingProgram, "-count", strconv.Itoa(n)}
}
