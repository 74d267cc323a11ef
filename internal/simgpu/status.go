package simgpu

import "fmt"

// status is an NV_STATUS: what the driver answers inside a call's argument, while
// the ioctl itself succeeds. Values: nvstatuscodes.h.
type status uint32

const (
	ok                         status = 0x00
	errGPUIsLost               status = 0x0f
	errInsertDuplicateName     status = 0x19
	errInsufficientResources   status = 0x1a
	errInsufficientPermissions status = 0x1b
	errInvalidAddress          status = 0x1e
	errInvalidArgument         status = 0x1f
	errIllegalAction           status = 0x16
	errInUse                   status = 0x17
	errInvalidChannel          status = 0x21
	errInvalidClass            status = 0x22
	errInvalidClient           status = 0x23
	errInvalidDevice           status = 0x26
	errInvalidEvent            status = 0x28
	errInvalidLimit            status = 0x2e
	errInvalidObjectHandle     status = 0x33
	errInvalidObjectParent     status = 0x36
	errInvalidOffset           status = 0x37
	errInvalidParamStruct      status = 0x3a
	errInvalidState            status = 0x40
	errNoMemory                status = 0x51
	errNotSupported            status = 0x56
	warnNothingToDo            status = 0x10006
	errObjectNotFound          status = 0x57
	errGPUUUIDNotFound         status = 0x12
	errUVMAddressInUse         status = 0x68
	errOperatingSystem         status = 0x59
)

func (s status) String() string { return fmt.Sprintf("NV_STATUS %#x", uint32(s)) }
