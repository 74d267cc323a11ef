package nvabi

import "testing"

// TestLayoutFillsParameters checks offsets against the sizes of the parameters
// they lie in: arrays must fill them exactly, last fields must end them.
func TestLayoutFillsParameters(t *testing.T) {
	const (
		utilSamples = 0x20802096
		fbRegions   = 0x20801320
		exportInfo  = 0x00003d08
		copyCaps    = 0x20802a0a
		smOrder     = 0x2080121b
		eccStatus   = 0x2080012f
		channels    = 0x2080110b
		pids        = 0x2080018d
		pidInfo     = 0x2080018e

		uvmMapExternal       = 33
		uvmSemaphorePool     = 68
		uvmUnregisterChannel = 28
		uvmFree              = 34
	)
	for _, abi := range allABIs(t) {
		l := abi.Layout
		control := func(cmd uint32) int { return int(abi.Controls[cmd].Size) }
		class := func(id uint32) int { return int(abi.Classes[id].Size) }
		uvm := func(cmd uint32) int { return int(abi.UVM[cmd].Size) }
		lastEngine := l.UtilSample.NVOFA
		if lastEngine == None {
			lastEngine = l.UtilSample.NVDEC
		}
		for _, tt := range []struct {
			what      string
			got, want int
		}{
			{"utilisation samples", UtilSamples + UtilMax*l.UtilSample.Size, control(utilSamples)},
			{"engines of a sample", lastEngine + l.UtilSample.EngineSize, l.UtilSample.Size},
			{"regions of video memory", FBRegionList + 16*l.FBRegionSize, control(fbRegions)},
			{"export info", l.ExportMaxObjects + 2 + 64 + 2, control(exportInfo)},
			{"copy engine mask", l.CopyEnginesPresent + l.CopyEnginesPresent/2/8, control(copyCaps)},
			{"order of SMs", l.SMOrderNumTPC + 2 + 4 + 16, control(smOrder)},
			{"channels to disable", DisableChannelsChannels + 4*DisableChannelsMax, control(channels)},
			{"processes", PidsTable + 4*PidsMax, control(pids)},
			{"facts of processes", PidInfoList + PidInfoMax*PidInfoSize, control(pidInfo)},
			{"multicast memory", l.MulticastSize + 32, class(0xfd)},
			{"external mapping", l.UVMMapExternal.Memory + 8, uvm(uvmMapExternal)},
			{"external mapping's cards", UVMMapExternalAttributes + l.UVMMapExternal.MaxGPUs*UVMMapAttributesSize, l.UVMMapExternal.Count},
			{"semaphore pool", l.UVMSemaphorePool.Count + 16, uvm(uvmSemaphorePool)},
			{"semaphore pool's cards", UVMSemaphorePoolAttributes + l.UVMSemaphorePool.MaxGPUs*UVMMapAttributesSize, l.UVMSemaphorePool.Count},
			{"channel to unregister", l.UVMUnregisterChannel.Channel + 8, uvm(uvmUnregisterChannel)},
		} {
			if tt.got != tt.want {
				t.Errorf("%s: %s ends at %d, want %d", abi.Version, tt.what, tt.got, tt.want)
			}
		}
		if l.ECCFatalPoison >= l.ECCFlags || l.ECCFlags+4 > control(eccStatus) {
			t.Errorf("%s: ECC status fields at %d and %d of %d", abi.Version, l.ECCFatalPoison, l.ECCFlags, control(eccStatus))
		}
		if (l.UVMFreeLength == None) != (uvm(uvmFree) == 16) {
			t.Errorf("%s: UVM_FREE has length at %d and %d bytes", abi.Version, l.UVMFreeLength, uvm(uvmFree))
		}
		if (l.MemoryNUMANode == None) != (class(0x40) == 120) {
			t.Errorf("%s: memory has its NUMA node at %d of %d bytes", abi.Version, l.MemoryNUMANode, class(0x40))
		}
	}
}
