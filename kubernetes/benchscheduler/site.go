package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/qgpu-project/qgpu/internal/inventory"
	"github.com/qgpu-project/qgpu/internal/podshare"
	"github.com/qgpu-project/qgpu/internal/replay"
	"github.com/qgpu-project/qgpu/kubernetes/controlplane"
)

// plainResource is the extended resource of the pods that shares are compared with.
const plainResource = "example.com/plain"

// site is a control plane with nodes that are objects alone.
type site struct {
	dir     string
	plane   *controlplane.ControlPlane
	client  kubernetes.Interface
	dynamic dynamic.Interface
	nodes   int
}

func newSite(ctx context.Context, dir string, log *slog.Logger, crd string) (*site, error) {
	plane, err := controlplane.Start(ctx, controlplane.Config{
		Dir: filepath.Join(dir, "plane"), Log: log,
		// No controller may find out that nobody is on the nodes.
		Controllers: []string{"serviceaccount-controller"},
	})
	if err != nil {
		return nil, err
	}
	s := &site{dir: dir, plane: plane}
	if err := s.prepare(ctx, crd); err != nil {
		return nil, errors.Join(err, plane.Stop())
	}
	return s, nil
}

func (s *site) close() {
	if err := s.plane.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stop the control plane:", err)
	}
}

func (s *site) prepare(ctx context.Context, crd string) (err error) {
	if s.client, err = kubernetes.NewForConfig(s.plane.Admin()); err != nil {
		return err
	}
	if s.dynamic, err = dynamic.NewForConfig(s.plane.Admin()); err != nil {
		return err
	}
	definition, err := readDefinition(crd)
	if err != nil {
		return err
	}
	definitions := s.dynamic.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	if _, err := definitions.Create(ctx, definition, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("define inventories: %w", err)
	}
	for { // the API server serves a new kind after a moment
		_, err := s.dynamic.Resource(inventory.Resource).List(ctx, metav1.ListOptions{})
		if err == nil || !apierrors.IsNotFound(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// readDefinition reads the chart's template. The lines that the chart fills in are
// labels, which can be done without.
func readDefinition(path string) (*unstructured.Unstructured, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var kept []string
	for line := range strings.Lines(string(data)) {
		if !strings.Contains(line, "{{") {
			kept = append(kept, line)
		}
	}
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(strings.Join(kept, "")), &u.Object); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return u, nil
}

// cards is how many cards a measured node has, of cardGiB each.
const cards, cardGiB = 8, 80

// growTo adds nodes until there are n.
func (s *site) growTo(ctx context.Context, n int) error {
	first := s.nodes
	s.nodes = max(n, first)
	return each(s.nodes-first, func(i int) error {
		return s.addNode(ctx, replay.Node{
			Name: fmt.Sprintf("node-%05d", first+i), Model: "A100",
			CPU: 96_000, HostMemoryMiB: 768 << 10, Cards: cards, CardMemoryMiB: cardGiB << 10,
		}, first+i)
	})
}

// addNode adds a node, and what an agent would report of its cards.
func (s *site) addNode(ctx context.Context, n replay.Node, number int) error {
	if _, err := s.client.CoreV1().Nodes().Create(ctx, nodeObject(n), metav1.CreateOptions{}); err != nil {
		return err
	}
	u, err := inventoryOf(n, number).Unstructured()
	if err != nil {
		return err
	}
	_, err = s.dynamic.Resource(inventory.Resource).Create(ctx, u, metav1.CreateOptions{})
	return err
}

func nodeObject(n replay.Node) *corev1.Node {
	count := int64(n.Cards)
	amounts := corev1.ResourceList{
		corev1.ResourceCPU: *resource.NewMilliQuantity(n.CPU, resource.DecimalSI), corev1.ResourceMemory: *resource.NewQuantity(n.HostMemoryMiB<<20, resource.BinarySI),
		corev1.ResourcePods: resource.MustParse("110"),
		podshare.Core:       *resource.NewQuantity(100*count, resource.DecimalSI), podshare.Memory: *resource.NewQuantity(n.CardMemoryMiB>>10*count, resource.DecimalSI),
		plainResource: *resource.NewQuantity(16*count, resource.DecimalSI),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: map[string]string{podshare.EnableLabel: "enable", corev1.LabelHostname: n.Name}},
		Status: corev1.NodeStatus{
			Capacity: amounts, Allocatable: amounts,
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"}},
		},
	}
}

func inventoryOf(n replay.Node, number int) *inventory.CardInventory {
	inv := &inventory.CardInventory{ObjectMeta: metav1.ObjectMeta{Name: n.Name}, Driver: "kernel", DriverVersion: "550.54.15"}
	for i := range n.Cards {
		inv.Cards = append(inv.Cards, inventory.Card{Index: i, UUID: fmt.Sprintf("GPU-%08x-0000-4000-8000-%012x", number, i), Model: n.Model, MemoryMiB: n.CardMemoryMiB})
	}
	return inv
}

// workers make objects at one time.
const workers = 16

// each calls do for 0…n-1, by several at a time, and returns one of the errors.
func each(n int, do func(i int) error) error {
	next := make(chan int)
	errs := make(chan error, workers)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			var failed error
			for i := range next {
				if failed == nil {
					failed = do(i)
				}
			}
			errs <- failed
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
