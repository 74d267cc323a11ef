package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/qgpu-project/qgpu/internal/agentapi"
	"github.com/qgpu-project/qgpu/internal/discovery"
	"github.com/qgpu-project/qgpu/internal/inventory"
	"github.com/qgpu-project/qgpu/internal/nvclient"
	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/podshare"
	"github.com/qgpu-project/qgpu/internal/share"
	"github.com/qgpu-project/qgpu/internal/tenant"
)

const thisNode = "node-1"

// site is an agent with an API server, a driver and a kubelet of its own.
type site struct {
	t       *testing.T
	api     *fake.Clientset
	cards   *inventory.Client
	driver  *driver
	kubelet kubelet
	dir     string
	stop    func()
}

// newSite starts an agent on a node with two cards of 16 GiB, and waits until it is ready.
func newSite(t *testing.T, objects ...runtime.Object) *site {
	s := quietSite(t, objects...)
	s.start()
	s.ready()
	return s
}

// quietSite is a site whose agent does not run yet.
func quietSite(t *testing.T, objects ...runtime.Object) *site {
	t.Helper()
	dir, err := os.MkdirTemp("", "qgpu-agent-") // sockets' names are short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if len(objects) == 0 {
		objects = []runtime.Object{node("uid-1")}
	}
	kinds := map[schema.GroupVersionResource]string{inventory.Resource: inventory.Kind + "List"}
	d := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds)
	d.PrependReactor("patch", inventory.Resource.Resource, applied(d))
	s := &site{t: t, api: fake.NewClientset(objects...), cards: inventory.NewClient(d), dir: dir, stop: func() {}}
	s.driver = &driver{changed: make(chan struct{}, 1), inv: discovery.Inventory{Version: "550.163.01", Cards: []nvclient.Card{chip(0), chip(1)}}}
	t.Cleanup(func() { s.stop() })
	return s
}

// applied makes a fake client store what is applied: there is one manager.
func applied(d *dynamicfake.FakeDynamicClient) clienttesting.ReactionFunc {
	return func(action clienttesting.Action) (bool, runtime.Object, error) {
		patch := action.(clienttesting.PatchAction)
		u := &unstructured.Unstructured{}
		if err := json.Unmarshal(patch.GetPatch(), u); err != nil {
			return true, nil, err
		}
		err := d.Tracker().Update(inventory.Resource, u, "")
		if apierrors.IsNotFound(err) {
			err = d.Tracker().Create(inventory.Resource, u, "")
		}
		return true, u, err
	}
}

// start runs the agent until the test or stop ends it.
func (s *site) start() {
	s.t.Helper()
	a, err := New(Config{
		Node: thisNode, Client: s.api, Inventories: s.cards, Driver: s.driver, Kubelet: &s.kubelet,
		StateDir: s.dir, Version: "test", Log: slog.New(slog.NewTextHandler(testLog{s.t}, nil)),
	})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Errorf("the agent ended with %v", err)
		}
	})
}

type testLog struct{ t *testing.T }

func (l testLog) Write(p []byte) (int, error) {
	l.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

func chip(i int) nvclient.Card {
	return nvclient.Card{
		Minor: i, Address: fmt.Sprintf("0000:0%d:00.0", i+1), UUID: uuid(i), Name: "Tesla T4", Total: 17 << 30, Reserved: 1 << 30,
	}
}

func uuid(i int) string { return fmt.Sprintf("GPU-00000000-0000-0000-0000-00000000000%d", i) }

// driver is a Driver that tells what a test says.
type driver struct {
	mu      sync.Mutex
	inv     discovery.Inventory
	err     error
	changed chan struct{}
}

func (d *driver) Watch(ctx context.Context, report func(string, discovery.Inventory)) error {
	for {
		d.mu.Lock()
		inv, err := d.inv, d.err
		d.mu.Unlock()
		if err != nil {
			return err
		}
		report(discovery.Simulated, inv)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-d.changed:
		}
	}
}

func (d *driver) set(inv discovery.Inventory, err error) {
	d.mu.Lock()
	d.inv, d.err = inv, err
	d.mu.Unlock()
	d.changed <- struct{}{}
}

// kubelet is a Kubelet that has the pods that a test says.
type kubelet struct {
	mu   sync.Mutex
	pods map[string]int
	err  error
}

func (k *kubelet) Pods(context.Context) (map[string]int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.pods, k.err
}

func (k *kubelet) set(pods map[string]int, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pods, k.err = pods, err
}

func node(uid types.UID) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: thisNode, UID: uid, Labels: map[string]string{podshare.EnableLabel: Enabled}}}
}

// pod asks for core and memory (GiB) in container main, and is placed on a card.
func pod(name string, card, core, memory int) *corev1.Pod {
	limits := corev1.ResourceList{podshare.Core: *resource.NewQuantity(int64(core), resource.DecimalSI)}
	quota := share.Memory(memory) * share.GiB
	if memory > 0 {
		limits[podshare.Memory] = *resource.NewQuantity(int64(memory), resource.DecimalSI)
	} else {
		quota = 16 * share.GiB
	}
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID("uid-of-" + name), CreationTimestamp: metav1.NewTime(time.Unix(1000, 0)),
		},
		Spec: corev1.PodSpec{NodeName: thisNode, Containers: []corev1.Container{
			{Name: "main", Resources: corev1.ResourceRequirements{Limits: limits}}, {Name: "helper"},
		}},
	}
	return place(p, podshare.Placement{Node: thisNode, Policy: share.BestEffort, Containers: placement.Assignment{
		"main": {{Index: card, UUID: uuid(card), Core: core, Memory: quota}},
	}})
}

func place(p *corev1.Pod, placed podshare.Placement) *corev1.Pod {
	note, err := placed.Encode()
	if err != nil {
		panic(err)
	}
	p.Annotations = map[string]string{podshare.PlacementNote: note}
	return p
}

// create makes p at the API server.
func (s *site) create(p *corev1.Pod) *corev1.Pod {
	s.t.Helper()
	out, err := s.api.CoreV1().Pods(p.Namespace).Create(s.t.Context(), p, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

func (s *site) delete(p *corev1.Pod) {
	s.t.Helper()
	if err := s.api.CoreV1().Pods(p.Namespace).Delete(s.t.Context(), p.Name, metav1.DeleteOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) client() *http.Client {
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(s.dir, agentapi.DefaultSocket))
		},
	}}
}

// ask asks the agent over its socket, as the runtime does.
func (s *site) ask(p *corev1.Pod, container string) (agentapi.Grant, *agentapi.Refusal) {
	s.t.Helper()
	question, err := json.Marshal(agentapi.Container{PodUID: string(p.UID), PodNamespace: p.Namespace, PodName: p.Name, Name: container})
	if err != nil {
		s.t.Fatal(err)
	}
	res, err := s.client().Post("http://agent"+agentapi.GrantPath, "application/json", strings.NewReader(string(question)))
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	if res.StatusCode == http.StatusOK {
		var grant agentapi.Grant
		if err := json.Unmarshal(body, &grant); err != nil {
			s.t.Fatal(err)
		}
		return grant, nil
	}
	refusal := &agentapi.Refusal{}
	if err := json.Unmarshal(body, refusal); err != nil {
		s.t.Fatalf("%s: %s", res.Status, body)
	}
	return agentapi.Grant{}, refusal
}

// granted fails the test unless the container gets one slice of a card.
func (s *site) granted(p *corev1.Pod, container string, card int) agentapi.Grant {
	s.t.Helper()
	grant, refusal := s.ask(p, container)
	if refusal != nil {
		s.t.Fatalf("pod %s is refused: %s", p.Name, refusal.Reason)
	}
	if len(grant.Slices) != 1 || grant.Slices[0].UUID != uuid(card) {
		s.t.Fatalf("pod %s is granted %+v", p.Name, grant)
	}
	return grant
}

// refusedFor fails the test unless the container is refused for a reason that has want in it.
func (s *site) refusedFor(p *corev1.Pod, container, want string, temporary bool) {
	s.t.Helper()
	grant, refusal := s.ask(p, container)
	if refusal == nil {
		s.t.Fatalf("pod %s is granted %+v", p.Name, grant)
	}
	if !strings.Contains(refusal.Reason, want) || refusal.Temporary != temporary {
		s.t.Fatalf("pod %s: %+v, want %q, temporary %v", p.Name, refusal, want, temporary)
	}
}

func (s *site) ready() {
	s.t.Helper()
	s.until("ready", func() error {
		res, err := s.client().Get("http://agent" + agentapi.ReadyPath)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		if res.StatusCode != http.StatusOK {
			body, err := io.ReadAll(res.Body)
			return errors.Join(err, errors.New(string(body)))
		}
		return nil
	})
}

// until waits for something to become so.
func (s *site) until(what string, so func() error) {
	s.t.Helper()
	const patience = 30 * time.Second
	var err error
	for begin := time.Now(); time.Since(begin) < patience; time.Sleep(20 * time.Millisecond) {
		if err = so(); err == nil {
			return
		}
	}
	s.t.Fatalf("not %s: %v", what, err)
}

// begin makes a tenant of a pod's container as the runtime would. It lives until end.
func (s *site) begin(id string, p *corev1.Pod, slices []placement.Slice) (end func()) {
	s.t.Helper()
	registry, err := tenant.OpenRegistry(s.dir)
	if err != nil {
		s.t.Fatal(err)
	}
	var shape share.Share
	for _, slice := range slices {
		shape.Core, shape.Memory = shape.Core+slice.Core, shape.Memory+slice.Memory
	}
	var cards []placement.Card
	for i := range 2 {
		cards = append(cards, placement.Card{Index: i, UUID: uuid(i), Memory: 16 * share.GiB})
	}
	admission, err := registry.AdmitAt(s.t.Context(), tenant.Tenant{
		ID: id, Share: shape, Policy: share.BestEffort, Placement: slices, Since: time.Now(),
		Owner: &tenant.Owner{PodUID: string(p.UID), Namespace: p.Namespace, Pod: p.Name, Container: "main"},
	}, cards)
	if err != nil {
		s.t.Fatal(err)
	}
	end = sync.OnceFunc(admission.Close)
	s.t.Cleanup(end)
	return end
}

// event waits for an event with want in its message.
func (s *site) event(reason, want string) {
	s.t.Helper()
	s.until("an event "+reason+" that says "+want, func() error {
		events, err := s.api.CoreV1().Events("").List(s.t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, e := range events.Items {
			if e.Reason == reason && strings.Contains(e.Message, want) && e.Source.Component == Name {
				return nil
			}
		}
		return fmt.Errorf("events %+v", events.Items)
	})
}
