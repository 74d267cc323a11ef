package nodeinstall

import (
	"fmt"
	"path/filepath"
)

func (p Plan) runtimePath() string { return filepath.Join(p.InstallDir, "bin", "qgpu-runtime") }

// containerd is a drop-in for containerd. It has version 2 of its format, which
// containerd 1.7 reads as it is and 2.x translates as it loads it.
func (p Plan) containerd() []byte {
	return fmt.Appendf(nil, `# Written by qgpu-agent. It counts from containerd's next start on, and if containerd's
# own configuration imports this folder, as the default of 2.x does:
#   imports = ["/etc/containerd/conf.d/*.toml"]
version = 2

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.%[1]q]
  runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.%[1]q.options]
    BinaryName = %[2]q
    SystemdCgroup = %[3]t
`, p.Handler, p.runtimePath(), p.SystemdCgroup)
}

// crio is a drop-in for CRI-O, which reads its folder on start and on SIGHUP.
func (p Plan) crio() []byte {
	return fmt.Appendf(nil, `# Written by qgpu-agent. It counts from CRI-O's next start on.
[crio.runtime.runtimes.%q]
runtime_path = %q
runtime_type = "oci"
runtime_root = "/run/runc"
`, p.Handler, p.runtimePath())
}
