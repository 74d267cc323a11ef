package nodeinstall

import (
	"fmt"
	"path/filepath"

	"github.com/qgpu-project/qgpu/internal/ociruntime/engineconf"
)

func (p Plan) runtimePath() string { return filepath.Join(p.InstallDir, "bin", "qgpu-runtime") }

const containerdNote = `# Written by qgpu-agent. It counts from containerd's next start on, and if containerd's
# own configuration imports this folder, as the default of 2.x does:
#   imports = ["/etc/containerd/conf.d/*.toml"]

`

// containerd is a drop-in for containerd. It has version 2 of its format, which
// containerd 1.7 reads as it is and 2.x translates as it loads it.
func (p Plan) containerd() ([]byte, error) {
	base := fmt.Appendf(nil, "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.%q.options]\nSystemdCgroup = %t\n",
		p.Handler, p.SystemdCgroup)
	text, err := engineconf.Containerd.Register(base, p.Handler, p.runtimePath())
	return append([]byte(containerdNote), text...), err
}

const crioNote = "# Written by qgpu-agent. It counts from CRI-O's next start on.\n\n"

// crio is a drop-in for CRI-O, which reads its folder on start and on SIGHUP.
func (p Plan) crio() ([]byte, error) {
	text, err := engineconf.CRIO.Register(nil, p.Handler, p.runtimePath())
	return append([]byte(crioNote), text...), err
}
