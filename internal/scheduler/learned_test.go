package scheduler

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2"

	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/placement/strategy"
	"github.com/qgpu-project/qgpu/internal/share"
)

// What one scheduler learns its successor knows, and a scheduler that places nothing
// writes nothing.
func TestLearnedOutlivesTheScheduler(t *testing.T) {
	api := fake.NewSimpleClientset(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "learned"}})
	start := func() *learned {
		l := newLearned(strategy.NewBook(), api, "ns/learned", "qgpu-scheduler")
		if err := l.follow(t.Context()); err != nil {
			t.Fatal(err)
		}
		return l
	}
	data := func() string {
		c, err := api.CoreV1().ConfigMaps("ns").Get(t.Context(), "learned", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return c.Data["qgpu-scheduler.json"]
	}
	leader, standby := start(), start()
	if leader.restore(klog.Background()) {
		t.Error("there was something to restore in an empty ConfigMap")
	}
	leader.book.Observe(&placement.Request{CPU: 2000, Models: []string{"Tesla T4", "NVIDIA A100"},
		Containers: []placement.Container{{Share: share.Share{Core: 30, Memory: 5 * share.GiB}}}})
	for _, l := range []*learned{standby, leader} {
		if err := l.save(t.Context()); err != nil {
			t.Fatal(err)
		}
		if wrote := data() != ""; wrote != (l == leader) {
			t.Fatalf("the leader wrote: %v, %q", l == leader, data())
		}
	}
	deadline := time.Now().Add(10 * time.Second)
	for !standby.restore(klog.Background()) {
		if time.Now().After(deadline) {
			t.Fatal("the standby does not see what the leader has written")
		}
		time.Sleep(5 * time.Millisecond)
	}
	got, err := json.Marshal(standby.book)
	if err != nil || string(got) != data() || !strings.Contains(data(), `"core":30,"memory":5368709120,"models":"NVIDIA A100|Tesla T4"`) {
		t.Errorf("the successor knows %s, the ConfigMap has %s, %v", got, data(), err)
	}
	writes := func() (n int) {
		for _, a := range api.Actions() {
			if a.GetVerb() == "patch" {
				n++
			}
		}
		return n
	}
	if err := standby.save(t.Context()); err != nil || writes() != 1 {
		t.Errorf("with nothing new there are %d writes, want that of the leader: %v", writes(), err)
	}
}

// A ConfigMap that says nonsense is as good as none, and is written anew.
func TestLearnedNonsense(t *testing.T) {
	l := newLearned(strategy.NewBook(), nil, "ns/learned", "p")
	l.stored = `{"version":1,"shapes":[{"weight":-1}]}`
	if l.restore(klog.Background()) {
		t.Error("it was taken for knowledge")
	}
}

// Strategies begin with what the configuration expects.
func TestExpectedPods(t *testing.T) {
	read := func(text string) (Args, error) { return readArgs(&runtime.Unknown{Raw: []byte(text)}) }
	args, err := read("{expected: [{cards: 1, core: 30, memory: 5Gi, weight: 7}, {cards: 2, core: 40, memory: 1Gi, weight: 3, models: [Tesla T4, NVIDIA A100]}]}")
	if err != nil {
		t.Fatal(err)
	}
	c := newCluster(t, args)
	got, err := json.Marshal(c.plugin.book)
	want := `{"version":1,"shapes":[{"cpuMilli":0,"cards":1,"core":30,"memory":5368709120,"weight":140},{"cpuMilli":0,"cards":2,"core":40,"memory":1073741824,"models":"NVIDIA A100|Tesla T4","weight":60}]}`
	if err != nil || string(got) != want {
		t.Errorf("expected are %s, want %s, %v", got, want, err)
	}
	for text, want := range map[string]string{
		"{expected: [{cards: 0, core: 30, weight: 1}]}":                "expected[0]",
		"{expected: [{cards: 1, core: 130, weight: 1}]}":               "core is 0…100",
		"{expected: [{cards: 1, core: 30, weight: 0}]}":                "weight",
		"{expected: [{cards: 1, core: 30, memory: five, weight: 1}]}":  `memory "five"`,
		"{expected: [{cards: 1, core: 30, weight: 1, models: [A|B]}]}": "write each name alone",
		"{learned: qgpu-scheduler-learned}":                            "write namespace/name",
	} {
		if _, err := read(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
