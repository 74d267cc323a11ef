package ociruntime

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/qgpu-project/qgpu/internal/agentapi"
	"github.com/qgpu-project/qgpu/internal/share"
)

// cri is how one implementation of the Kubernetes container runtime interface annotates
// the bundles that it makes.
type cri struct {
	kind                      string // annotation: what the bundle is
	podUID, namespace, name   string // annotations: the pod
	container                 string // annotation: the container's name in the pod
	kindSandbox, kindWorkload string // values of kind
}

// cris are containerd (internal/cri/annotations) and CRI-O (pkg/annotations; the
// kubelet's own labels, pkg/kubelet/types).
var cris = []cri{{
	kind: "io.kubernetes.cri.container-type", kindSandbox: "sandbox", kindWorkload: "container",
	podUID: "io.kubernetes.cri.sandbox-uid", namespace: "io.kubernetes.cri.sandbox-namespace",
	name: "io.kubernetes.cri.sandbox-name", container: "io.kubernetes.cri.container-name",
}, {
	kind: "io.kubernetes.cri-o.ContainerType", kindSandbox: "sandbox", kindWorkload: "container",
	podUID: "io.kubernetes.pod.uid", namespace: "io.kubernetes.pod.namespace",
	name: "io.kubernetes.pod.name", container: "io.kubernetes.container.name",
}}

// identity is whose container a bundle is.
type identity struct {
	sandbox bool                // a pod's sandbox, which runs nothing of a tenant's
	pod     *agentapi.Container // nil: no pod's
}

// identify reads who a bundle is for off its annotations. A bundle that a CRI made and did
// not describe whole is an error: it is somebody's, and must not pass for nobody's.
func identify(annotations map[string]string) (identity, error) {
	for _, c := range cris {
		kind, ok := annotations[c.kind]
		switch {
		case !ok:
			continue
		case kind == c.kindSandbox:
			return identity{sandbox: true}, nil
		case kind != c.kindWorkload:
			return identity{}, fmt.Errorf("the bundle's annotation %s is %q, which is neither %s nor %s", c.kind, kind, c.kindSandbox, c.kindWorkload)
		}
		var missing []string
		get := func(key string) string {
			v := annotations[key]
			if v == "" {
				missing = append(missing, key)
			}
			return v
		}
		pod := &agentapi.Container{PodUID: get(c.podUID), PodNamespace: get(c.namespace), PodName: get(c.name), Name: get(c.container)}
		if missing != nil {
			return identity{}, fmt.Errorf("the bundle is a container of a pod, and lacks the annotations %s; qgpu needs containerd 1.7 or newer, or CRI-O", strings.Join(missing, ", "))
		}
		return identity{pod: pod}, nil
	}
	return identity{}, nil
}

// wish is what a container without a pod asks for.
type wish struct {
	share  share.Share
	policy share.Policy
	card   string
}

// wishOf reads what a container asks for off its environment: QGPU_CORE, QGPU_MEMORY,
// QGPU_CLASS, QGPU_POLICY and QGPU_CARD. It is nil if there is none of these.
func wishOf(env []string) (*wish, error) {
	var w wish
	asked := false
	for _, entry := range env {
		name, value, _ := strings.Cut(entry, "=")
		var err error
		switch name {
		case "QGPU_CORE":
			w.share.Core, err = parseCore(value)
		case "QGPU_MEMORY":
			w.share.Memory, err = share.ParseMemory(value)
		case "QGPU_CLASS":
			w.share.Class, err = share.ParseClass(value)
		case "QGPU_POLICY":
			w.policy, err = share.ParsePolicy(value)
		case "QGPU_CARD":
			w.card = value
		default:
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		asked = true
	}
	if !asked {
		return nil, nil
	}
	if w.share == (share.Share{Class: w.share.Class}) {
		return nil, errors.New("the container asks for a card and not for how much of it: set QGPU_MEMORY, such as 5Gi, QGPU_CORE, such as 30, or both")
	}
	return &w, w.share.Validate()
}

func parseCore(s string) (int, error) {
	core, err := strconv.Atoi(strings.TrimSuffix(s, "%"))
	if err != nil {
		return 0, fmt.Errorf("%q is no number of percent of a card, such as 30", s)
	}
	return core, nil
}
