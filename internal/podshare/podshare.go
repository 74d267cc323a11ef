// Package podshare reads shares off pods and writes placements on them: which
// resource names mean what, which annotations, and the form of the placement that
// travels in a Binding. It is pure functions over Kubernetes' types; it talks to
// no API server and knows no node.
package podshare

import (
	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/share"
)

// Names that TKE's manifests use, and those of Nano GPU.
const (
	Core       = "tke.cloud.tencent.com/qgpu-core"        // percent of a card
	Memory     = "tke.cloud.tencent.com/qgpu-memory"      // GiB
	CoreGreedy = "tke.cloud.tencent.com/qgpu-core-greedy" // percent, offline pods only

	ElasticCore   = "elasticgpu.io/gpu-core"   // percent of a card
	ElasticMemory = "elasticgpu.io/gpu-memory" // MiB
	NanoPercent   = "nano-gpu/gpu-percent"     // percent of a card and of its memory

	PolicyLabel   = "tke.cloud.tencent.com/qgpu-schedule-policy" // of nodes
	EnableLabel   = "qgpu-device-enable"                         // of nodes; value "enable"
	ClassLabel    = "tke.cloud.tencent.com/app-class"            // annotation of pods: online or offline
	PlacementNote = "qgpu.io/placement"                          // annotation of pods, written with the Binding
)

// Placement is the value of the annotation PlacementNote, as JSON.
type Placement struct {
	Node       string               `json:"node"`
	Policy     share.Policy         `json:"policy"`
	Containers placement.Assignment `json:"containers"`
}
