package mediator

import (
	"encoding/binary"
	"testing"

	"github.com/qgpu-project/qgpu/internal/nvabi"
	"github.com/qgpu-project/qgpu/internal/seccomp"
	"golang.org/x/sys/unix"
)

// decide runs a filter's program for a native call, as the kernel would.
func decide(t *testing.T, code []unix.SockFilter, nr int, args ...uint64) seccomp.Action {
	t.Helper()
	return decideOn(t, code, unix.AUDIT_ARCH_X86_64, nr, args...)
}

// decideOn is decide for a call of the convention arch.
func decideOn(t *testing.T, code []unix.SockFilter, arch uint32, nr int, args ...uint64) seccomp.Action {
	t.Helper()
	data := make([]byte, 64) // struct seccomp_data
	binary.LittleEndian.PutUint32(data, uint32(nr))
	binary.LittleEndian.PutUint32(data[4:], arch)
	for i, a := range args {
		binary.LittleEndian.PutUint64(data[16+8*i:], a)
	}
	var acc uint32
	for pc := 0; pc < len(code); pc++ {
		in := code[pc]
		holds := false
		switch in.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			acc = binary.LittleEndian.Uint32(data[in.K:])
			continue
		case unix.BPF_ALU | unix.BPF_AND | unix.BPF_K:
			acc &= in.K
			continue
		case unix.BPF_RET | unix.BPF_K:
			return seccomp.Action(in.K)
		case unix.BPF_JMP | unix.BPF_JA:
			pc += int(in.K)
			continue
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			holds = acc == in.K
		case unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K:
			holds = acc > in.K
		case unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K:
			holds = acc >= in.K
		case unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K:
			holds = acc&in.K != 0
		default:
			t.Fatalf("instruction %d is %#x, which the test does not know", pc, in.Code)
		}
		if holds {
			pc += int(in.Jt)
		} else {
			pc += int(in.Jf)
		}
	}
	t.Fatal("the program ends without a decision")
	return 0
}

// abiOf is the ABI of a driver version.
func abiOf(t *testing.T, version string) *nvabi.ABI {
	t.Helper()
	v, err := nvabi.ParseVersion(version)
	if err != nil {
		t.Fatal(err)
	}
	abi, err := nvabi.For(v)
	if err != nil {
		t.Fatal(err)
	}
	return abi
}

func TestFilter(t *testing.T) {
	const (
		rdwr   = unix.O_RDWR
		shared = unix.MAP_SHARED
		rw     = unix.PROT_READ | unix.PROT_WRITE
		notify = seccomp.Notify
		allow  = seccomp.Allow
	)
	control := uint64(3<<30 | 32<<16 | 'F'<<8 | nvabi.EscRMControl)
	for _, version := range []string{"535.309.01", "550.163.01", "570.133.20", "580.105.08"} {
		abi := abiOf(t, version)
		code, err := Filter(abi).Assemble()
		if err != nil {
			t.Fatalf("%s: %v", version, err)
		}
		for _, tc := range []struct {
			name string
			want seccomp.Action
			nr   int
			args []uint64
		}{
			{"control", notify, unix.SYS_IOCTL, []uint64{3, control}},
			{"another type", notify, unix.SYS_IOCTL, []uint64{3, control ^ 'F'<<8 ^ 'X'<<8}},
			{"no direction", notify, unix.SYS_IOCTL, []uint64{3, control &^ (3 << 30)}},
			{"high bits", notify, unix.SYS_IOCTL, []uint64{3, control | 0xdead<<32}},
			{"another size", allow, unix.SYS_IOCTL, []uint64{3, control + 8<<16}},
			{"wrapped", notify, unix.SYS_IOCTL, []uint64{3, 3<<30 | 16<<16 | 'F'<<8 | nvabi.EscXferCmd}},
			{"cards, an array longer than there are", notify, unix.SYS_IOCTL, []uint64{3, 3<<30 | 100*72<<16 | 'F'<<8 | nvabi.EscCardInfo}},
			{"cards, an odd size", notify, unix.SYS_IOCTL, []uint64{3, 3<<30 | 73<<16 | 'F'<<8 | nvabi.EscAttachGPUsToFD}},
			{"UVM initialize", notify, unix.SYS_IOCTL, []uint64{3, 0x30000001}},
			{"UVM map", notify, unix.SYS_IOCTL, []uint64{3, 33}},
			{"UVM, high bits", notify, unix.SYS_IOCTL, []uint64{3, 1<<40 | 33}},
			{"UVM, unknown", notify, unix.SYS_IOCTL, []uint64{3, 99}},
			{"UVM, a test", notify, unix.SYS_IOCTL, []uint64{3, 200}},
			{"FIBMAP", allow, unix.SYS_IOCTL, []uint64{3, 1}},
			{"FIGETBSZ", allow, unix.SYS_IOCTL, []uint64{3, 2}},
			{"TCGETS", allow, unix.SYS_IOCTL, []uint64{3, unix.TCGETS}},
			{"FIONREAD", allow, unix.SYS_IOCTL, []uint64{3, 0x541b}},
			{"open a device", notify, unix.SYS_OPENAT, []uint64{0, 0, rdwr | unix.O_CLOEXEC}},
			{"old open", notify, unix.SYS_OPEN, []uint64{0, rdwr}},
			{"open to read", allow, unix.SYS_OPENAT, []uint64{0, 0, unix.O_RDONLY}},
			{"open to create", allow, unix.SYS_OPENAT, []uint64{0, 0, rdwr | unix.O_CREAT}},
			{"managed memory", notify, unix.SYS_MMAP, []uint64{0x7f0000000000, 1 << 20, rw, shared | unix.MAP_FIXED, 3, 0x7f0000000000}},
			{"mapping of a device", allow, unix.SYS_MMAP, []uint64{0, 1 << 20, rw, shared, 3, 0}},
			{"private mapping", allow, unix.SYS_MMAP, []uint64{0, 1 << 20, rw, unix.MAP_PRIVATE, 3, 1 << 20}},
			{"read-only mapping", allow, unix.SYS_MMAP, []uint64{0, 1 << 20, unix.PROT_READ, shared, 3, 1 << 20}},
			{"anonymous mapping", allow, unix.SYS_MMAP, []uint64{0, 1 << 20, rw, shared | unix.MAP_ANONYMOUS, 1<<32 - 1, 1 << 20}},
			{"ring", seccomp.Errno(unix.ENOSYS), unix.SYS_IO_URING_SETUP, nil},
			{"own listener", seccomp.Errno(unix.EBUSY), unix.SYS_SECCOMP, []uint64{unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_TSYNC}},
			{"own filter", allow, unix.SYS_SECCOMP, []uint64{unix.SECCOMP_SET_MODE_FILTER, 0}},
			{"getpid", allow, unix.SYS_GETPID, nil},
		} {
			if got := decide(t, code, tc.nr, tc.args...); got != tc.want {
				t.Errorf("%s: %s: %#x, want %#x", version, tc.name, uint32(got), uint32(tc.want))
			}
		}
	}
}

// Every call that the driver acts on is notified, and every rule names one it has.
func TestEveryDriverCallIsNotified(t *testing.T) {
	_, _, tn := setUp(t, gib)
	abi := tn.m.abi
	code, err := Filter(abi).Assemble()
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range append(abi.IoctlNumbers(), abi.UVMNumbers()...) {
		if got := decide(t, code, unix.SYS_IOCTL, 3, uint64(n)); got != seccomp.Notify {
			t.Errorf("ioctl %#x: %#x", n, uint32(got))
		}
	}
	for nr, r := range tn.m.frontend {
		if len(abi.Frontend[nr]) == 0 && nr != nvabi.EscWaitOpenComplete {
			t.Errorf("a rule for ioctl %#x, which the driver does not have", nr)
		}
		if r.why == "" || r.answer == nil {
			t.Errorf("ioctl %#x: the rule has no reason or no answer", nr)
		}
	}
	for cmd, r := range tn.m.controls {
		if r.why == "" {
			t.Errorf("control %#x: the rule has no reason", cmd)
		}
		if r.check != nil || r.show != nil || r.instead != nil {
			if _, ok := controlExtents[cmd]; !ok {
				t.Errorf("control %#x: its parameters are looked at, but their size is not checked", cmd)
			}
		}
	}
	for cmd, r := range tn.m.uvm {
		if r.why == "" {
			t.Errorf("UVM command %d: the rule has no reason", cmd)
		}
	}
}

// TestOutsiderFilter has whatever makes or uses an object of the driver fail, on every
// version, and leaves what others may mean by their ioctls alone.
func TestOutsiderFilter(t *testing.T) {
	code, err := OutsiderFilter().Assemble()
	if err != nil {
		t.Fatal(err)
	}
	denied := seccomp.Errno(unix.EPERM)
	conventions := []struct {
		arch  uint32
		ioctl int
	}{{unix.AUDIT_ARCH_X86_64, unix.SYS_IOCTL}, {unix.AUDIT_ARCH_I386, 54}}
	for _, c := range conventions {
		for _, version := range []string{"535.309.01", "550.163.01", "570.133.20", "580.105.08", "590.44.01", "595.45.04"} {
			abi := abiOf(t, version)
			for _, calls := range abi.Frontend {
				for _, call := range calls {
					// Those that neither make nor use objects: nv-ioctl-numbers.h, but these two.
					tells := call.NR >= 200 && call.NR != nvabi.EscXferCmd && call.NR != nvabi.EscExportToDMABufFD
					for _, kind := range []uint32{3<<30 | 'F'<<8, 0, 1<<30 | 'T'<<8} {
						cmd := kind | call.Size<<16 | uint32(call.NR)
						if got := decideOn(t, code, c.arch, c.ioctl, 3, uint64(cmd)); (got == denied) == tells {
							t.Errorf("%s: %s as %#x: %#x", version, call.Name, cmd, uint32(got))
						}
					}
				}
			}
			for _, cmd := range abi.UVMNumbers() {
				if got := decideOn(t, code, c.arch, c.ioctl, 3, uint64(cmd)); got != denied {
					t.Errorf("%s: UVM command %d: %#x", version, cmd, uint32(got))
				}
			}
		}
		for name, cmd := range map[string]uint64{
			"TCGETS": unix.TCGETS, "FIONREAD": 0x541b, "FIGETBSZ": 2, "FICLONE": unix.FICLONE, "FS_IOC_GETFLAGS": unix.FS_IOC_GETFLAGS,
			"SIOCGIFINDEX": unix.SIOCGIFINDEX, "TUNSETIFF": unix.TUNSETIFF, "TUNSETSNDBUF": unix.TUNSETSNDBUF, "TUNGETFEATURES": unix.TUNGETFEATURES,
			"TUNSETVNETHDRSZ": unix.TUNSETVNETHDRSZ, "BLKGETSIZE64": unix.BLKGETSIZE64, "PERF_EVENT_IOC_ENABLE": unix.PERF_EVENT_IOC_ENABLE,
			"RNDGETENTCNT": unix.RNDGETENTCNT, "FS_IOC_ENABLE_VERITY": unix.FS_IOC_ENABLE_VERITY,
		} {
			if got := decideOn(t, code, c.arch, c.ioctl, 3, cmd); got != seccomp.Allow {
				t.Errorf("%s: %#x", name, uint32(got))
			}
		}
		if got := decideOn(t, code, c.arch, c.ioctl+1, 3, 0xc020462a); got != seccomp.Allow {
			t.Errorf("another call: %#x", uint32(got))
		}
	}
}
