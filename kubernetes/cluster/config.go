package cluster

import (
	"fmt"
	"net"
)

// cniPlugins is where Debian's containernetworking-plugins are.
const cniPlugins = "/usr/lib/cni"

// containerdConfig is the node's containerd. The handler qgpu comes by a drop-in.
func containerdConfig() string {
	return fmt.Sprintf(`version = 3
imports = ['/etc/containerd/conf.d/*.toml']
disabled_plugins = ['io.containerd.snapshotter.v1.erofs', 'io.containerd.snapshotter.v1.blockfile', 'io.containerd.tracing.processor.v1.otlp']

[plugins.'io.containerd.cri.v1.images']
  snapshotter = 'overlayfs'
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = '%s'

[plugins.'io.containerd.cri.v1.runtime']
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ['%s']
    conf_dir = '/etc/cni/net.d'
  [plugins.'io.containerd.cri.v1.runtime'.containerd]
    default_runtime_name = 'runc'
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
      runtime_type = 'io.containerd.runc.v2'
      [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
        BinaryName = '%s'
        SystemdCgroup = false
`, pauseImage, cniPlugins, runc())
}

// networkConfig is a bridge for the pods of a node. The sandbox routes between nodes.
func networkConfig(pods *net.IPNet) string {
	return fmt.Sprintf(`{
  "cniVersion": "1.0.0",
  "name": "pods",
  "plugins": [{
    "type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true, "ipMasq": false,
    "ipam": {"type": "host-local", "ranges": [[{"subnet": %q}]], "routes": [{"dst": "0.0.0.0/0"}]}
  }]
}
`, pods)
}

// kubeletConfig is that of a node whose pods have their cgroups below cgroup. ca signs
// the API server's certificate as a client.
func kubeletConfig(cgroup, ca string) string {
	return fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupRoot: %s
failSwapOn: false
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
resolvConf: ""
clusterDNS: [10.96.0.10] # nothing answers there
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: false}
  x509: {clientCAFile: %s}
authorization: {mode: AlwaysAllow} # the certificate is the API server's
evictionHard: {memory.available: 50Mi, nodefs.available: "1%%", nodefs.inodesFree: "1%%", imagefs.available: "1%%", imagefs.inodesFree: "1%%"}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
nodeStatusUpdateFrequency: 5s
registerNode: true
serializeImagePulls: false
`, cgroup, ca)
}
