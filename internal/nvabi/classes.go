package nvabi

import "slices"

// classRow is one line of the class tables. A class whose privilege differs
// between branches has a row for each; at any one branch at most one exists.
type classRow struct {
	id       uint32
	name     string
	kind     Kind
	size     sizes
	optional bool
	who      Privilege
}

// classFDs are the offsets of file descriptors in allocation parameters. A class
// with two has the first here.
var classFDs = map[uint32]int{
	0x0079: 16, // NV0005_ALLOC_PARAMETERS.data
	0x000f: 0,  // NV000F_ALLOCATION_PARAMETERS.capDescriptor
	0x00f1: 0,  // NV00F1_ALLOCATION_PARAMETERS.capDescriptor
	0x90cd: 40, // NV_EVENT_BUFFER_ALLOC_PARAMETERS.notificationHandle
	0xc637: 8,  // NVC637_ALLOCATION_PARAMETERS.capDescriptor
	0xc638: 8,  // NVC638_ALLOCATION_PARAMETERS.capDescriptor
	0xc639: 0,  // NVC639_ALLOCATION_PARAMETERS.capDescriptor
	0xc640: 0,  // NVC640_ALLOCATION_PARAMETERS.capDescriptor
}

func resolveClasses(major int) map[uint32]RMClass {
	classes := make(map[uint32]RMClass)
	for _, row := range slices.Concat(objectClasses, engineClasses) {
		size, ok := row.size.at(major)
		if !ok {
			continue
		}
		fd, ok := classFDs[row.id]
		if !ok {
			fd = None
		}
		classes[row.id] = RMClass{
			Name:      row.name,
			ID:        row.id,
			Kind:      row.kind,
			Size:      size,
			Optional:  row.optional,
			Privilege: row.who,
			FD:        fd,
		}
	}
	return classes
}
