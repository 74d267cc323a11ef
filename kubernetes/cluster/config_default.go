package cluster

import (
	"log/slog"
	"path/filepath"
)

// Default is a cluster of the programs in root, the repository: two T4s on one node and
// two A100s on another.
func Default(root string, log *slog.Logger) Config {
	enabled := func(policy string) map[string]string {
		labels := map[string]string{"qgpu-device-enable": "enable"}
		if policy != "" {
			labels["tke.cloud.tencent.com/qgpu-schedule-policy"] = policy
		}
		return labels
	}
	return Config{
		Bin:       filepath.Join(root, "bin"),
		UserSpace: filepath.Join(root, ".cache", "nvidia-userspace"),
		Chart:     filepath.Join(root, "deploy", "helm", "qgpu"),
		Nodes: []NodeConfig{
			{Name: "turing", Cards: 2, Model: "t4", Driver: "535", Labels: enabled("fixed-share")},
			{Name: "ampere", Cards: 2, Model: "a100", Driver: "550", Labels: enabled("")},
		},
		Log: log,
	}
}
