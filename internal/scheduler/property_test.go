package scheduler

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"pgregory.net/rapid"

	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/placement/strategy"
	"github.com/qgpu-project/qgpu/internal/podshare"
	"github.com/qgpu-project/qgpu/internal/share"
)

// world is a cluster with what a test knows of it by itself.
type world struct {
	*cluster
	t       *rapid.T
	names   []string
	waiting []types.UID // bound, and not yet back from the API server
	bound   []types.UID
}

var policies = []string{"", "best-effort", "fs", "bs"}

func newWorld(t *rapid.T) *world {
	w := &world{t: t, names: []string{"n0", "n1", "n2"}}
	var nodes []*corev1.Node
	for _, name := range w.names {
		nodes = append(nodes, gpuNode(name))
	}
	both := rapid.SampledFrom(strategy.Names())
	w.cluster = newCluster(&testing.T{}, Args{Seed: 1, NodePlacement: both.Draw(t, "node"), CardPlacement: both.Draw(t, "card")}, nodes...)
	for _, name := range w.names {
		w.report(name, t4s(name, rapid.IntRange(0, 3).Draw(t, "cards"))...)
	}
	return w
}

// draw is a pod of one to three containers, some of them init containers or sidecars,
// and some without a share.
func (w *world) draw() *corev1.Pod {
	t, pod := w.t, w.pod()
	class := rapid.SampledFrom([]share.Class{"", "", "", share.Online, share.Offline}).Draw(t, "class")
	pod.Annotations = map[string]string{
		podshare.ContainerCardsNote: rapid.SampledFrom([]string{"any", "any", "same", "different"}).Draw(t, "together"),
	}
	if class != "" {
		pod.Annotations[podshare.ClassLabel] = string(class)
	}
	for i := range rapid.IntRange(1, 3).Draw(t, "containers") {
		c := w.drawContainer(fmt.Sprint("c", i), class)
		switch rapid.IntRange(0, 5).Draw(t, "stage") {
		case 0:
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		case 1:
			always := corev1.ContainerRestartPolicyAlways
			c.RestartPolicy = &always
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		default:
			pod.Spec.Containers = append(pod.Spec.Containers, c)
		}
	}
	return pod
}

func (w *world) drawContainer(name string, class share.Class) corev1.Container {
	t, memory := w.t, rapid.IntRange(1, 8).Draw(w.t, "memory")
	switch kind := rapid.IntRange(0, 6).Draw(t, "kind"); {
	case kind == 0:
		return container(name, 0, 0)
	case class == share.Online:
		return container(name, 0, memory)
	case class == share.Offline:
		c := container(name, 0, memory)
		c.Resources.Limits[podshare.CoreGreedy] = quantity(rapid.IntRange(1, 100).Draw(t, "greedy"))
		return c
	case kind == 1:
		return container(name, 100*rapid.IntRange(1, 2).Draw(t, "cards"), 0)
	case kind == 2:
		return container(name, 160, 2*memory)
	}
	return container(name, 5*rapid.IntRange(1, 20).Draw(t, "core"), memory)
}

// actions is what may happen in a cluster.
func (w *world) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"schedule": func(*rapid.T) { w.scheduleOne() },
		"failedBinding": func(t *rapid.T) {
			before := w.cards()
			w.bindErr = errBind
			if node, _ := w.schedule(w.draw()); node != "" && w.bindErr == nil {
				t.Fatal("a failed binding is reported as made")
			}
			w.bindErr = nil
			if after := w.cards(); after != before {
				t.Fatalf("a failed binding left\n%s\nof\n%s", after, before)
			}
		},
		"confirm": func(*rapid.T) {
			for _, uid := range w.waiting {
				w.cluster.confirm(uid)
			}
			w.waiting = nil
		},
		"again": func(t *rapid.T) { // an event that says nothing new
			if len(w.bound) > 0 {
				uid := rapid.SampledFrom(w.bound).Draw(t, "pod")
				w.cluster.confirm(uid)
				w.waiting = slices.DeleteFunc(w.waiting, func(u types.UID) bool { return u == uid })
			}
		},
		"leave": func(t *rapid.T) {
			if len(w.bound) == 0 {
				t.Skip()
			}
			uid := rapid.SampledFrom(w.bound).Draw(t, "pod")
			node := w.stored[uid].Spec.NodeName
			w.remove(node, uid)
			w.plugin.ledger.drop(uid)
			if rapid.Bool().Draw(t, "twice") {
				w.remove(node, uid)
				w.plugin.ledger.drop(uid)
			}
			delete(w.stored, uid)
			gone := func(u types.UID) bool { return u == uid }
			w.bound, w.waiting = slices.DeleteFunc(w.bound, gone), slices.DeleteFunc(w.waiting, gone)
		},
		"policy": func(t *rapid.T) {
			name := rapid.SampledFrom(w.names).Draw(t, "node")
			relabelled := w.nodes[name].node.DeepCopy()
			relabelled.Labels[podshare.PolicyLabel] = rapid.SampledFrom(policies).Draw(t, "policy")
			w.nodes[name].node = relabelled
			w.touch(name)
		},
		"health": func(t *rapid.T) {
			name := rapid.SampledFrom(w.names).Draw(t, "node")
			if inv := w.plugin.inventories.get(name); len(inv.Cards) > 0 {
				cards := slices.Clone(inv.Cards)
				cards[0].Unhealthy = rapid.SampledFrom([]string{"", "Xid 79"}).Draw(t, "why")
				w.report(name, cards...)
			}
		},
		"": w.check,
	}
}

// scheduleOne schedules a pod, and compares what the plugin says of each node with what
// can be known without it.
func (w *world) scheduleOne() {
	pod := w.draw()
	request, err := podshare.Reader{}.Request(pod)
	if err != nil || request == nil {
		return
	}
	_, fit, _ := w.filter(pod)
	for _, name := range w.names {
		fits := slices.ContainsFunc(fit, func(n fwk.NodeInfo) bool { return n.Node().Name == name })
		if want := w.reckon(name).Place(request); fits != want {
			w.t.Fatalf("Filter says %v of node %s, and %v is right", fits, name, want)
		}
	}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse}} // it was tried
	_, first, scores := w.choose(pod)
	if _, second, again := w.choose(pod); first != second || !slices.Equal(scores, again) {
		w.t.Fatalf("scores are %v and then %v", scores, again)
	}
	for _, s := range scores {
		if s.Score < 0 || s.Score > 100 {
			w.t.Fatalf("scores %v are not all within 0…100", scores)
		}
	}
	node, status := w.schedule(pod)
	if node == "" && len(fit) > 0 {
		w.t.Fatalf("a pod that fits is refused: %s", status.Message())
	}
	if node == "" {
		return
	}
	p, err := podshare.Of(w.stored[pod.UID])
	if err != nil {
		w.t.Fatal(err)
	}
	if err := p.Check(request, node); err != nil {
		w.t.Fatalf("the placement is not the pod's: %v", err)
	}
	w.waiting, w.bound = append(w.waiting, pod.UID), append(w.bound, pod.UID)
}

// reckoning is the cards of a node as the placements of its pods add up to.
type reckoning struct{ placement.Node }

// Place reports whether r fits.
func (r *reckoning) Place(request *placement.Request) bool {
	var p placement.Placer
	return len(r.Cards) > 0 && p.Place(&r.Node, request, nil)
}

// reckon adds up from the API server's pods alone.
func (w *world) reckon(name string) *reckoning {
	r := &reckoning{}
	policy, _ := readNode(w.nodes[name].node, nil)
	for _, c := range w.plugin.inventories.get(name).Cards {
		r.Cards = append(r.Cards, placement.Card{Index: c.Index, UUID: c.UUID, Model: c.Model, Unhealthy: c.Unhealthy, Memory: share.Memory(c.MemoryMiB) * share.MiB})
	}
	foreign := make(map[string]bool)
	for _, uid := range slices.Sorted(maps.Keys(w.stored)) {
		pod := w.stored[uid]
		if pod.Spec.NodeName != name {
			continue
		}
		p, err := podshare.Of(pod)
		if err != nil {
			w.t.Fatal(err)
		}
		request, err := podshare.Reader{}.Request(pod)
		if err != nil {
			w.t.Fatal(err)
		}
		r.Take(request, p.Containers)
		for _, lies := range p.Containers {
			for _, s := range lies {
				foreign[s.UUID] = foreign[s.UUID] || p.Policy != policy
			}
		}
	}
	for i := range r.Cards {
		if foreign[r.Cards[i].UUID] {
			r.Cards[i].Unhealthy = "foreign"
		}
	}
	return r
}

// cards is the plugin's account of all nodes.
func (w *world) cards() string {
	w.filter(w.pod([2]int{5, 1}))
	return accountOf(w.plugin, w.names)
}

func accountOf(p *Plugin, names []string) string {
	account := make(map[string][]placement.Card)
	for _, name := range names {
		account[name] = p.view.byName[name].Cards
	}
	data, err := json.Marshal(account)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// check holds after each action.
func (w *world) check(t *rapid.T) {
	account := w.cards()
	for _, name := range w.names {
		for _, c := range w.plugin.view.byName[name].Cards {
			if c.Taken > c.Memory || c.Core > share.Whole || c.Tenants > placement.MaxTenants || c.Taken < 0 || c.Core < 0 || c.Whole && c.Tenants > 2 {
				t.Fatalf("node %s has an impossible card %+v", name, c)
			}
		}
	}
	for _, s := range w.plugin.shapes.byKey { // what is remembered is what would be found
		for _, r := range w.plugin.view.present {
			if s.asOf != w.plugin.view.versions {
				s.update(w.plugin.view)
			}
			fresh, e := s.judge(&r.nodeState), s.byID[r.id]
			if e.score != fresh.score || !e.status.Equal(fresh.status()) {
				t.Fatalf("node %s is remembered as %+v, and is %+v", r.Name, e, fresh)
			}
		}
	}
	if len(w.waiting) == 0 { // all placements are in the API server: a new leader sees the same
		old := w.plugin
		w.restart()
		if again := w.cards(); again != account {
			t.Fatalf("after a restart the account is\n%s, and was\n%s", again, account)
		}
		if rapid.Bool().Draw(t, "stay") {
			w.plugin = old
		}
	}
}

func TestCluster(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		t.Repeat(w.actions())
	})
}
