package ociruntime

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

const (
	majorNVIDIA = 195 // nvidiactl and cards (Linux, admin-guide/devices.txt)
	majorDRM    = 226 // /dev/dri, by which NVIDIA's cards can be reached, too
)

// nvidiaMajors are the device numbers of NVIDIA's drivers: the fixed one, those of
// nodes, and those that /proc/devices, whose text devices is, lists as nvidia-….
func nvidiaMajors(devices io.Reader, nodes []int64) []int64 {
	majors := append([]int64{majorNVIDIA}, nodes...)
	lines := bufio.NewScanner(devices)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) != 2 || !strings.HasPrefix(fields[1], "nvidia") {
			continue
		}
		if major, err := strconv.ParseInt(fields[0], 10, 32); err == nil {
			majors = append(majors, major)
		}
	}
	slices.Sort(majors)
	return slices.Compact(majors)
}

// checkDevices refuses a container that may open every device, or is given a way to a
// card that is not NVIDIA's device files.
func (c checker) checkDevices(l *specs.Linux) error {
	for _, d := range l.Devices {
		if d.Major == majorDRM {
			return fmt.Errorf("the container is given %s, by which a card can be used past its share; leave it out", d.Path)
		}
	}
	if l.Resources == nil {
		return nil
	}
	all := false
	for _, rule := range l.Resources.Devices {
		switch {
		case !opens(rule):
		case everyMajor(rule):
			all = rule.Allow
		case rule.Allow && *rule.Major == majorDRM:
			return fmt.Errorf("the container may open devices of major number %d (/dev/dri), by which a card can be used past its share; leave that out", majorDRM)
		}
	}
	if all {
		return fmt.Errorf("the container may open every device of the machine, as a privileged one; run it without privileges")
	}
	return nil
}

// opens reports whether rule is about opening character devices.
func opens(rule specs.LinuxDeviceCgroup) bool {
	return (rule.Type == "" || rule.Type == "a" || rule.Type == "c") && (rule.Access == "" || strings.ContainsAny(rule.Access, "rw"))
}

func everyMajor(rule specs.LinuxDeviceCgroup) bool {
	return rule.Type == "a" || rule.Major == nil || *rule.Major < 0
}

// denied are rules by which a container opens no device of majors itself. It starts from
// nothing, and what others allowed of those majors is left out. Access to make nodes (m)
// stays as it is: runc refuses to take a part of what a wildcard gives.
func denied(rules []specs.LinuxDeviceCgroup, majors []int64) []specs.LinuxDeviceCgroup {
	kept := slices.DeleteFunc(slices.Clone(rules), func(r specs.LinuxDeviceCgroup) bool {
		return !everyMajor(r) && slices.Contains(majors, *r.Major)
	})
	if len(kept) == 0 || kept[0].Allow || !everyMajor(kept[0]) {
		kept = append([]specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}}, kept...)
	}
	for _, major := range majors {
		kept = append(kept, specs.LinuxDeviceCgroup{Allow: false, Type: "c", Major: &major, Access: "rw"})
	}
	return kept
}
