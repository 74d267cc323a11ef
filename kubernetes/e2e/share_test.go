package e2e

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/qgpu-project/qgpu/internal/podshare"
)

const mib = 1 << 20

// sees checks that nvidia-smi in a container sees so many cards of so much memory.
func (s *site) sees(t *testing.T, pod *corev1.Pod, container string, cards, gib int) {
	t.Helper()
	output := s.exec(t, pod, container, "nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits")
	lines := strings.Fields(output)
	if len(lines) != cards {
		t.Errorf("%s sees %d cards, not %d: %s", container, len(lines), cards, output)
	}
	for _, line := range lines {
		if line != strconv.Itoa(gib*1024) {
			t.Errorf("%s sees a card of %s MiB, not %d", container, line, gib*1024)
		}
	}
}

// fills takes memory until CUDA says out of memory, and checks that this is close under
// the quota: CUDA's context has some of it, too.
func (s *site) fills(t *testing.T, pod *corev1.Pod, container string, gib int) {
	t.Helper()
	got := s.fill(t, pod, container)
	quota := int64(gib) * 1024
	if got > quota || got < quota-512 {
		t.Errorf("%s could take %d MiB of its %d", container, got, quota)
	}
}

// fill is how many MiB a container can take.
func (s *site) fill(t *testing.T, pod *corev1.Pod, container string) int64 {
	t.Helper()
	return allocated(t, s.exec(t, pod, container, "cudaload", "fill"))
}

// allocated is the MiB that cudaload fill says it could have, until CUDA said that there
// is no more.
func allocated(t *testing.T, output string) int64 {
	t.Helper()
	var result struct {
		Allocated int64
		Error     string
	}
	if err := json.Unmarshal([]byte(output), &result); err != nil || result.Error == "" {
		t.Fatalf("cudaload fill says %q (%v)", output, err)
	}
	return result.Allocated / mib
}

func TestPodGetsItsShare(t *testing.T) {
	pod := shared.run(t, newPod("share", turing, container("cuda", ask{core: 30, memory: 5})))
	shared.sees(t, pod, "cuda", 1, 5)
	shared.fills(t, pod, "cuda", 5)

	p := placed(t, pod)
	slices := p.Containers["cuda"]
	if p.Node != turing || len(slices) != 1 || slices[0].Core != 30 || int64(slices[0].Memory) != 5*1024*mib {
		t.Errorf("it is placed %+v", p)
	}
	if is := shared.get(t, pod); is.Spec.SchedulerName != "qgpu-scheduler" || is.Spec.RuntimeClassName == nil || *is.Spec.RuntimeClassName != "qgpu" {
		t.Errorf("its scheduler is %q and its runtime class %v", is.Spec.SchedulerName, is.Spec.RuntimeClassName)
	}
	if uuid := shared.exec(t, pod, "cuda", "nvidia-smi", "-L"); !strings.Contains(uuid, slices[0].UUID) {
		t.Errorf("it is placed on card %s and sees %s", slices[0].UUID, uuid)
	}
}

func TestContainersHaveSharesOfTheirOwn(t *testing.T) {
	pod := newPod("two", turing,
		container("large", ask{core: 50, memory: 8}), container("small", ask{core: 20, memory: 2}), container("none", ask{}))
	pod.Annotations = map[string]string{podshare.ContainerCardsNote: "same"}
	pod = shared.run(t, pod)
	p := placed(t, pod)
	if p.Containers["large"][0].UUID != p.Containers["small"][0].UUID {
		t.Errorf("they lie on different cards: %+v", p)
	}
	for name, gib := range map[string]int{"large": 8, "small": 2} {
		shared.sees(t, pod, name, 1, gib)
		shared.fills(t, pod, name, gib)
	}
	if output := shared.exec(t, pod, "none", "ls", "/dev"); strings.Contains(output, "nvidia") {
		t.Errorf("the container without a share has devices: %s", output)
	}
	// What the others pass it is of no use to it, nor to what is executed in it.
	for _, process := range []string{"1", "self"} {
		if output := shared.exec(t, pod, "none", "cat", "/proc/"+process+"/status"); !strings.Contains(output, "Seccomp_filters:\t1\n") {
			t.Errorf("process %s of the container without a share is not filtered: %s", process, output)
		}
	}
}

func TestWholeCards(t *testing.T) {
	pod := shared.run(t, newPod("whole", ampere, container("cuda", ask{core: 200})))
	output := shared.exec(t, pod, "cuda", "nvidia-smi", "-L")
	if strings.Count(output, "A100-SXM4-40GB") != 2 {
		t.Errorf("it sees %s", output)
	}
	other := shared.create(t, newPod("whole-other", ampere, container("cuda", ask{core: 5, memory: 1})))
	shared.waiting(t, other)
	shared.remove(t, pod)
	shared.running(t, other)
}

func TestShareOverCards(t *testing.T) {
	pod := shared.run(t, newPod("cards", ampere, container("cuda", ask{core: 160, memory: 60})))
	shared.sees(t, pod, "cuda", 2, 30)
}

// What does not fit waits, says why, and starts when there is room.
func TestWaitsForRoom(t *testing.T) {
	var first []*corev1.Pod
	for i := range 2 {
		first = append(first, shared.run(t, newPod(fmt.Sprintf("room-%d", i), turing, container("cuda", ask{core: 50, memory: 10}))))
	}
	late := shared.create(t, newPod("room-late", turing, container("cuda", ask{core: 30, memory: 9})))
	reason := shared.waiting(t, late)
	if !strings.Contains(reason, "memory") {
		t.Errorf("the reason does not name what lacks: %s", reason)
	}
	t.Log(reason)
	shared.remove(t, first[0])
	late = shared.running(t, late)
	if placed(t, late).Containers["cuda"][0].UUID != placed(t, first[0]).Containers["cuda"][0].UUID {
		t.Error("it is not where there was room")
	}
}

func TestOnlineAndOffline(t *testing.T) {
	class := func(name, class string, a ask) *corev1.Pod {
		pod := newPod(name, ampere, container("cuda", a))
		pod.Annotations = map[string]string{podshare.ClassLabel: class}
		return shared.run(t, pod)
	}
	online := class("online", "online", ask{memory: 4})
	offline := class("offline", "offline", ask{greedy: 10, memory: 4})
	for _, pod := range []*corev1.Pod{online, offline} {
		shared.sees(t, pod, "cuda", 1, 4)
	}
	if placed(t, online).Containers["cuda"][0].UUID == placed(t, offline).Containers["cuda"][0].UUID {
		t.Error("online and offline share a card while another is empty")
	}
}

func TestInitContainersAndSidecars(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	sidecar := container("sidecar", ask{core: 20, memory: 2})
	sidecar.RestartPolicy = &always
	pod := newPod("stages", turing, container("main", ask{core: 60, memory: 8}, "cudaload", "fill"))
	pod.Spec.InitContainers = []corev1.Container{
		container("before", ask{core: 80, memory: 12}, "cudaload", "fill"),
		sidecar,
	}
	pod = shared.succeeded(t, shared.create(t, pod))
	for name, gib := range map[string]int64{"before": 12, "main": 8} {
		log, err := shared.logs(pod, name)
		if err != nil {
			t.Fatal(err)
		}
		if got := allocated(t, log); got > gib*1024 || got < gib*1024-512 {
			t.Errorf("%s could take %d MiB of its %d", name, got, gib*1024)
		}
	}
}

// What a pod uses is seen from outside: by its node's agent, through the API server.
func TestUseIsTold(t *testing.T) {
	const quota = 5 << 10 // MiB
	hold := container("main", ask{core: 30, memory: 5}, "sh", "-c", "sleep 1000000 | cudaload fill --hold --limit 2Gi")
	pod := shared.run(t, newPod("use", turing, hold, container("idle", ask{core: 10, memory: 1})))
	type row struct {
		Pod, Container string
		Used           *int64   `json:"memoryUsedBytes"`
		Busy           *float64 `json:"busyPercent"`
	}
	eventually(t, func() error {
		var rows []row
		if err := json.Unmarshal([]byte(shared.plugin(t, "pods", "-o", "json")), &rows); err != nil {
			return err
		}
		for _, r := range rows {
			if r.Pod != pod.Name || r.Container != "main" {
				continue
			}
			if r.Used == nil || *r.Used < 2<<30 || *r.Used > quota*mib || r.Busy == nil || *r.Busy != 0 {
				return fmt.Errorf("it holds 2 GiB and computes nothing, and %+v is told", r)
			}
			return nil
		}
		return fmt.Errorf("it is not among %+v", rows)
	})
	eventually(t, func() error {
		var rows []struct {
			Node string
			Used *int64 `json:"memoryUsedBytes"`
		}
		if err := json.Unmarshal([]byte(shared.plugin(t, "top", "-o", "json")), &rows); err != nil {
			return err
		}
		for _, r := range rows {
			if r.Used == nil || (r.Node == turing) != (*r.Used >= 2<<30) && r.Node != "all" {
				return fmt.Errorf("node %s uses %+v", r.Node, r.Used)
			}
		}
		return nil
	})
	if table := shared.plugin(t, "pods"); !strings.Contains(table, "USED") {
		t.Errorf("the table is\n%s", table)
	}
}
