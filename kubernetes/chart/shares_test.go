package chart

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// rules is every rule of shares with what it lets through and what it says. The texts
// are parts of messages; an empty one: the pod is created.
var rules = []struct {
	name string
	pod  *corev1.Pod
	want string
}{
	{"share", pod("core=30 memory=5"), ""},
	{"share with requests", pod("core=30 memory=5", requests("core=30 memory=5")), ""},
	{"smallest share", pod("core=5 memory=1"), ""},
	{"a card's compute and part of its memory", pod("core=100 memory=4"), ""},
	{"whole card", pod("core=100"), ""},
	{"eight cards", pod("core=800"), ""},
	{"split over two cards", pod("core=160 memory=60"), ""},
	{"split over three cards", pod("core=240 memory=30"), ""},
	{"several containers", pod("core=50 memory=8", and("d", "core=20 memory=2"), and("e", "cpu=1")), ""},
	{"init container", pod("", initially("i", "core=30 memory=5")), ""},
	{"online", pod("memory=4", class("online")), ""},
	{"offline", pod("greedy=10 memory=4", class("offline")), ""},
	{"no share", pod("cpu=1", security(privileged), spec(func(s *corev1.PodSpec) { s.HostPID = true })), ""},
	{"class without a share", pod("cpu=1", class("urgent")), ""},
	{"another device alone", pod("nvidia=1"), ""},

	{"step", pod("core=33 memory=5"), `container "c": tke.cloud.tencent.com/qgpu-core is 33, and part of a card is 5 to 100 percent in steps of 5; the nearest is 35`},
	{"step downwards", pod("core=32 memory=5"), "the nearest is 30"},
	{"least", pod("core=1 memory=5"), "the nearest is 5"},
	{"zero core", pod("core=0 memory=5"), "qgpu-core is 0, and the least is 5 percent"},
	{"zero memory", pod("core=30 memory=0"), "qgpu-memory is 0, and the least is 1 (GiB)"},
	{"fraction of memory", pod("core=30 memory=1500m"), `"1500m": must be an integer`},
	{"memory with a unit", pod("core=30 memory=5Gi"), `qgpu-memory is 5Gi, and it counts GiB: write a number without a unit, such as "5"`},
	{"memory in MiB", pod("core=30 memory=512Mi"), `such as "1"`},
	{"part without memory", pod("core=30"), "qgpu-core is 30, part of a card, and needs memory; add tke.cloud.tencent.com/qgpu-memory, at least 1 (GiB), or ask for whole cards with 100"},
	{"split without memory", pod("core=160"), "at least 2 (GiB), or ask for whole cards with 200"},
	{"uneven split", pod("core=155 memory=60"), "qgpu-core is 155, which lies evenly on 2 cards in steps of 10; the nearest is 160"},
	{"TKE's example of rounding", pod("core=121 memory=31"), "the nearest is 120"},
	{"split never becomes whole cards", pod("core=196 memory=60"), "the nearest is 190"},
	{"uneven memory", pod("core=160 memory=61"), "qgpu-memory is 61, which does not lie evenly on 2 cards (core 160); the nearest is 62"},
	{"too little memory to split", pod("core=240 memory=1"), "the nearest is 3"},
	{"whole cards with memory", pod("core=200 memory=5"), "qgpu-core is 200, that is whole cards, which come with all of their memory; leave tke.cloud.tencent.com/qgpu-memory out"},
	{"memory alone", pod("memory=5"), "asks for memory alone; add tke.cloud.tencent.com/qgpu-core (5 to 100), or annotate the pod with tke.cloud.tencent.com/app-class: online"},
	{"second container", pod("core=30 memory=5", and("d", "core=31 memory=1")), `container "d": tke.cloud.tencent.com/qgpu-core is 31`},
	{"both containers", pod("core=33 memory=5", and("d", "core=31 memory=1")), `the nearest is 35; container "d": tke.cloud.tencent.com/qgpu-core is 31, and part of a card is 5 to 100 percent in steps of 5; the nearest is 30`},
	{"init container's rule", pod("cpu=1", initially("i", "core=31 memory=5")), `container "i": tke.cloud.tencent.com/qgpu-core is 31`},

	// Kubernetes' own rules for such resources come before any policy.
	{"requests differ", pod("core=30 memory=5", requests("core=30 memory=4")), "must be equal to tke.cloud.tencent.com/qgpu-memory limit of 5"},
	{"requests alone", pod("", requests("core=30 memory=5")), "Limit must be set for non overcommitable resources"},

	{"unknown class", pod("core=30 memory=5", class("urgent")), `app-class: "urgent" is no class; write online or offline`},
	{"online with core", pod("core=30 memory=4", class("online")), "an online pod asks for memory alone"},
	{"online without memory", pod("greedy=30", class("online")), "an online pod asks for memory alone"},
	{"offline with core", pod("core=30 memory=4", class("offline")), "an offline pod asks for tke.cloud.tencent.com/qgpu-core-greedy (1 to 100) and tke.cloud.tencent.com/qgpu-memory, and for no core"},
	{"offline without greedy", pod("memory=4", class("offline")), "an offline pod asks for"},
	{"offline without memory", pod("greedy=10", class("offline")), "an offline pod asks for"},
	{"offline on two cards", pod("greedy=160 memory=4", class("offline")), "qgpu-core-greedy is 160, and an offline share lies on one card: 1 to 100 percent; the nearest is 100"},
	{"greedy without class", pod("greedy=10 memory=4"), "annotate the pod with tke.cloud.tencent.com/app-class: offline"},

	{"node strategy", pod("core=30 memory=5", annotation("qgpu.io/node-placement", "spread")), ""},
	{"unknown strategy", pod("core=30 memory=5", annotation("qgpu.io/card-placement", "tight")), `annotation qgpu.io/card-placement: "tight" is unknown; write binpack, spread, frag or fgd`},
	{"container cards", pod("core=30 memory=5", annotation("qgpu.io/container-cards", "different")), ""},
	{"unknown container cards", pod("core=30 memory=5", annotation("qgpu.io/container-cards", "one")), "write same, different or any"},

	{"whole devices beside", pod("core=30 memory=5 nvidia=1"), `container "c": nvidia.com/gpu is handed out by another device plugin`},
	{"whole devices in another container", pod("core=30 memory=5", and("d", "nvidia=1")), `container "d": nvidia.com/gpu`},

	{"privileged", pod("core=30 memory=5", security(privileged)), `container "c": privileged: it could open every card`},
	{"privileged neighbour", pod("core=30 memory=5", and("d", "cpu=1"), security(privileged)), `container "d": privileged`},
	{"CAP_SYS_ADMIN", pod("core=30 memory=5", capability("CAP_SYS_ADMIN")), "capability CAP_SYS_ADMIN undoes every share"},
	{"SYS_ADMIN", pod("core=30 memory=5", capability("SYS_ADMIN")), "capability SYS_ADMIN undoes every share"},
	{"all capabilities", pod("core=30 memory=5", capability("ALL")), "capability ALL undoes"},
	{"kernel modules", pod("core=30 memory=5", capability("SYS_MODULE")), "capability SYS_MODULE undoes"},
	{"other capability", pod("core=30 memory=5", capability("NET_ADMIN")), ""},
	{"hostPID", pod("core=30 memory=5", spec(func(s *corev1.PodSpec) { s.HostPID = true })), "hostPID"},
	{"hostNetwork", pod("core=30 memory=5", spec(func(s *corev1.PodSpec) { s.HostNetwork = true })), ""},
	{"hostPath root", pod("core=30 memory=5", hostPath("/")), `volume "v": hostPath / reaches devices`},
	{"hostPath devices", pod("core=30 memory=5", hostPath("/dev/")), "hostPath /dev/ reaches devices"},
	{"hostPath device", pod("core=30 memory=5", hostPath("//dev/./nvidia0")), "reaches devices"},
	{"hostPath state", pod("core=30 memory=5", hostPath("/run/qgpu/tenants")), "reaches devices, or what holds the shares"},
	{"hostPath above state", pod("core=30 memory=5", hostPath("/run")), "reaches devices"},
	{"hostPath shared memory", pod("core=30 memory=5", hostPath("/dev/shm")), ""},
	{"hostPath data", pod("core=30 memory=5", hostPath("/data")), ""},
	{"hostPath alike", pod("core=30 memory=5", hostPath("/run/qgpu-other")), ""},

	{"another scheduler", pod("core=30 memory=5", spec(func(s *corev1.PodSpec) { s.SchedulerName = "volcano" })), "schedulerName volcano knows no cards; leave it out, or write qgpu-scheduler"},
	{"another runtime class", pod("core=30 memory=5", spec(func(s *corev1.PodSpec) { n := "nvidia"; s.RuntimeClassName = &n })), "runtimeClassName nvidia holds no share; leave it out, or write qgpu"},
	{"node by name", pod("core=30 memory=5", spec(func(s *corev1.PodSpec) { s.NodeName = "gpu-1" })), "select the node by nodeSelector kubernetes.io/hostname: gpu-1"},
}

func TestRules(t *testing.T) {
	s := shared
	s.install(t)
	s.ready(t)
	s.runtimeClass(t, "nvidia")
	for _, tt := range rules {
		t.Run(tt.name, func(t *testing.T) {
			_, err := s.try(t, tt.pod)
			checkRefusal(t, err, tt.want)
		})
	}
}

// checkRefusal wants err to say part, or to be nil where part is empty.
func checkRefusal(t *testing.T, err error, part string) {
	t.Helper()
	switch {
	case part == "" && err != nil:
		t.Errorf("refused: %v", err)
	case part != "" && err == nil:
		t.Errorf("created, want a refusal that says %q", part)
	case part != "" && !strings.Contains(err.Error(), part):
		t.Errorf("refused with\n%v\nwant\n%s", err, part)
	}
}

// The names of Nano GPU, which mean nothing until they are switched on.
func TestNanoNames(t *testing.T) {
	s := shared
	s.install(t)
	s.ready(t)
	got, err := s.try(t, pod("elastic=33"))
	if err != nil || got.Spec.SchedulerName != "default-scheduler" {
		t.Errorf("switched off: scheduler %q, %v, want a pod that is left alone", got.Spec.SchedulerName, err)
	}
	s.install(t, "--set", "resourceNames.nano=true")
	eventually(t, func() error { _, err := s.try(t, pod("elastic=30 elasticMiB=500")); return err })
	eventually(t, func() error {
		if _, err := s.try(t, pod("elastic=33 elasticMiB=500")); err == nil {
			return errNotYet
		}
		return nil
	})
	for _, tt := range []struct {
		name string
		pod  *corev1.Pod
		want string
	}{
		{"elastic share", pod("elastic=30 elasticMiB=500"), ""},
		{"elastic whole card", pod("elastic=100"), ""},
		{"elastic split", pod("elastic=160 elasticMiB=60000"), ""},
		{"nano share", pod("nano=20"), ""},
		{"nano whole cards", pod("nano=200"), ""},
		{"TKE's names still", pod("core=30 memory=5"), ""},
		{"elastic step", pod("elastic=33 elasticMiB=500"), "elasticgpu.io/gpu-core is 33, and part of a card is 5 to 100 percent in steps of 5; the nearest is 35"},
		{"elastic without memory", pod("elastic=30"), "add elasticgpu.io/gpu-memory, at least 1 (MiB)"},
		{"elastic memory alone", pod("elasticMiB=500"), "add elasticgpu.io/gpu-core"},
		{"nano step", pod("nano=12"), "nano-gpu/gpu-percent is 12, and part of a card is 5 to 100 percent in steps of 5; the nearest is 10"},
		{"two families", pod("elastic=30 elasticMiB=500 memory=5"), "asks in two ways: elasticgpu.io/gpu-core, elasticgpu.io/gpu-memory, tke.cloud.tencent.com/qgpu-memory; keep the names of one family"},
		{"a family each", pod("elastic=30 elasticMiB=500", and("d", "core=30 memory=5")), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := s.try(t, tt.pod)
			checkRefusal(t, err, tt.want)
		})
	}
}

// What makes pods is refused with its pods.
func TestTemplates(t *testing.T) {
	s := shared
	s.install(t)
	s.ready(t)
	template := func(limits string) corev1.PodTemplateSpec {
		p := pod(limits)
		return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "x"}}, Spec: p.Spec}
	}
	meta := metav1.ObjectMeta{Name: "x", Namespace: "default"}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	apps, batch := s.admin.AppsV1(), s.admin.BatchV1()
	create := map[string]func(corev1.PodTemplateSpec) error{
		"Deployment": func(p corev1.PodTemplateSpec) error {
			_, err := apps.Deployments("default").Create(t.Context(), &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Selector: selector, Template: p}}, dry)
			return err
		},
		"StatefulSet": func(p corev1.PodTemplateSpec) error {
			_, err := apps.StatefulSets("default").Create(t.Context(), &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Selector: selector, Template: p}}, dry)
			return err
		},
		"DaemonSet": func(p corev1.PodTemplateSpec) error {
			_, err := apps.DaemonSets("default").Create(t.Context(), &appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Selector: selector, Template: p}}, dry)
			return err
		},
		"ReplicaSet": func(p corev1.PodTemplateSpec) error {
			_, err := apps.ReplicaSets("default").Create(t.Context(), &appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Selector: selector, Template: p}}, dry)
			return err
		},
		"Job": func(p corev1.PodTemplateSpec) error {
			p.Spec.RestartPolicy = corev1.RestartPolicyNever
			_, err := batch.Jobs("default").Create(t.Context(), &batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{Template: p}}, dry)
			return err
		},
		"CronJob": func(p corev1.PodTemplateSpec) error {
			p.Spec.RestartPolicy = corev1.RestartPolicyNever
			_, err := batch.CronJobs("default").Create(t.Context(), &batchv1.CronJob{ObjectMeta: meta, Spec: batchv1.CronJobSpec{
				Schedule: "@daily", JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: p}}}}, dry)
			return err
		},
	}
	for kind, create := range create {
		t.Run(kind, func(t *testing.T) {
			checkRefusal(t, create(template("core=30 memory=5")), "")
			checkRefusal(t, create(template("cpu=1")), "")
			checkRefusal(t, create(template("core=33 memory=5")), "qgpu-core is 33, and part of a card is 5 to 100 percent in steps of 5; the nearest is 35")
		})
	}
}

// A share names no scheduler, no RuntimeClass and no requests, and gets them.
func TestDefaults(t *testing.T) {
	s := shared
	s.install(t)
	s.ready(t)
	got, err := s.try(t, pod("core=30 memory=5", initially("i", "core=20 memory=2")))
	if err != nil {
		t.Fatal(err)
	}
	if got.Spec.SchedulerName != "qgpu-scheduler" || got.Spec.RuntimeClassName == nil || *got.Spec.RuntimeClassName != "qgpu" {
		t.Errorf("scheduler %q, RuntimeClass %v, want qgpu-scheduler and qgpu", got.Spec.SchedulerName, got.Spec.RuntimeClassName)
	}
	for _, c := range append(got.Spec.InitContainers, got.Spec.Containers...) {
		for name, limit := range c.Resources.Limits {
			if request := c.Resources.Requests[name]; request.Cmp(limit) != 0 {
				t.Errorf("container %s requests %v of %s, want its limit %v", c.Name, request.String(), name, limit.String())
			}
		}
	}
	plain, err := s.try(t, pod("cpu=1"))
	if err != nil {
		t.Fatal(err)
	}
	if plain.Spec.SchedulerName != "default-scheduler" || plain.Spec.RuntimeClassName != nil {
		t.Errorf("a pod without a share got scheduler %q and RuntimeClass %v", plain.Spec.SchedulerName, plain.Spec.RuntimeClassName)
	}
}
