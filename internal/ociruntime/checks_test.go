package ociruntime

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

func TestCheck(t *testing.T) {
	state := filepath.Join(t.TempDir(), "run", "qgpu")
	if err := os.MkdirAll(state, 0o755); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(filepath.Dir(state), link); err != nil {
		t.Fatal(err)
	}
	bind := func(source string) func(*specs.Spec) {
		return func(s *specs.Spec) {
			s.Mounts = append(s.Mounts, specs.Mount{Destination: "/m", Type: "none", Source: source, Options: []string{"rbind", "ro"}})
		}
	}
	n := func(v int64) *int64 { return &v }
	rules := func(r ...specs.LinuxDeviceCgroup) func(*specs.Spec) {
		return func(s *specs.Spec) { s.Linux.Resources = &specs.LinuxResources{Devices: r} }
	}
	caps := func(names ...string) func(*specs.Spec) {
		return func(s *specs.Spec) { s.Process.Capabilities = &specs.LinuxCapabilities{Bounding: names} }
	}
	hostPIDs := func(s *specs.Spec) { s.Linux.Namespaces = nil }
	for _, tt := range []struct {
		name string
		edit func(*specs.Spec)
		err  string // empty: it is allowed
	}{
		{"an ordinary container", func(*specs.Spec) {}, ""},
		{"Docker's capabilities", caps("CAP_MKNOD", "CAP_KILL", "CAP_SETUID", "CAP_SYS_PTRACE"), ""},
		{"administrator", caps("CAP_SYS_ADMIN"), "CAP_SYS_ADMIN"},
		{"administrator, in another case", caps("cap_sys_admin"), "CAP_SYS_ADMIN"},
		{"administrator, ambient", func(s *specs.Spec) {
			s.Process.Capabilities = &specs.LinuxCapabilities{Ambient: []string{"CAP_SYS_ADMIN"}}
		}, "CAP_SYS_ADMIN"},
		{"modules", caps("CAP_SYS_MODULE"), "CAP_SYS_MODULE"},
		{"registers", caps("CAP_SYS_RAWIO"), "CAP_SYS_RAWIO"},
		{"the machine's processes", hostPIDs, ""},
		{"a debugger of the machine's processes", func(s *specs.Spec) { hostPIDs(s); caps("CAP_SYS_PTRACE")(s) }, "CAP_SYS_PTRACE"},
		{"the state folder", bind(state), "change its own share"},
		{"above the state folder", bind(filepath.Dir(state)), "change its own share"},
		{"in the state folder", bind(filepath.Join(state, "agent.sock")), "change its own share"},
		{"by a link", bind(link), "change its own share"},
		{"everything", bind("/"), "change its own share"},
		{"beside the state folder", bind(state + "-other"), ""},
		{"a folder", bind("/usr"), ""},
		{"a listener", func(s *specs.Spec) { s.Linux.Seccomp = &specs.LinuxSeccomp{ListenerPath: "/x"} }, "listener of its own"},
		{"notified calls", func(s *specs.Spec) {
			s.Linux.Seccomp = &specs.LinuxSeccomp{Syscalls: []specs.LinuxSyscall{{Action: specs.ActNotify}}}
		}, "listener of its own"},
		{"a profile", func(s *specs.Spec) { s.Linux.Seccomp = &specs.LinuxSeccomp{DefaultAction: specs.ActErrno} }, ""},
		{"all devices", rules(specs.LinuxDeviceCgroup{Allow: true, Access: "rwm"}), "every device"},
		{"all character devices", rules(specs.LinuxDeviceCgroup{Allow: false, Access: "rwm"}, specs.LinuxDeviceCgroup{Allow: true, Type: "c", Major: n(-1), Minor: n(-1), Access: "r"}), "every device"},
		{"all devices, and then none", rules(specs.LinuxDeviceCgroup{Allow: true, Access: "rwm"}, specs.LinuxDeviceCgroup{Allow: false, Access: "rwm"}), ""},
		{"to make nodes", rules(specs.LinuxDeviceCgroup{Allow: true, Type: "c", Access: "m"}), ""},
		{"all disks", rules(specs.LinuxDeviceCgroup{Allow: true, Type: "b", Access: "rwm"}), ""},
		{"render nodes", rules(specs.LinuxDeviceCgroup{Allow: true, Type: "c", Major: n(226), Access: "rw"}), "/dev/dri"},
		{"a render node", func(s *specs.Spec) { s.Linux.Devices = []specs.LinuxDevice{{Path: "/dev/dri/renderD128", Major: 226}} }, "/dev/dri/renderD128"},
		{"no process", func(s *specs.Spec) { s.Process = nil }, "no process"},
		{"a virtual machine", func(s *specs.Spec) { s.Linux = nil }, "no process"},
	} {
		spec := &specs.Spec{Process: &specs.Process{}, Linux: &specs.Linux{Namespaces: []specs.LinuxNamespace{{Type: specs.PIDNamespace}}}}
		tt.edit(spec)
		err := checker{private: []string{state}}.check(spec, "/bundle/rootfs")
		if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.err)
		}
	}
}
