package podshare

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/share"
)

// limits reads "core=30 memory=5" with the names below.
func limits(t testing.TB, text string) corev1.ResourceList {
	t.Helper()
	names := map[string]corev1.ResourceName{
		"core": Core, "memory": Memory, "greedy": CoreGreedy,
		"ecore": ElasticCore, "ememory": ElasticMemory, "percent": NanoPercent, "gpu": wholeDevices, "cpu": corev1.ResourceCPU,
	}
	list := corev1.ResourceList{}
	for _, field := range strings.Fields(text) {
		key, value, _ := strings.Cut(field, "=")
		list[names[key]] = resource.MustParse(value)
	}
	return list
}

func podOf(t testing.TB, class string, containers ...string) *corev1.Pod {
	pod := &corev1.Pod{}
	if class != "" {
		pod.Annotations = map[string]string{ClassLabel: class}
	}
	for i, text := range containers {
		c := corev1.Container{Name: fmt.Sprint("c", i)}
		c.Resources.Limits = limits(t, text)
		pod.Spec.Containers = append(pod.Spec.Containers, c)
	}
	return pod
}

func TestRequestOfOneContainer(t *testing.T) {
	gib := share.GiB
	tests := []struct {
		name, class, limits string
		want                share.Share
		wantErr             string // part of the error
	}{
		{"a slice", "", "core=30 memory=5", share.Share{Core: 30, Memory: 5 * gib}, ""},
		{"ordinary by name", "ordinary", "core=30 memory=5", share.Share{Core: 30, Memory: 5 * gib}, ""},
		{"whole cards", "", "core=200", share.Share{Core: 200}, ""},
		{"split over two", "", "core=160 memory=60", share.Share{Core: 160, Memory: 60 * gib}, ""},
		{"all of the core, some memory", "", "core=100 memory=4", share.Share{Core: 100, Memory: 4 * gib}, ""},
		{"online", "online", "memory=5", share.Share{Memory: 5 * gib, Class: share.Online}, ""},
		{"offline", "offline", "greedy=7 memory=5", share.Share{Core: 7, Memory: 5 * gib, Class: share.Offline}, ""},
		{"elastic", "", "ecore=50 ememory=512", share.Share{Core: 50, Memory: 512 * share.MiB}, ""},
		{"elastic, eight cards of 80 GiB", "", "ecore=800", share.Share{Core: 800}, ""},
		{"percent", "", "percent=20", share.Share{Core: 20}, ""},

		{"odd step", "", "core=33 memory=5", share.Share{}, "the nearest is 35"},
		{"too little", "", "core=2 memory=5", share.Share{}, "the nearest is 5"},
		{"uneven split", "", "core=155 memory=60", share.Share{}, "the nearest is 160"},
		{"no memory", "", "core=30", share.Share{}, "needs an amount of memory"},
		{"no core", "", "memory=5", share.Share{}, "qgpu-memory is given without tke.cloud.tencent.com/qgpu-core"},
		{"whole cards with memory", "", "core=200 memory=5", share.Share{}, "leave memory out"},
		{"half a GiB", "", "core=30 memory=1500m", share.Share{}, "is 1500m; ask for a whole number, the nearest is 2"},
		{"far too much", "", "core=30 memory=2000000", share.Share{}, "the nearest is 1048576"},
		{"online with core", "online", "core=30 memory=5", share.Share{}, "an online pod asks for memory alone"},
		{"online without memory", "online", "greedy=30", share.Share{}, "an online pod asks for memory alone"},
		{"offline with core", "offline", "core=30 memory=5", share.Share{}, "reserves no core"},
		{"offline without memory", "offline", "greedy=30", share.Share{}, "needs tke.cloud.tencent.com/qgpu-memory, too"},
		{"offline on two cards", "offline", "greedy=150 memory=5", share.Share{}, "the nearest is 100"},
		{"greedy and not offline", "", "core=30 memory=5 greedy=10", share.Share{}, "is for offline pods"},
		{"another class", "urgent", "core=30 memory=5", share.Share{}, `class "urgent" is unknown`},
		{"two families", "", "core=30 memory=5 percent=20", share.Share{}, "asks for both"},
		{"a device, too", "", "core=30 memory=5 gpu=1", share.Share{}, "asks for both"},
		{"percent, odd", "", "percent=21", share.Share{}, "the nearest is 20"},
		{"percent, offline", "offline", "percent=20", share.Share{}, "an offline pod asks for tke.cloud.tencent.com/qgpu-core-greedy"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, err := Reader{Nano: true}.Request(podOf(t, tt.class, tt.limits))
			switch {
			case tt.wantErr != "" && (err == nil || !strings.Contains(err.Error(), tt.wantErr)):
				t.Errorf("Request = %+v, %v, want an error with %q", r, err, tt.wantErr)
			case tt.wantErr == "" && (err != nil || r.Containers[0].Share != tt.want):
				t.Errorf("Request = %+v, %v, want %+v", r, err, tt.want)
			}
		})
	}
}

func TestRequestsEqualLimits(t *testing.T) {
	pod := podOf(t, "", "core=30 memory=5")
	pod.Spec.Containers[0].Resources.Requests = limits(t, "core=20 memory=5")
	if _, err := (Reader{}).Request(pod); err == nil || !strings.Contains(err.Error(), "requested as 20 and limited to 30") {
		t.Errorf("Request = %v", err)
	}
	pod.Spec.Containers[0].Resources.Limits = nil
	if _, err := (Reader{}).Request(pod); err == nil || !strings.Contains(err.Error(), "requested without a limit") {
		t.Errorf("Request = %v", err)
	}
	pod.Spec.Containers[0].Resources.Requests = limits(t, "core=30 memory=5")
	pod.Spec.Containers[0].Resources.Limits = limits(t, "core=30 memory=5")
	if _, err := (Reader{}).Request(pod); err != nil {
		t.Errorf("Request = %v, want none", err)
	}
}

// TestContainersWithoutShareAreLeftOut: elastic-gpu-scheduler gave them a card and a
// core of -1.
func TestContainersWithoutShareAreLeftOut(t *testing.T) {
	pod := podOf(t, "", "cpu=500m", "core=50 memory=4", "core=0 memory=0", "cpu=250m")
	always := corev1.ContainerRestartPolicyAlways
	pod.Spec.InitContainers = []corev1.Container{
		{Name: "init", Resources: corev1.ResourceRequirements{Limits: limits(t, "core=100")}},
		{Name: "side", RestartPolicy: &always, Resources: corev1.ResourceRequirements{Limits: limits(t, "core=5 memory=1")}},
		{Name: "plain"},
	}
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].Resources.Requests = pod.Spec.Containers[i].Resources.Limits
	}
	r, err := Reader{}.Request(pod)
	if err != nil {
		t.Fatal(err)
	}
	want := []placement.Container{
		{Name: "init", Share: share.Share{Core: 100}, Stage: placement.Init},
		{Name: "side", Share: share.Share{Core: 5, Memory: share.GiB}, Stage: placement.Sidecar},
		{Name: "c1", Share: share.Share{Core: 50, Memory: 4 * share.GiB}},
	}
	if !reflect.DeepEqual(r.Containers, want) || r.CPU != 750 {
		t.Errorf("Request = %+v with CPU %d, want %+v with 750", r.Containers, r.CPU, want)
	}
	if r, err := (Reader{}).Request(podOf(t, "", "cpu=1")); r != nil || err != nil {
		t.Errorf("Request of a pod without a share = %+v, %v, want none", r, err)
	}
}

func TestNanoNamesAreOffByDefault(t *testing.T) {
	for _, text := range []string{"ecore=50 ememory=512", "percent=20"} {
		if r, err := (Reader{}).Request(podOf(t, "", text)); r != nil || err != nil {
			t.Errorf("%s: Request = %+v, %v, want none", text, r, err)
		}
	}
	if n, all := len(Reader{}.Resources()), len(Reader{Nano: true}.Resources()); n != 3 || all != 6 {
		t.Errorf("%d and %d resource names, want 3 and 6", n, all)
	}
}

func TestContainerCards(t *testing.T) {
	pod := podOf(t, "", "core=30 memory=5", "core=160 memory=6")
	for value, want := range map[string]placement.Together{"any": placement.Anyhow, "different": placement.Different} {
		pod.Annotations = map[string]string{ContainerCardsNote: value}
		if r, err := (Reader{}).Request(pod); err != nil || r.Together != want {
			t.Errorf("%s: %+v, %v", value, r, err)
		}
	}
	for value, want := range map[string]string{"same": "cannot lie on the same cards", "near": "may be same, different or any"} {
		pod.Annotations = map[string]string{ContainerCardsNote: value}
		if _, err := (Reader{}).Request(pod); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", value, err, want)
		}
	}
}

func example() *Placement {
	return &Placement{Node: "n1", Policy: share.BurstShare, Containers: placement.Assignment{
		"c0": {{Index: 0, UUID: "GPU-a", Core: 30, Memory: 5 * share.GiB}},
		"c1": {{Index: 1, UUID: "GPU-b", Core: 80, Memory: 3 * share.GiB}, {Index: 2, UUID: "GPU-c", Core: 80, Memory: 3 * share.GiB}},
	}}
}

func TestPlacementRoundTrip(t *testing.T) {
	note, err := example().Encode()
	if err != nil {
		t.Fatal(err)
	}
	pod := podOf(t, "", "core=30 memory=5", "core=160 memory=6")
	pod.Annotations = map[string]string{PlacementNote: note}
	p, err := Of(pod)
	if err != nil || !reflect.DeepEqual(p, example()) {
		t.Fatalf("Of = %+v, %v", p, err)
	}
	r, err := Reader{}.Request(pod)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Check(r, "n1"); err != nil {
		t.Errorf("Check = %v", err)
	}
	if _, err := Of(&corev1.Pod{}); err == nil || !strings.Contains(err.Error(), "do not set spec.nodeName") {
		t.Errorf("Of a pod without placement = %v", err)
	}
}

func TestCheckRefuses(t *testing.T) {
	r, err := Reader{}.Request(podOf(t, "", "core=30 memory=5", "core=160 memory=6"))
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name   string
		change func(p *Placement)
		want   string
	}{
		{"another node", func(p *Placement) { p.Node = "n2" }, "is for node n2"},
		{"a container too few", func(p *Placement) { delete(p.Containers, "c1") }, `"c1": it is placed on 0 card(s)`},
		{"a container too many", func(p *Placement) { p.Containers["c9"] = p.Containers["c0"] }, "has 3 containers, and 2 ask"},
		{"a card too few", func(p *Placement) { p.Containers["c1"] = p.Containers["c1"][:1] }, "on 1 card(s) and asks for 2"},
		{"more memory", func(p *Placement) { p.Containers["c0"][0].Memory++ }, `container "c0": on card GPU-a`},
		{"more core", func(p *Placement) { p.Containers["c0"][0].Core = 100 }, "placed with core 100"},
		{"a better class", func(p *Placement) { p.Containers["c0"][0].Class = share.Online }, "class online"},
	}
	for _, tt := range tests {
		p := example()
		tt.change(p)
		if err := p.Check(r, "n1"); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: Check = %v, want %q", tt.name, err, tt.want)
		}
	}
	if err := example().Check(nil, "n1"); err == nil {
		t.Error("Check of a pod that asks for nothing succeeds")
	}
}

func TestTerminal(t *testing.T) {
	for phase, want := range map[corev1.PodPhase]bool{"": false, corev1.PodPending: false, corev1.PodRunning: false, corev1.PodSucceeded: true, corev1.PodFailed: true, corev1.PodUnknown: false} {
		if got := Terminal(&corev1.Pod{Status: corev1.PodStatus{Phase: phase}}); got != want {
			t.Errorf("Terminal(%q) = %v", phase, got)
		}
	}
}

// FuzzDecode: whatever a placement is read from, it can be written again, and comes back
// the same; and none is ever accepted that could overflow an account.
func FuzzDecode(f *testing.F) {
	note, err := example().Encode()
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{
		note, "", "{}", "null", note + note, `{"node":"n","policy":"fs","containers":{"c":[{"uuid":"GPU-a"}]}}`,
		`{"node":"n","policy":"best-effort","containers":{"c":[{"uuid":"GPU-a","core":-1,"memory":9223372036854775807}]}}`,
		`{"node":"n","policy":"best-effort","containers":{"c":[{"uuid":"a","memory":1},{"uuid":"a","memory":1}]}}`,
		`{"node":"n","policy":"best-effort","containers":{"c":null}}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, note string) {
		p, err := Decode(note)
		if err != nil {
			return
		}
		var memory share.Memory
		for _, lies := range p.Containers {
			for _, s := range lies {
				if s.Core < 0 || s.Core > share.Whole || s.Memory <= 0 || s.Index < 0 {
					t.Errorf("Decode(%q) accepts %+v", note, s)
				}
				memory += s.Memory
			}
		}
		if memory <= 0 {
			t.Errorf("Decode(%q) has %d bytes in all", note, memory)
		}
		again, err := p.Encode()
		if err != nil {
			return // the longer form of a note near the limit
		}
		if q, err := Decode(again); err != nil || !reflect.DeepEqual(p, q) {
			t.Errorf("Decode(%q) = %+v, and written again %+v, %v", note, p, q, err)
		}
	})
}
