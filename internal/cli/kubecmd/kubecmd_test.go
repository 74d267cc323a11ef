package kubecmd

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/qgpu-project/qgpu/internal/clusterview"
	"github.com/qgpu-project/qgpu/internal/inventory"
	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/podshare"
	"github.com/qgpu-project/qgpu/internal/replay"
	"github.com/qgpu-project/qgpu/internal/share"
)

var update = flag.Bool("update", false, "write golden files anew")

var created = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// example is a cluster with a bit of everything.
func example(t *testing.T) *clusterview.View {
	t.Helper()
	o := clusterview.Objects{Handler: "qgpu"}
	o.Nodes = []corev1.Node{exampleNode("gpu-1", "bs", 2), exampleNode("gpu-2", "", 1), exampleNode("gpu-3", "", 0)}
	o.Nodes[1].Spec.Unschedulable = true
	o.Inventories = []inventory.CardInventory{exampleInventory("gpu-1", 2), exampleInventory("gpu-2", 1)}
	o.Inventories[0].Cards[1].Unhealthy = "Xid 79: the card has fallen off the bus"
	o.Pods = []corev1.Pod{
		examplePod(t, "serve", "online", amounts("memory", 4), slice("gpu-1", 0, 0, 4, share.Online)),
		examplePod(t, "train", "", amounts("core", 60, "memory", 8), slice("gpu-1", 0, 60, 8, "")),
		examplePod(t, "batch", "offline", amounts("greedy", 50, "memory", 2), slice("gpu-1", 0, 50, 2, share.Offline)),
		examplePod(t, "whole", "", amounts("core", 100), slice("gpu-2", 0, 100, 15, "")),
		examplePod(t, "split", "", amounts("core", 160, "memory", 20)),
		examplePod(t, "waits", "", amounts("core", 50, "memory", 4)),
	}
	waits := &o.Pods[5]
	waits.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/3 nodes are available: 3 have no room on their cards."}}
	return clusterview.Of(o)
}

func exampleNode(name, policy string, cards int) corev1.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{podshare.EnableLabel: "enable"}}}
	if policy != "" {
		n.Labels[podshare.PolicyLabel] = policy
	}
	n.Status.Allocatable = amounts("core", 100*cards, "memory", 15*cards, "greedy", 1600*cards)
	n.Status.Allocatable["cpu"], n.Status.Allocatable["memory"], n.Status.Allocatable["pods"] = resource.MustParse("16"), resource.MustParse("64Gi"), resource.MustParse("110")
	n.Status.RuntimeHandlers = []corev1.NodeRuntimeHandler{{Name: "runc"}, {Name: "qgpu"}}
	return n
}

func exampleInventory(node string, cards int) inventory.CardInventory {
	inv := inventory.CardInventory{ObjectMeta: metav1.ObjectMeta{Name: node}, Driver: "kernel", DriverVersion: "535.261.03"}
	for i := range cards {
		inv.Cards = append(inv.Cards, inventory.Card{Index: i, UUID: uuid(node, i), Model: "Tesla T4", MemoryMiB: 15 << 10})
	}
	return inv
}

func uuid(node string, card int) string { return fmt.Sprintf("GPU-%s-%d", node, card) }

func amounts(pairs ...any) corev1.ResourceList {
	names := map[string]corev1.ResourceName{"core": podshare.Core, "memory": podshare.Memory, "greedy": podshare.CoreGreedy}
	list := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[names[pairs[i].(string)]] = *resource.NewQuantity(int64(pairs[i+1].(int)), resource.DecimalSI)
	}
	return list
}

type placed struct {
	node  string
	slice placement.Slice
}

func slice(node string, card, core, gib int, class share.Class) placed {
	return placed{node, placement.Slice{Index: card, UUID: uuid(node, card), Core: core, Memory: share.Memory(gib) * share.GiB, Class: class}}
}

func examplePod(t *testing.T, name, class string, limits corev1.ResourceList, on ...placed) corev1.Pod {
	t.Helper()
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID("uid-" + name), Annotations: map[string]string{}, CreationTimestamp: metav1.NewTime(created)}}
	if class != "" {
		p.Annotations[podshare.ClassLabel] = class
	}
	p.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Limits: limits, Requests: limits}}}
	p.Status.Phase = corev1.PodPending
	if len(on) == 0 {
		return p
	}
	value := podshare.Placement{Node: on[0].node, Policy: share.BestEffort, Containers: placement.Assignment{}}
	for _, s := range on {
		value.Containers["main"] = append(value.Containers["main"], s.slice)
	}
	note, err := value.Encode()
	if err != nil {
		t.Fatal(err)
	}
	p.Annotations[podshare.PlacementNote] = note
	p.Spec.NodeName = on[0].node
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(created.Add(3 * time.Second))}}
	return p
}

func TestTables(t *testing.T) {
	v := example(t)
	used := readUses(t.Context(), agents("gpu-1", "gpu-2", "gpu-9"), map[string]bool{"gpu-1": true, "gpu-2": true}, exampleUse)
	if len(used.problems) != 0 {
		t.Errorf("problems: %v", used.problems)
	}
	tables := map[string]func(io.Writer) error{
		"nodes":        func(w io.Writer) error { return writeNodes(w, nodeRows(v)) },
		"nodes-none":   func(w io.Writer) error { return writeNodes(w, nil) },
		"nodes.json":   func(w io.Writer) error { return writeJSON(w, nodeRows(v)) },
		"pods":         func(w io.Writer) error { return writePods(w, podRows(v, used, "")) },
		"pods-none":    func(w io.Writer) error { return writePods(w, podRows(v, uses{}, "other")) },
		"top":          func(w io.Writer) error { rows, all := sumRows(v, used); return writeSums(w, rows, all) },
		"pods-unknown": func(w io.Writer) error { return writePods(w, podRows(v, uses{}, "")) },
		"top-unknown": func(w io.Writer) error {
			rows, all := sumRows(v, uses{})
			return errors.Join(writeSums(w, rows, all), writeProblems(w, []string{"gpu-1: what is used there is not known: no answer"}))
		},
		"explain-waits":  func(w io.Writer) error { return writeExplanation(w, v.Explain(v.Pod("default", "waits"))) },
		"explain-split":  func(w io.Writer) error { return writeExplanation(w, v.Explain(v.Pod("default", "split"))) },
		"explain-placed": func(w io.Writer) error { return writeExplanation(w, v.Explain(v.Pod("default", "train"))) },
	}
	for name, table := range tables {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			if err := table(&b); err != nil {
				t.Fatal(err)
			}
			golden(t, name, b.Bytes())
		})
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s (go test -update writes it anew):\n%s\nwant:\n%s", path, got, want)
	}
}

// What is exported can be read by the program that it is for.
func TestTrace(t *testing.T) {
	dir := t.TempDir()
	if err := replay.Write(dir, trace(example(t))); err != nil {
		t.Fatal(err)
	}
	got, err := replay.Open(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Nodes) != 2 || got.Nodes[0].Cards != 2 || got.Nodes[0].CardMemoryMiB != 15<<10 {
		t.Errorf("nodes %+v, want the two with cards", got.Nodes)
	}
	if len(got.Pods) != 6 {
		t.Fatalf("%d shares, want 6", len(got.Pods))
	}
	for _, p := range got.Pods {
		if p.Cards == 2 && (p.CoreMilli != 800 || p.CardMemoryMiB != 10<<10) {
			t.Errorf("the split share is %+v, want 800 and 10 GiB on each card", p)
		}
		if p.QoS == "offline" && p.CoreMilli != 500 {
			t.Errorf("the offline share is %+v", p)
		}
	}
}

func TestOutputFlag(t *testing.T) {
	o := &options{output: "yaml"}
	if err := o.print(io.Discard, nil, nil); err == nil {
		t.Error("--output yaml was taken")
	}
}

func TestNoCluster(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none")
	c := NewPlugin()
	c.SetArgs([]string{"nodes", "--kubeconfig", path})
	c.SetOut(io.Discard)
	c.SetErr(io.Discard)
	if err := c.Execute(); err == nil {
		t.Error("nodes without a cluster succeeded")
	}
}
