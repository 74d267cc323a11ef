package simgpu

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// Device numbers of the device files.
const (
	MajorFrontend = 195 // nvidiactl is minor 255, cards are minors 0…15
	MajorUVM      = 510
	MinorControl  = 255
)

// Files are the text files that the kernel modules show, by path. /proc/devices
// holds the lines to merge into its "Character devices" section.
func (d *Driver) Files() map[string]string {
	files := map[string]string{
		"/proc/devices": lines(
			fmt.Sprintf("%d nvidia-frontend", MajorFrontend),
			fmt.Sprintf("%d nvidia-uvm", MajorUVM),
		),
		"/proc/driver/nvidia/version": lines(
			"NVRM version: NVIDIA UNIX x86_64 Kernel Module  "+d.abi.Version.String()+"  (simulated)",
			"GCC version:  n/a",
		),
		"/proc/driver/nvidia/params": lines(
			"ResmanDebugLevel: 4294967295",
			"ModifyDeviceFiles: 1",
			"DeviceFileUID: 0",
			"DeviceFileGID: 0",
			"DeviceFileMode: 438",
			"EnableGpuFirmware: 18",
			`RegistryDwords: ""`,
			`RegistryDwordsPerDevice: ""`,
		),
		"/proc/driver/nvidia/registry":     "Binary: \"\"\n",
		"/sys/module/nvidia/initstate":     "live\n",
		"/sys/module/nvidia_uvm/initstate": "live\n",
		"/sys/module/nvidia/version":       d.abi.Version.String() + "\n",
	}
	for _, c := range d.cards {
		dir := "/proc/driver/nvidia/gpus/" + c.pciAddress()
		files[dir+"/information"] = lines(
			"Model: \t\t "+c.model.Name,
			fmt.Sprintf("IRQ:   \t\t %d", 16+c.minor),
			"GPU UUID: \t "+c.uuidString(),
			"Video BIOS: \t ??.??.??.??.??",
			"Bus Type: \t PCIe",
			"DMA Size: \t 47 bits",
			"DMA Mask: \t 0x7fffffffffff",
			"Bus Location: \t "+c.pciAddress(),
			fmt.Sprintf("Device Minor: \t %d", c.minor),
			"GPU Excluded:\t No",
		)
		files[dir+"/numa_status"] = lines(
			"node:            -1",
			"Numa Info:       NUMA is not supported",
		)
		c.addSysfs(files)
	}
	return files
}

// addSysfs adds what the kernel shows of the card as a PCI device.
func (c *card) addSysfs(files map[string]string) {
	const controller3D = "0x030200"
	dir := "/sys/bus/pci/devices/" + c.pciAddress()
	m := c.model
	for name, value := range map[string]string{
		"vendor":           fmt.Sprintf("%#04x", pciVendor),
		"device":           fmt.Sprintf("%#04x", m.Device),
		"subsystem_vendor": fmt.Sprintf("%#04x", pciVendor),
		"subsystem_device": fmt.Sprintf("%#04x", m.Subsystem),
		"revision":         fmt.Sprintf("%#02x", m.Revision),
		"class":            controller3D,
		"numa_node":        "-1",
	} {
		files[dir+"/"+name] = value + "\n"
	}
	files[dir+"/config"] = string(m.configSpace())
}

// configSpace is the card's PCI configuration space, as far as its header goes (PCI
// Local Bus Specification 3.0, §6.1), in the 256 bytes that the kernel shows.
func (m *Model) configSpace() []byte {
	space := make([]byte, 256)
	put := binary.LittleEndian.PutUint16
	put(space[0x00:], pciVendor)
	put(space[0x02:], m.Device)
	put(space[0x04:], 0x0006) // memory space and bus mastering are on
	space[0x08] = m.Revision
	put(space[0x0a:], 0x0302) // 3D controller
	put(space[0x2c:], pciVendor)
	put(space[0x2e:], m.Subsystem)
	return space
}

func lines(l ...string) string { return strings.Join(l, "\n") + "\n" }
