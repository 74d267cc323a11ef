package nvabi

import "slices"

// Privilege says which callers the driver accepts, as the flags in its exported
// method tables do (src/nvidia/generated/g_*_nvoc.c).
type Privilege uint8

const (
	Anyone     Privilege = iota
	Nice                 // CAP_SYS_ADMIN or, since branch 570, CAP_SYS_NICE
	Root                 // CAP_SYS_ADMIN
	KernelOnly           // no process at all
)

func (p Privilege) String() string {
	switch p {
	case Anyone:
		return "anyone"
	case Nice:
		return "nice"
	case Root:
		return "root"
	case KernelOnly:
		return "kernel"
	}
	return "unknown"
}

// controlRow is one line of the control tables. A command that means different
// things, or asks for a different privilege, in different branches has a row for
// each; at any one branch at most one of them exists.
type controlRow struct {
	cmd  uint32
	name string
	size sizes
	who  Privilege
}

func resolveControls(major int) map[uint32]RMControl {
	controls := make(map[uint32]RMControl)
	rows := slices.Concat(clientControls, deviceControls, subdeviceControls, channelControls, objectControls)
	for _, row := range rows {
		size, ok := row.size.at(major)
		if !ok {
			continue
		}
		controls[row.cmd] = RMControl{
			Name:      row.name,
			Cmd:       row.cmd,
			Size:      size,
			Privilege: row.who,
			Pointers:  resolvePointers(row.cmd, major),
			FD:        controlFD(row.cmd),
		}
	}
	for _, row := range closedControls {
		controls[row.cmd] = RMControl{Name: row.name, Cmd: row.cmd, Opaque: true, FD: None}
	}
	return controls
}

func controlFD(cmd uint32) int {
	if at, ok := controlFDs[cmd]; ok {
		return at
	}
	return None
}

// controlFDs are the offsets of file descriptors in the parameters of controls.
// -1 there means no descriptor.
var controlFDs = map[uint32]int{
	0x00000d08: 0,  // NV0000_CTRL_CLIENT_SUBSCRIBE_TO_IMEX_CHANNEL_PARAMS.devDescriptor, uint64
	0x00003d05: 16, // NV0000_CTRL_OS_UNIX_EXPORT_OBJECT_TO_FD_PARAMS.fd
	0x00003d06: 0,  // NV0000_CTRL_OS_UNIX_IMPORT_OBJECT_FROM_FD_PARAMS.fd
	0x00003d08: 0,  // NV0000_CTRL_OS_UNIX_GET_EXPORT_OBJECT_INFO_PARAMS.fd
	0x00003d0a: 72, // NV0000_CTRL_OS_UNIX_CREATE_EXPORT_OBJECT_FD_PARAMS.fd
	0x00003d0b: 0,  // NV0000_CTRL_OS_UNIX_EXPORT_OBJECTS_TO_FD_PARAMS.fd
	0x00003d0c: 0,  // NV0000_CTRL_OS_UNIX_IMPORT_OBJECTS_FROM_FD_PARAMS.fd
	0x00fd0104: 8,  // NV00FD_CTRL_ATTACH_GPU_PARAMS.devDescriptor, uint64
}

// closedControls are controls whose numbers have GSSLegacy set and for which
// NVIDIA publishes no parameters. The driver passes them to the card's firmware
// at any size (src/nvidia/interface/deprecated/rmapi_gss_legacy_control.c). These
// are the ones nvidia-smi, NVML and libcuda were seen to use; the names say what
// they answer, where that is known.
var closedControls = []controlRow{
	{cmd: 0x00809909, name: "closed 0x00809909 (CUDA limit)"},
	{cmd: 0x20808159, name: "closed 0x20808159"},
	{cmd: 0x20808161, name: "closed 0x20808161"},
	{cmd: 0x20808513, name: "closed 0x20808513 (temperature)"},
	{cmd: 0x2080852e, name: "closed 0x2080852e (fan)"},
	{cmd: 0x2080852f, name: "closed 0x2080852f (fan)"},
	{cmd: 0x20808545, name: "closed 0x20808545 (clocks)"},
	{cmd: 0x20809001, name: "closed 0x20809001 (clock domains)"},
	{cmd: 0x20809004, name: "closed 0x20809004 (clocks)"},
	{cmd: 0x20809009, name: "closed 0x20809009 (clock domains)"},
	{cmd: 0x20809064, name: "closed 0x20809064 (clock frequencies)"},
	{cmd: 0x2080a026, name: "closed 0x2080a026 (clocks)"},
	{cmd: 0x2080a068, name: "closed 0x2080a068 (performance states)"},
	{cmd: 0x2080a084, name: "closed 0x2080a084 (clocks)"},
	{cmd: 0x2080a097, name: "closed 0x2080a097 (utilisation)"},
	{cmd: 0x2080a612, name: "closed 0x2080a612 (power sensors)"},
	{cmd: 0x2080a613, name: "closed 0x2080a613 (power drawn)"},
	{cmd: 0x2080a618, name: "closed 0x2080a618 (power limits)"},
	{cmd: 0x2080a61a, name: "closed 0x2080a61a (power limit set)"},
	{cmd: 0x2080a61d, name: "closed 0x2080a61d (power limit of the card)"},
	{cmd: 0x2080a61f, name: "closed 0x2080a61f (power limit enforced)"},
}

const (
	// GSSLegacy in a control's number marks a control that is passed unread to
	// the card's firmware (RM_GSS_LEGACY_MASK, rmapi_deprecated.h).
	GSSLegacy = 0x8000
	// GSSLegacyRoot marks those of them that only Root may use.
	GSSLegacyRoot = 0xc000
)
