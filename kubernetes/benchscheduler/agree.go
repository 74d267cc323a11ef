package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/qgpu-project/qgpu/internal/inventory"
	"github.com/qgpu-project/qgpu/internal/podshare"
	"github.com/qgpu-project/qgpu/internal/replay"
	"github.com/qgpu-project/qgpu/internal/scheduler"
)

// agreement is how far the scheduler and the simulator do the same.
type agreement struct {
	pods, placed int // by the scheduler
	// nodes and cards are the pods for which both chose the same node, and the same cards.
	nodes, cards int
	first        string // difference
}

func (a agreement) String() string {
	text := fmt.Sprintf("%d pods, %d placed: on the same node %d, on the same cards %d", a.pods, a.placed, a.nodes, a.cards)
	if a.first != "" {
		text += "; the first difference: " + a.first
	}
	return text
}

// playable is t as both can play it: without pods that ask for no card, and without
// wishes for models, which reach the scheduler as node labels; with memory, which shares
// of cards must ask for, and core in steps of 5 percent; and with the nodes in the order in which the scheduler takes equals.
func playable(t *replay.Trace, pods int) *replay.Trace {
	t = replay.WithMemory(t, 1)
	t.Pods = slices.DeleteFunc(t.Pods, func(p replay.Pod) bool { return p.Cards == 0 })
	t.Pods = t.Pods[:min(len(t.Pods), pods)]
	for i := range t.Pods {
		t.Pods[i].Models = nil
		t.Pods[i].CardMemoryMiB = t.Pods[i].CardMemoryMiB >> 10 << 10
		t.Pods[i].CoreMilli = (t.Pods[i].CoreMilli + 49) / 50 * 50
	}
	var order scheduler.Args
	slices.SortFunc(t.Nodes, func(a, b replay.Node) int { return cmp.Compare(order.Rank(a.Name), order.Rank(b.Name)) })
	return t
}

// agree plays t through the scheduler, pod by pod, and through the simulator. It leaves
// nothing at the API server.
func (s *site) agree(ctx context.Context, program, policy string, t *replay.Trace) (found agreement, err error) {
	if err := s.writeConfig(policy, 100); err != nil {
		return found, err
	}
	defer func() { err = errors.Join(err, s.clear(context.WithoutCancel(ctx))) }()
	for i, n := range t.Nodes {
		if err := s.addNode(ctx, n, i); err != nil {
			return found, err
		}
	}
	_, end, err := s.startScheduler(ctx, program, false)
	if err != nil {
		return found, err
	}
	defer func() { err = errors.Join(err, end()) }()
	found.pods = len(t.Pods)
	for i, want := range replay.Sequence(t, policy) {
		got, err := s.place(ctx, t.Pods[i], i)
		if err != nil {
			return found, fmt.Errorf("pod %d: %w", i, err)
		}
		found.count(i, &t.Pods[i], got, want)
	}
	return found, nil
}

// clear removes all pods, nodes and inventories.
func (s *site) clear(ctx context.Context) error {
	now := metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
	return errors.Join(
		s.client.CoreV1().Pods(metav1.NamespaceDefault).DeleteCollection(ctx, now, metav1.ListOptions{}),
		s.client.CoreV1().Nodes().DeleteCollection(ctx, now, metav1.ListOptions{}),
		s.dynamic.Resource(inventory.Resource).DeleteCollection(ctx, now, metav1.ListOptions{}),
	)
}

func (a *agreement) count(i int, p *replay.Pod, got, want replay.Place) {
	if got.Node != "" {
		a.placed++
	}
	same := got.Node == want.Node
	if same {
		a.nodes++
	}
	if same && slices.Equal(got.Cards, want.Cards) {
		a.cards++
	} else if a.first == "" {
		a.first = fmt.Sprintf("pod %d (%d × %d‰, %d MiB, %d‰ CPU) lies on %+v, in the simulator on %+v", i, p.Cards, p.CoreMilli, p.CardMemoryMiB, p.CPU, got, want)
	}
}

// place creates a pod and waits until the scheduler has decided. A pod without room goes.
func (s *site) place(ctx context.Context, p replay.Pod, i int) (replay.Place, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	pods := s.client.CoreV1().Pods(metav1.NamespaceDefault)
	pod, err := pods.Create(ctx, tracePod(p, i), metav1.CreateOptions{})
	if err != nil {
		return replay.Place{}, err
	}
	w, err := pods.Watch(ctx, metav1.SingleObject(pod.ObjectMeta))
	if err != nil {
		return replay.Place{}, err
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		now, ok := event.Object.(*corev1.Pod)
		if !ok || event.Type == watch.Deleted {
			break
		}
		if now.Spec.NodeName != "" {
			return placeOf(now)
		}
		for _, c := range now.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
				zero := int64(0)
				return replay.Place{}, pods.Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &zero})
			}
		}
	}
	return replay.Place{}, fmt.Errorf("the watch of pod %s ended: %w", pod.Name, cmp.Or(ctx.Err(), context.Canceled))
}

func placeOf(pod *corev1.Pod) (replay.Place, error) {
	placed, err := podshare.Of(pod)
	if err != nil {
		return replay.Place{}, err
	}
	at := replay.Place{Node: placed.Node}
	for _, slice := range placed.Containers["main"] {
		at.Cards = append(at.Cards, slice.Index)
	}
	return at, nil
}

func tracePod(p replay.Pod, i int) *corev1.Pod {
	pod := podObject(sharedKind, i)
	amounts := corev1.ResourceList{
		podshare.Core: *resource.NewQuantity(int64(p.Cards)*p.CoreMilli/10, resource.DecimalSI),
	}
	if gib := int64(p.Cards) * p.CardMemoryMiB >> 10; gib > 0 {
		amounts[podshare.Memory] = *resource.NewQuantity(gib, resource.DecimalSI)
	}
	pod.Spec.Containers = []corev1.Container{{Name: "main", Image: "pause", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{
			corev1.ResourceCPU:    *resource.NewMilliQuantity(p.CPU, resource.DecimalSI),
			corev1.ResourceMemory: *resource.NewQuantity(p.HostMemoryMiB<<20, resource.BinarySI),
		},
		Limits: amounts,
	}}}
	return pod
}
