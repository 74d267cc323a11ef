package engine

import (
	"encoding/binary"
	"fmt"
)

// hostMethods is the address below which methods go to the host, not to an object.
const hostMethods = 0x100

// Host methods (clc46f.h, clc56f.h).
const (
	hostSetObject        = 0x00
	hostIllegal          = 0x04
	hostSemaphoreA       = 0x10
	hostSemaphoreB       = 0x14
	hostSemaphoreC       = 0x18
	hostSemaphoreD       = 0x1c
	hostNonStallIntr     = 0x20
	hostSemAddrLo        = 0x5c
	hostSemAddrHi        = 0x60
	hostSemPayloadLo     = 0x64
	hostSemPayloadHi     = 0x68
	hostSemExecute       = 0x6c
	hostYield            = 0x80
	yieldTimeslice       = 2
	yieldGroup           = 3
	semaphoreAddressMask = 0x1ffff // upper half: addresses have 49 bits
)

// hostInert are the host methods that need nothing done, since nothing is cached and a
// channel waits for each piece of its work: NOP, FB_FLUSH, MEM_OP_A…D, SET_REFERENCE,
// WFI, CRC_CHECK and CLEAR_FAULTED.
var hostInert = map[uint32]bool{
	0x08: true, 0x24: true, 0x28: true, 0x2c: true, 0x30: true, 0x34: true,
	0x50: true, 0x78: true, 0x7c: true, 0x84: true,
}

// hostState holds a channel's semaphore registers, of both forms.
type hostState struct {
	addr, payload uint64
	a, b, c       uint32
}

func setLow(v *uint64, w uint32)  { *v = *v&^0xffffffff | uint64(w) }
func setHigh(v *uint64, w uint32) { *v = *v&0xffffffff | uint64(w)<<32 }

func (c *Channel) hostMethod(address, v uint32) error {
	h := &c.host
	switch address {
	case hostSetObject:
		return c.bind(v & 0xffff)
	case hostIllegal:
		return fmt.Errorf("the illegal method was executed, with %#x", v)
	case hostSemaphoreA:
		h.a = v
	case hostSemaphoreB:
		h.b = v
	case hostSemaphoreC:
		h.c = v
	case hostSemaphoreD:
		return c.oldSemaphore(v)
	case hostNonStallIntr:
		c.interrupt()
	case hostSemAddrLo:
		setLow(&h.addr, v&^3)
	case hostSemAddrHi:
		setHigh(&h.addr, v&semaphoreAddressMask)
	case hostSemPayloadLo:
		setLow(&h.payload, v)
	case hostSemPayloadHi:
		setHigh(&h.payload, v)
	case hostSemExecute:
		return c.semaphore(v)
	case hostYield:
		if op := v & 3; op == yieldTimeslice || op == yieldGroup {
			c.engine.runlist.Preempt(c.group.list)
		}
	default:
		if !hostInert[address] {
			c.engine.unknown("host", address, v)
		}
	}
	return nil
}

// semaphore executes SEM_EXECUTE.
func (c *Channel) semaphore(v uint32) error {
	wide := v>>24&1 == 1
	switch op := v & 7; op {
	case 0, 2, 3, 4, 5:
		cond := [...]condition{0: condEqual, 2: condGreater, 3: condCircular, 4: condAnd, 5: condNor}[op]
		return c.acquire(acquire{addr: c.host.addr, payload: c.host.payload, wide: wide, cond: cond})
	case 1:
		return c.release(release{addr: c.host.addr, payload: c.host.payload, wide: wide, stamp: v>>25&1 == 1})
	case 6:
		return c.release(release{
			addr: c.host.addr, payload: c.host.payload, wide: wide,
			reduce: hostReductions[v>>27&7], signed: v>>31 == 0,
		})
	default:
		return fmt.Errorf("SEM_EXECUTE %#x asks for the unknown operation %d", v, op)
	}
}

// oldSemaphore executes SEMAPHORED, the form of earlier chips that is still there.
func (c *Channel) oldSemaphore(v uint32) error {
	addr := uint64(c.host.a&0xff)<<32 | uint64(c.host.b&^3)
	payload := uint64(c.host.c)
	switch op := v & 0x1f; op {
	case 1:
		return c.acquire(acquire{addr: addr, payload: payload, cond: condEqual})
	case 2:
		return c.release(release{addr: addr, payload: payload, stamp: v>>24&1 == 0})
	case 4:
		return c.acquire(acquire{addr: addr, payload: payload, cond: condCircular})
	case 8:
		return c.acquire(acquire{addr: addr, payload: payload, cond: condAnd})
	case 0x10:
		return c.release(release{addr: addr, payload: payload, reduce: hostReductions[v>>27&7], signed: v>>31 == 0})
	default:
		return fmt.Errorf("SEMAPHORED %#x asks for the unknown operation %#x", v, op)
	}
}

func le64(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }
