package ociruntime

import (
	"strings"
	"testing"

	"github.com/qgpu-project/qgpu/internal/agentapi"
	"github.com/qgpu-project/qgpu/internal/share"
)

func TestIdentify(t *testing.T) {
	pod := agentapi.Container{PodUID: "u", PodNamespace: "ns", PodName: "p", Name: "c"}
	containerd := map[string]string{"io.kubernetes.cri.container-type": "container", "io.kubernetes.cri.container-name": "c",
		"io.kubernetes.cri.sandbox-uid": "u", "io.kubernetes.cri.sandbox-namespace": "ns", "io.kubernetes.cri.sandbox-name": "p"}
	crio := map[string]string{"io.kubernetes.cri-o.ContainerType": "container", "io.kubernetes.container.name": "c",
		"io.kubernetes.pod.uid": "u", "io.kubernetes.pod.namespace": "ns", "io.kubernetes.pod.name": "p"}
	for name, annotations := range map[string]map[string]string{"containerd": containerd, "CRI-O": crio} {
		if got, err := identify(annotations); err != nil || got.pod == nil || *got.pod != pod {
			t.Errorf("%s: %+v, %v", name, got.pod, err)
		}
		for key := range annotations {
			less := map[string]string{}
			for k, v := range annotations {
				if k != key {
					less[k] = v
				}
			}
			got, err := identify(less)
			if strings.HasSuffix(strings.ToLower(key), "type") { // no CRI's
				if err != nil || got.pod != nil {
					t.Errorf("%s without %s: %+v, %v", name, key, got, err)
				}
			} else if err == nil || !strings.Contains(err.Error(), key) {
				t.Errorf("%s without %s: %+v, %v", name, key, got, err)
			}
		}
	}
	for _, kind := range []string{"io.kubernetes.cri.container-type", "io.kubernetes.cri-o.ContainerType"} {
		if got, err := identify(map[string]string{kind: "sandbox"}); err != nil || !got.sandbox {
			t.Errorf("a sandbox: %+v, %v", got, err)
		}
		if got, err := identify(map[string]string{kind: "pod"}); err == nil {
			t.Errorf("a bundle of no known kind: %+v", got)
		}
	}
	if got, err := identify(nil); err != nil || got.sandbox || got.pod != nil {
		t.Errorf("a bundle of Docker's: %+v, %v", got, err)
	}
}

func TestWish(t *testing.T) {
	for _, tt := range []struct {
		env  string
		want *wish
		err  string
	}{
		{"PATH=/bin", nil, ""},
		{"QGPU_CORE=30 QGPU_MEMORY=5Gi", &wish{share: share.Share{Core: 30, Memory: 5 * share.GiB}}, ""},
		{"QGPU_MEMORY=5Gi QGPU_CLASS=online QGPU_POLICY=burst-share QGPU_CARD=1", &wish{share: share.Share{Memory: 5 * share.GiB, Class: share.Online}, policy: share.BurstShare, card: "1"}, ""},
		{"QGPU_CORE=100", &wish{share: share.Share{Core: 100}}, ""},
		{"QGPU_CORE=30% QGPU_MEMORY=1Gi", &wish{share: share.Share{Core: 30, Memory: share.GiB}}, ""},
		{"QGPU_CORE=half", nil, `QGPU_CORE: "half" is no number of percent`},
		{"QGPU_MEMORY=lots", nil, "QGPU_MEMORY: "},
		{"QGPU_CLASS=best", nil, "QGPU_CLASS: "},
		{"QGPU_POLICY=best", nil, "QGPU_POLICY: "},
		{"QGPU_CARD=1", nil, "set QGPU_MEMORY"},
		{"QGPU_CORE=30", nil, "needs an amount of memory"},
		{"QGPU_CORE=33 QGPU_MEMORY=1Gi", nil, "the nearest is 35"},
	} {
		got, err := wishOf(strings.Fields(tt.env))
		switch {
		case tt.err != "":
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s: %v, want %s", tt.env, err, tt.err)
			}
		case err != nil, (got == nil) != (tt.want == nil), got != nil && *got != *tt.want:
			t.Errorf("%s: %+v, %v, want %+v", tt.env, got, err, tt.want)
		}
	}
}

func FuzzWish(f *testing.F) {
	f.Add("QGPU_CORE=30 QGPU_MEMORY=5Gi")
	f.Add("QGPU_CARD=0 QGPU_CLASS=")
	f.Fuzz(func(t *testing.T, env string) {
		w, err := wishOf(strings.Fields(env))
		if err == nil && w != nil && w.share.Validate() != nil {
			t.Errorf("%q asks for %+v, which breaks a rule", env, w.share)
		}
	})
}
